//! One production of samples for the ranks of a job on this machine.
//!
//! In: the plan and the cursor of each rank. Out: a run over each rank's share, with the stream that a loader of its own would
//! give. The runs share a supply, a memory budget, a cost table and counters. So the ranks also share caches and learned costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedline_data::memory::{Budget, Iterating, LocalRanks, MachineShare};
use feedline_data::plan::Plan;
use feedline_memory::Pool;

use crate::error::Error;
use crate::machine::{CoreWeight, Machine};
use crate::metrics::{QueueSnapshot, Snapshot};
use crate::run::{Run, RunContext, context_for, keep_costs};
use crate::state::Cursor;
use crate::supply::{Supply, supply_for};

/// Lower and upper limit of batches that a rank holds at once.
const MIN_SLABS: u64 = 4;
const MAX_SLABS: usize = 8;
/// Spare slabs per rank.
const SPARE_SLABS: usize = 4;

/// What the ranks of a job share.
#[derive(Debug)]
pub struct Partition {
    plan: Arc<Plan>,
    supply: Arc<dyn Supply>,
    context: RunContext,
    machine: Machine,
    ranks: Arc<AtomicUsize>,
}

/// The share of one rank in execution.
#[derive(Debug)]
pub struct RankRun {
    /// Its batches lie in memory that other processes can map.
    pub run: Run,
    /// The production it belongs to.
    pub partition: Arc<Partition>,
    _iterating: Iterating,
}

impl Drop for RankRun {
    fn drop(&mut self) {
        self.run.close();
    }
}

impl Partition {
    /// A production for ranks with the order and fields of `plan`. Half of `memory_bytes` is for samples in preparation, the other
    /// half for batches that ranks hold. Fails if that is too little for a few batches.
    pub fn new(plan: Arc<Plan>, machine: &Machine, memory_bytes: u64) -> Result<Self, Error> {
        let needs = 2 * MIN_SLABS * plan.layout().slab().total_bytes() as u64;
        if needs > memory_bytes {
            return Err(Error::SharedMemory { needs, has: memory_bytes });
        }
        let supply = supply_for(&plan, machine);
        let mut context = context_for(&plan, &supply, machine);
        context.budget = Budget::fixed(memory_bytes / 2, machine.memory_bytes);
        // Each rank runs an engine of its own, so the ranks divide the cores.
        let ranks = Arc::new(AtomicUsize::new(0));
        context.share = Arc::new(MachineShare::new(LocalRanks::ALONE, Arc::clone(&ranks)));
        Ok(Self { plan, supply, context, machine: machine.clone(), ranks })
    }

    /// Starts the share of a rank. The plans of ranks differ in the rank only.
    pub fn start(self: &Arc<Self>, plan: Arc<Plan>, cursor: Cursor, weight: CoreWeight) -> Result<RankRun, Error> {
        // The readers of a reservoir walk for one rank each.
        let is_walking = plan.sequence().reservoir().is_some();
        let supply = if is_walking { supply_for(&plan, &self.machine) } else { Arc::clone(&self.supply) };
        let pool = Pool::shared(plan.layout().slab().clone(), SPARE_SLABS);
        // Counted before the run starts, so that its threads already see the smaller share of the cores.
        let iterating = self.context.share.begin();
        let run = Run::start(plan, supply, cursor, Some(pool), self.context.clone())?;
        run.set_weight(weight);
        Ok(RankRun { run, partition: Arc::clone(self), _iterating: iterating })
    }

    /// The plan of the first rank.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Upper limit of bytes for samples in preparation, open batches, and batches that ranks hold.
    pub fn memory_bytes(&self) -> u64 {
        self.context.budget.limit() * 2
    }

    /// Bytes in use for samples in preparation.
    pub fn live_bytes(&self) -> u64 {
        self.context.budget.snapshot().used
    }

    /// Number of batches that each rank may hold: kept, being read, and requested.
    pub fn batches_of_rank(&self) -> usize {
        let slab_bytes = (self.plan.layout().slab().total_bytes() as u64).max(1);
        // The batches that ranks hold have as much memory as the budget: see `new`.
        let most = self.context.budget.limit() / slab_bytes / self.ranks().max(1) as u64;
        usize::try_from(most).unwrap_or(usize::MAX).clamp(MIN_SLABS as usize, MAX_SLABS)
    }

    /// Number of attached ranks.
    pub fn ranks(&self) -> usize {
        self.ranks.load(Ordering::Relaxed)
    }

    /// Counters over all ranks.
    pub fn snapshot(&self) -> Snapshot {
        let RunContext { metrics, budget, .. } = &self.context;
        Snapshot::new(metrics, 0, QueueSnapshot::default(), budget.snapshot())
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        keep_costs(&self.plan, &self.context.costs, &self.machine);
    }
}
