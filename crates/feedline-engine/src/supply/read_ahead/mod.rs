//! Reads the bytes of samples before they are needed.
//!
//! In: tasks in the order of need. Out: each task to [`Ready`] once the bytes of all its samples are here. Samples are then loaded
//! from memory, so no preparer waits for a disk or a peer.
//!
//! One thread and one buffer serve every read order:
//! - `order.rs` defines what an order decides; `as_needed.rs`, `reservoir.rs` and `segments.rs` are the three orders
//! - `remaining.rs` is the unread part of a reservoir's walk
//! - `reads.rs` is the thread; `buffer.rs` holds read samples and waiting tasks
//! - `range.rs` merges neighbouring parts into ranges and divides them again
//! - `needs.rs` knows which bytes a sample needs and how they are fetched
//!
//! Always true: the bytes held are bounded, in addition to the memory budget (law 5). A failed read becomes an error when its
//! sample is loaded, and that error names the sample (law 6).

mod as_needed;
mod buffer;
mod needs;
mod order;
mod range;
mod reads;
mod remaining;
mod reservoir;
mod segments;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use feedline_data::cut::Cut;
use feedline_data::memory::Budget;
use feedline_data::op::WorkHint;
use feedline_data::plan::Plan;
use feedline_memory::Mutex;
use feedline_order::{Reservoir, SampleRequest};

use self::as_needed::AsNeeded;
use self::buffer::TaskRequest;
pub(super) use self::needs::{Access, Needs, Stored};
use self::order::ReadOrder;
pub(super) use self::range::{Booking, ReadTarget};
use self::reads::Reads;
use self::reservoir::ReservoirOrder;
use self::segments::{SegmentOrder, is_in_segments};
use super::{Loading, LocalSupply, Reading, Ready, Supply, SupplyError, Task};
use crate::machine::Machine;
use crate::metrics::{ReservoirSnapshot, TrafficMeter};
use crate::offload::OffloadReport;

/// The fraction of the memory budget that may be read ahead, in addition to the budget, and its upper limit.
const BUDGET_SHARE: u64 = 8;
const MAX_BYTES_AHEAD: u64 = 256 << 20;
/// How long closing waits for a read to end.
const CLOSE_TIME: Duration = Duration::from_millis(800);

/// A supply that reads ahead.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    reads: Arc<Reads>,
    /// Started by the first request.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Upper limit of bytes to read ahead for a plan.
pub(super) fn bytes_ahead(plan: &Plan, machine: &Machine) -> u64 {
    let requested = plan.config().memory_budget.map(|bytes| bytes.0);
    let budget = Budget::fixed_or_shared(requested, machine.memory_bytes, &machine.share).limit();
    (budget / BUDGET_SHARE).min(MAX_BYTES_AHEAD)
}

impl ReadAhead {
    /// Fetches what `local` will read from peers, in the order of need.
    pub(super) fn of_source(plan: &Arc<Plan>, local: LocalSupply, machine: &Machine) -> Self {
        let stored = Stored { local, access: Access::Peer };
        Self::as_needed(plan, Arc::new(stored), Arc::default(), machine)
    }

    /// Fetches what samples need in the order of need. Counts bytes in `traffic`.
    pub(super) fn as_needed(
        plan: &Arc<Plan>,
        needs: Arc<dyn Needs>,
        traffic: Arc<TrafficMeter>,
        machine: &Machine,
    ) -> Self {
        let order = AsNeeded { plan: Arc::clone(plan), limit: bytes_ahead(plan, machine) };
        Self::new(needs, Box::new(order), traffic)
    }

    /// Reads what `local` will need, along the walk of a plan's reservoir.
    pub(super) fn reservoir(plan: &Arc<Plan>, reservoir: &Reservoir, local: LocalSupply, machine: &Machine) -> Self {
        let stored = Stored { local, access: Access::Sequential };
        Self::new(Arc::new(stored), Box::new(ReservoirOrder::new(plan, reservoir, machine)), Arc::default())
    }

    /// Reads what `local` will need of segments, in storage order.
    pub(super) fn segments(plan: &Arc<Plan>, local: LocalSupply) -> Self {
        let stored = Stored { local, access: Access::Sequential };
        let order = SegmentOrder { plan: Arc::clone(plan), requests: 0.into() };
        Self::new(Arc::new(stored), Box::new(order), Arc::default())
    }

    /// Whether a plan is read in [`Self::segments`] order.
    pub(super) fn is_in_segments(plan: &Plan, local: &LocalSupply) -> bool {
        is_in_segments(plan, local)
    }

    fn new(needs: Arc<dyn Needs>, order: Box<dyn ReadOrder>, traffic: Arc<TrafficMeter>) -> Self {
        Self { reads: Arc::new(Reads::new(needs, order, traffic)), thread: Mutex::default() }
    }

    fn request(&self, tasks: Vec<Task>, reading: Reading, ready: &Arc<dyn Ready>) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let reads = Arc::clone(&self.reads);
            match thread::Builder::new().name("feedline-read".to_owned()).spawn(move || reads.run()) {
                Ok(started) => *thread = Some(started),
                Err(error) => {
                    tracing::warn!(%error, "nothing is read ahead");
                    // From now on `request` hands tasks over at once, and each sample is read when it is loaded.
                    self.reads.give_up();
                }
            }
        }
        drop(thread);
        self.reads
            .request(tasks.into_iter().map(|task| TaskRequest { task, reading, ready: Arc::clone(ready) }).collect());
    }
}

impl Supply for ReadAhead {
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        self.request(tasks, Reading::Trimmed, ready);
    }

    fn request_whole(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        self.request(tasks, Reading::Complete, ready);
    }

    fn forget(&self) {
        self.reads.forget();
    }

    fn samples_ahead(&self) -> usize {
        self.reads.needs.samples_ahead()
    }

    fn traffic(&self) -> Arc<TrafficMeter> {
        Arc::clone(&self.reads.traffic)
    }

    fn work_hint(&self, request: SampleRequest) -> WorkHint {
        self.reads.needs.work_hint(request)
    }

    fn offload(&self) -> Option<OffloadReport> {
        self.reads.needs.offload()
    }

    fn reservoir(&self) -> Option<ReservoirSnapshot> {
        self.reads.snapshot()
    }

    fn load(&self, loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        self.reads.needs.load(&self.reads.parts_of(loading.request), loading)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().take();
        let Some(thread) = thread else { return };
        // The last task may hold the last reference to this supply, and the thread itself may drop it. A thread cannot join itself.
        let is_own = thread.thread().id() == thread::current().id();
        let has_ended = self.reads.close(if is_own { Duration::ZERO } else { CLOSE_TIME });
        if has_ended && !is_own && thread.join().is_err() {
            tracing::error!("the thread that reads ahead panicked");
        } else if !has_ended && !is_own {
            tracing::warn!("closed while a read was under way; its thread will end by itself");
        }
    }
}
