//! Samples whose bytes are with a peer: fetched before they are needed, many at once.
//!
//! In: tasks, in the order of need. Out: each task to [`Ready`] once the bytes of all its samples are here, whichever come
//! first. A sample is then loaded as from disk. No thread waits for the peer, so latency costs open batches, not threads.
//!
//! - `coalesce.rs` makes one fetch of ranges that lie close together
//! - `fetcher.rs` is the thread that begins fetches in the order of need, as far as memory and requests allow
//! - `held.rs` is what was fetched, until its task is gone
//!
//! Always true: what is fetched and under way stays below a limit, but for the task that is needed soonest, which never waits
//! for others. What cannot be fetched makes its samples fail by name (law 6).

mod coalesce;
mod fetcher;
mod held;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use crate::offload::OffloadReport;

pub(super) use self::coalesce::Cargo;
use self::fetcher::Fetcher;
pub(super) use self::fetcher::Room;
use self::held::Held;
use super::reader::Part;
use super::{Loading, LocalSupply, Reading, Ready, Supply, SupplyError};
use crate::machine::Machine;
use crate::metrics::TrafficMeter;
use crate::supply::Task;
use feedline_data::cut::Cut;
use feedline_data::memory::Budget;
use feedline_data::op::Effort;
use feedline_data::plan::Plan;
use feedline_data::store::{Done, Fetch, StoreError};
use feedline_order::SampleRequest;

/// Requests that are under way at once.
const MOST_REQUESTS: usize = 64;
/// The share of the memory budget that fetched bytes may take beside it, and the most that they may.
const BUDGET_SHARE: u64 = 8;
const MOST_BYTES: u64 = 256 << 20;

/// What samples need from peers, how it is fetched, and how a sample is made of it.
pub(super) trait Needs: Send + Sync + Debug {
    /// The plan whose samples they are.
    fn plan(&self) -> &Plan;

    /// Requests that may be under way at once.
    fn most_requests(&self) -> usize {
        MOST_REQUESTS
    }

    /// Samples to be asked for ahead: half of them under way, half of them here or in preparation.
    fn samples_ahead(&self) -> usize {
        2 * self.most_requests()
    }

    /// What a sample needs; an error if that cannot be said.
    fn needs(&self, wanted: SampleRequest, reading: Reading) -> Result<Vec<Cargo>, StoreError>;

    /// Looks again at what was needed, just before it is fetched.
    fn renew(&self, _cargo: &mut Cargo) {}

    /// Begins to fetch it.
    fn fetch(&self, cargo: &Cargo, done: Done) -> Fetch;

    /// Loads a sample of which parts were fetched.
    fn load(&self, parts: &[Part], loading: Loading<'_, '_>) -> Result<Cut, SupplyError>;

    /// What there is to do until a sample is loaded.
    fn effort(&self, wanted: SampleRequest) -> Effort;

    /// What a peer near the data does, and why.
    fn offload(&self) -> Option<OffloadReport> {
        None
    }
}

impl Needs for LocalSupply {
    fn plan(&self) -> &Plan {
        Self::plan(self)
    }

    fn needs(&self, wanted: SampleRequest, reading: Reading) -> Result<Vec<Cargo>, StoreError> {
        let parts = Self::needs(self, wanted, reading)?.into_iter();
        let remote = parts.filter(|(object, _)| object.remote().is_some());
        Ok(remote.map(|(object, range)| Cargo::Range { object, range }).collect())
    }

    fn fetch(&self, cargo: &Cargo, done: Done) -> Fetch {
        let Cargo::Range { object, range } = cargo else { unreachable!("only ranges are needed") };
        object.remote().expect("only what is with a peer is fetched").fetch(range.clone(), done)
    }

    fn load(&self, parts: &[Part], loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        self.load_with(parts, loading)
    }

    fn effort(&self, wanted: SampleRequest) -> Effort {
        Supply::effort(self, wanted)
    }
}

/// A supply that fetches ahead.
#[derive(Debug)]
pub struct ReadAhead {
    needs: Arc<dyn Needs>,
    held: Arc<Held>,
    traffic: Arc<TrafficMeter>,
    limit: u64,
    /// Started with the first request.
    fetcher: Mutex<Option<Fetcher>>,
}

impl ReadAhead {
    /// Fetches what `local` will read.
    pub fn of_source(local: LocalSupply, machine: &Machine) -> Self {
        Self::new(Arc::new(local), Arc::default(), machine)
    }

    /// Fetches what samples need, and counts it in `traffic`.
    pub(super) fn new(needs: Arc<dyn Needs>, traffic: Arc<TrafficMeter>, machine: &Machine) -> Self {
        let asked = needs.plan().config().memory_budget.map(|bytes| bytes.0);
        let limit = Budget::asked_or_shared(asked, machine.memory_bytes, &machine.share).limit() / BUDGET_SHARE;
        Self { needs, held: Arc::default(), traffic, limit: limit.min(MOST_BYTES), fetcher: Mutex::default() }
    }

    /// Fetches what tasks need; they are ready when it is here.
    fn hand_over(&self, tasks: Vec<Task>, reading: Reading, ready: &Arc<dyn Ready>) {
        let mut fetcher = self.fetcher.lock().unwrap_or_else(PoisonError::into_inner);
        if fetcher.is_none() {
            let (needs, held, traffic) = (&self.needs, &self.held, &self.traffic);
            let started = Fetcher::start(Arc::clone(needs), Arc::clone(held), Arc::clone(traffic), self.limit);
            *fetcher = started.inspect_err(|error| tracing::warn!(%error, "nothing is fetched ahead")).ok();
        }
        if let Some(fetcher) = &*fetcher {
            return fetcher.request(tasks, reading, ready);
        }
        drop(fetcher);
        ready.ready(tasks);
    }
}

impl Supply for ReadAhead {
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        self.hand_over(tasks, Reading::Trimmed, ready);
    }

    fn request_whole(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        self.hand_over(tasks, Reading::Complete, ready);
    }

    fn forget(&self) {
        if let Some(fetcher) = &*self.fetcher.lock().unwrap_or_else(PoisonError::into_inner) {
            fetcher.forget();
        }
    }

    fn samples_ahead(&self) -> usize {
        self.needs.samples_ahead()
    }

    fn traffic(&self) -> Arc<TrafficMeter> {
        Arc::clone(&self.traffic)
    }

    fn effort(&self, wanted: SampleRequest) -> Effort {
        self.needs.effort(wanted)
    }

    fn offload(&self) -> Option<OffloadReport> {
        self.needs.offload()
    }

    fn load(&self, loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        self.needs.load(&self.held.parts_of(loading.request), loading)
    }
}
