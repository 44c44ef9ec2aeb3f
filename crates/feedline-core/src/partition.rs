//! One production for the ranks of a job on this machine.
//!
//! In: the plan of each rank, and where it stands. Out: a run of each rank's share, in the order of the plan, as a loader of its
//! own would give it. The runs have one supply, one memory budget, one table of costs and one set of counters, so what one rank
//! has kept or learnt the others have, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedline_memory::Pool;

use crate::cursor::Cursor;
use crate::engine::{Budget, Lasting, Run};
use crate::error::Error;
use crate::metrics::{QueueSnapshot, Snapshot};
use crate::plan::Plan;
use crate::sink::{Machine, keep_costs, lasting_for, supply_for};
use crate::supply::Supply;

/// Slabs of a rank that wait for use.
const SPARE_SLABS: usize = 8;

/// What the ranks of a job have in common.
#[derive(Debug)]
pub struct Partition {
    plan: Arc<Plan>,
    supply: Arc<dyn Supply>,
    lasting: Lasting,
    machine: Machine,
    ranks: AtomicUsize,
}

/// The share of one rank in execution.
#[derive(Debug)]
pub struct RankRun {
    /// Its batches lie in memory that other processes can map.
    pub run: Run,
    partition: Arc<Partition>,
}

impl Drop for RankRun {
    fn drop(&mut self) {
        self.run.close();
        self.partition.ranks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Partition {
    /// A production for ranks with the order and fields of `plan`, within `memory_bytes`.
    pub fn new(plan: Arc<Plan>, machine: &Machine, memory_bytes: u64) -> Self {
        let supply = supply_for(&plan, machine);
        let mut lasting = lasting_for(&plan, &supply, machine);
        lasting.budget = Budget::asked_or_default(Some(memory_bytes), machine.memory_bytes);
        Self { plan, supply, lasting, machine: machine.clone(), ranks: AtomicUsize::new(0) }
    }

    /// Starts the share of a rank, whose plan differs from that of others in the rank alone.
    pub fn start(self: &Arc<Self>, plan: Arc<Plan>, cursor: Cursor) -> Result<RankRun, Error> {
        // The readers of a reservoir walk for one rank.
        let is_walking = plan.sequence().reservoir().is_some();
        let supply = if is_walking { supply_for(&plan, &self.machine) } else { Arc::clone(&self.supply) };
        let pool = Pool::shared(plan.layout().slab().clone(), SPARE_SLABS);
        let run = Run::start(plan, supply, cursor, Some(pool), self.lasting.clone())?;
        self.ranks.fetch_add(1, Ordering::Relaxed);
        Ok(RankRun { run, partition: Arc::clone(self) })
    }

    /// The plan of the rank that came first.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Bytes that its samples in preparation and open batches may take.
    pub fn memory_bytes(&self) -> u64 {
        self.lasting.budget.limit()
    }

    /// Ranks that are served.
    pub fn ranks(&self) -> usize {
        self.ranks.load(Ordering::Relaxed)
    }

    /// What was done so far for all ranks, in numbers.
    pub fn snapshot(&self) -> Snapshot {
        let Lasting { metrics, budget, .. } = &self.lasting;
        Snapshot::new(metrics, 0, QueueSnapshot::default(), budget.snapshot())
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        keep_costs(&self.plan, &self.lasting.costs, &self.machine);
    }
}
