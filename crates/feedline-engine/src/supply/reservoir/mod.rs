//! Samples that are read in sequence into a reservoir, before it is their turn.
//!
//! In: tasks, in the order of need. Out: each task to [`Ready`] once its samples have been read. What is read next follows from
//! the walk of the plan's reservoir, not from the tasks, so a disk never seeks but between blocks. Stored bytes wait in memory
//! until their sample is prepared.
//!
//! - `way.rs` is what is left to be read of an epoch
//! - `hoard.rs` is what was read, who waits for it, and how much may be read
//! - `walk.rs` takes tasks and hands them over, `walker.rs` is the thread that reads
//!
//! Always true: what is held is bounded, beside the memory budget, and shown in the snapshot (law 5). What cannot be read in
//! one go is loaded alone, and fails by name if it has to (law 6).

mod hoard;
mod walk;
mod walker;
mod way;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use feedline_data::cut::Cut;
use feedline_data::memory::Budget;
use feedline_data::op::Effort;
use feedline_data::plan::Plan;
use feedline_order::{Reservoir, SampleRequest};

use self::hoard::{Hoard, Limits};
use self::walk::Walk;
use super::{Loading, LocalSupply, Ready, Supply, SupplyError};
use crate::machine::Machine;
use crate::metrics::{ReservoirSnapshot, TrafficMeter};
use crate::supply::Task;

/// What is read in one go for each reader: a disk that reads 150 MB/s is busy with it thirteen times as long as with a seek
/// of 8 ms.
const READER_BYTES: u64 = 16 << 20;
/// The share of the memory budget that may be read ahead beside it and the reservoir, and the most that may.
const BUDGET_SHARE: u64 = 8;
const MOST_BYTES_AHEAD: u64 = 256 << 20;
/// Samples that are read in one go at most, where they are short.
const MOST_SAMPLES: u64 = 1 << 14;
/// How long to wait for a read to end when closing.
const CLOSE_TIME: Duration = Duration::from_millis(800);

/// A supply that reads in sequence.
#[derive(Debug)]
pub struct ReservoirSupply {
    local: Arc<LocalSupply>,
    walk: Arc<Walk>,
    traffic: Arc<TrafficMeter>,
    /// Started with the first request.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ReservoirSupply {
    /// Reads what `local` will need for the samples of a plan with a reservoir.
    pub fn new(plan: &Plan, reservoir: &Reservoir, local: LocalSupply, machine: &Machine) -> Self {
        let limits = limits(plan, reservoir, machine);
        let bytes = limits.size.saturating_mul(reservoir.blocks.sample_bytes());
        if let Some(memory) = machine.memory_bytes.filter(|memory| bytes > memory / 2) {
            let (samples, megabytes, has) = (limits.size, bytes / 1_000_000, memory / 1_000_000);
            tracing::warn!(
                "the reservoir of {samples} samples takes about {megabytes} MB of this machine's {has} MB; take a smaller size"
            );
        }
        let (local, traffic) = (Arc::new(local), Arc::default());
        let walk = Arc::new(Walk::new(Arc::clone(&local), Hoard::new(limits), Arc::clone(&traffic)));
        Self { local, walk, traffic, thread: Mutex::default() }
    }

    fn start(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let walk = Arc::clone(&self.walk);
            match thread::Builder::new().name("feedline-walk".to_owned()).spawn(move || walk.run()) {
                Ok(started) => *thread = Some(started),
                Err(error) => {
                    tracing::warn!(%error, "samples are not read in sequence");
                    self.walk.give_up();
                }
            }
        }
    }
}

/// How much may be read.
fn limits(plan: &Plan, reservoir: &Reservoir, machine: &Machine) -> Limits {
    let sample_bytes = reservoir.blocks.sample_bytes();
    let asked = plan.config().memory_budget.map(|bytes| bytes.0);
    let budget = Budget::asked_or_shared(asked, machine.memory_bytes, &machine.share).limit();
    let most = (budget / BUDGET_SHARE).min(MOST_BYTES_AHEAD);
    let bytes = (READER_BYTES * u64::from(reservoir.readers)).min(most / 2);
    let leg = (bytes / sample_bytes).clamp(1, MOST_SAMPLES);
    // What is with a peer comes later, but more of it at once.
    let ahead = if plan.source().is_remote() { (most / sample_bytes).max(2 * leg) } else { 2 * leg };
    Limits { size: reservoir.size.min(reservoir.samples(plan.config().rank.rank)), leg, ahead }
}

impl Supply for ReservoirSupply {
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        self.start();
        self.walk.ask(tasks, ready);
    }

    fn forget(&self) {
        self.walk.forget();
    }

    fn traffic(&self) -> Arc<TrafficMeter> {
        Arc::clone(&self.traffic)
    }

    fn effort(&self, wanted: SampleRequest) -> Effort {
        self.local.effort(wanted)
    }

    fn reservoir(&self) -> Option<ReservoirSnapshot> {
        Some(self.walk.snapshot())
    }

    fn load(&self, loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        let parts = self.walk.parts_of(loading.request);
        self.local.load_with(&parts, loading)
    }
}

impl Drop for ReservoirSupply {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // The last task that it drops may hold the last run, and so this.
        if thread.thread().id() == thread::current().id() {
            return self.walk.ask_to_end();
        }
        if !self.walk.close(CLOSE_TIME) {
            tracing::warn!("closed while a read was under way; its thread will end by itself");
        } else if thread.join().is_err() {
            tracing::error!("the thread that reads in sequence panicked");
        }
    }
}
