//! Samples that a storage server near the data prepares, up to the op where that pays most.
//!
//! In: tasks in the order of need. Out: their samples, each at the cut that the [`Advisor`] chose, in the order of arrival. The
//! client runs the remaining ops. A sample that the server cannot prepare is loaded as from any store. If that fails too, the error
//! names the sample (law 6).
//!
//! `preparer.rs` runs on the server. The messages between the two are in `feedline_data::store`.

mod preparer;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use feedline_data::store::{Form, Packing, Peer, PeerRequest, Prepared};
use feedline_memory::Mutex;

pub use preparer::{NearPreparer, NearWorkspace, PrepareError};

use super::read_ahead::{Access, Needs, ReadAhead, ReadTarget, Stored};
use super::reader::Part;
use super::{Loading, LocalSupply, Reading, SupplyError};
use crate::cache::record::{self, Resume};
use crate::machine::Machine;
use crate::metrics::TrafficMeter;
use crate::offload::{Advisor, OffloadReport};
use feedline_data::cut::Cut;
use feedline_data::op::WorkHint;
use feedline_data::plan::Plan;
use feedline_data::plan::Policy;
use feedline_data::source::Origin;
use feedline_data::store::Prefix;
use feedline_data::store::{Answer, Done, Fetch, StoreError, Version};
use feedline_order::SampleRequest;

/// Upper limit of requests in flight. One link needs fewer than an object store, and each answer improves the decision for later
/// requests.
const MAX_REQUESTS: usize = 32;
/// Upper limit of volumes requested ahead. A few keep the link busy, and the form of a later request rests on more measurements.
const VOLUMES_AHEAD: usize = 4;
/// Upper limit of trials in flight.
const MAX_TRIALS: usize = 32;

impl ReadAhead {
    /// Builds the supply: samples of `plan` from `peer`, with `local` as the fallback.
    pub(super) fn near(
        plan: &Arc<Plan>,
        local: LocalSupply,
        peer: Arc<dyn Peer>,
        prefix: Prefix,
        machine: &Machine,
    ) -> Self {
        let near = Near::new(plan, local, peer, prefix);
        let traffic = Arc::clone(&near.traffic);
        Self::as_needed(plan, Arc::new(near), traffic, machine)
    }
}

/// Chooses the form of each sample and requests it.
#[derive(Debug)]
struct Near {
    plan: Arc<Plan>,
    stored: Stored,
    peer: Arc<dyn Peer>,
    prefix: Arc<Prefix>,
    advisor: Arc<Advisor>,
    traffic: Arc<TrafficMeter>,
    /// Trials in flight.
    trials: Mutex<VecDeque<Fetch>>,
}

impl Near {
    /// Requests samples of `plan` from `peer`, with `local` as the fallback.
    fn new(plan: &Arc<Plan>, local: LocalSupply, peer: Arc<dyn Peer>, prefix: Prefix) -> Self {
        Self {
            advisor: Arc::new(Advisor::new(plan, &prefix)),
            plan: Arc::clone(plan),
            stored: Stored { local, access: Access::Peer },
            peer,
            prefix: Arc::new(prefix),
            traffic: Arc::default(),
            trials: Mutex::default(),
        }
    }

    /// The versions of a sample's files when they were listed, if the store provides them.
    fn listed_versions(&self, request: SampleRequest) -> Vec<(String, Version)> {
        let version = |name: &Arc<str>| match self.plan.source().origin(request.id, name) {
            Origin::Whole { store, name: file } => Some((name.to_string(), store.version(file)?)),
            Origin::Part { .. } | Origin::Made => None,
        };
        self.plan.loaded().iter().filter_map(|(name, _)| version(name)).collect()
    }

    /// Asks the server to measure the sample in all forms, if the advisor wants that.
    fn try_forms(&self, request: SampleRequest) {
        if !self.advisor.wants_trials() {
            return;
        }
        let (advisor, epoch) = (Arc::clone(&self.advisor), request.epoch);
        let traffic = Arc::clone(&self.traffic);
        let done = Box::new(move |answer: Prepared| {
            traffic.add(epoch, answer.traffic);
            match answer.sample {
                Ok((_, spent)) => advisor.note_trials(request, &spent),
                Err(error) => {
                    tracing::debug!(%error, "forms of a sample cannot be tried");
                    advisor.note_failed_trials();
                }
            }
        });
        let fetch = self.peer.ask(&self.prefix, PeerRequest::Trials { request }, done);
        let mut trials = self.trials.lock();
        trials.push_back(fetch);
        // Older trials have been answered by now, or are too old to be useful.
        // Dropping a fetch cancels it, which calls out. So it happens after the lock is released.
        let old = if trials.len() > MAX_TRIALS { trials.pop_front() } else { None };
        drop(trials);
        drop(old);
    }
}

impl Needs for Near {
    fn needs(&self, request: SampleRequest, reading: Reading) -> Result<Vec<ReadTarget>, StoreError> {
        if self.peer.refuses(&self.prefix) {
            return self.stored.needs(request, reading);
        }
        let form = if reading == Reading::Trimmed { self.advisor.form_of(request) } else { Form::RAW };
        // A raw volume is not requested from the preparer. `load` reads the stored file, if possible only the bytes of the crop.
        if form == Form::RAW && self.plan.loads_volumes() {
            self.try_forms(request);
            return Ok(Vec::new());
        }
        let bytes = self.advisor.expected_bytes(request, form);
        Ok(vec![ReadTarget::Sample { request, form, bytes, reading }])
    }

    fn renew(&self, target: &mut ReadTarget) {
        // A volume keeps its form, because a raw one would need no target at all: see `needs`.
        if let ReadTarget::Sample { request, form, bytes, reading: Reading::Trimmed } = target
            && !self.plan.loads_volumes()
        {
            *form = self.advisor.form_of(*request);
            *bytes = self.advisor.expected_bytes(*request, *form);
        }
    }

    fn fetch(&self, target: &ReadTarget, done: Done) -> Fetch {
        let ReadTarget::Sample { request, form, .. } = *target else { return self.stored.fetch(target, done) };
        self.try_forms(request);
        let advisor = Arc::clone(&self.advisor);
        let done = Box::new(move |answer: Prepared| {
            let bytes = answer.sample.map(|(bytes, spent)| {
                advisor.note(request, &spent, bytes.len() as u64);
                bytes
            });
            done(Answer { bytes, traffic: answer.traffic });
        });
        self.peer.ask(&self.prefix, PeerRequest::Sample { request, form, stored: self.listed_versions(request) }, done)
    }

    fn most_requests(&self) -> usize {
        MAX_REQUESTS
    }

    fn samples_ahead(&self) -> usize {
        if self.plan.loads_volumes() { VOLUMES_AHEAD } else { 2 * MAX_REQUESTS }
    }

    fn work_hint(&self, request: SampleRequest) -> WorkHint {
        self.stored.work_hint(request)
    }

    fn offload(&self) -> Option<OffloadReport> {
        Some(self.advisor.report())
    }

    fn load(&self, parts: &[Part], loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        let mut loading = loading;
        let Loading { request, reading, ref mut sample, ref mut workspace, metrics } = loading;
        let Self { plan, stored, peer, advisor, .. } = self;
        // Samples load at a steady rate, so this is a good moment to revise decisions. It returns at once if it is too early.
        advisor.observe(metrics, peer.bytes_per_second());
        let prepared = parts.iter().find_map(|part| match part.target {
            ReadTarget::Sample { request: of, form, .. } if of == request => Some((form, &part.bytes)),
            _ => None,
        });
        match prepared {
            Some((form, Ok(bytes))) if reading == Reading::Trimmed || form == Form::RAW => {
                let read = metrics.read.time(|| -> Result<bool, StoreError> {
                    // The length comes from the peer, so memory is reserved before it is allocated.
                    workspace.reserve(Packing::unpacked_bytes(bytes))?;
                    let Ok(record) = Packing::unpack(bytes) else { return Ok(false) };
                    let resume = Resume { plan, cut: form.cut, request };
                    Ok(record::read(&record, sample, resume, workspace)?.is_some())
                });
                if read? {
                    metrics.read.add_bytes(bytes.len());
                    metrics.traffic.add_candidate(advisor.name_of(form));
                    return Ok(form.cut);
                }
            }
            // If the server cannot prepare the sample (`Content`), it is loaded below. Any other error, such as a lost server,
            // would only occur again there.
            Some((_, Err(error))) if !matches!(**error, StoreError::Content { .. }) => {
                return Err(StoreError::from(Arc::clone(error)).into());
            }
            _ => {}
        }
        metrics.traffic.add_candidate(advisor.name_of(Form::RAW));
        // Policies other than `auto` read a raw volume whole.
        let reads_parts = plan.config().offload == Policy::Auto || reading != Reading::Trimmed;
        if !reads_parts && plan.loads_volumes() {
            loading.reading = Reading::Plain;
        }
        stored.load(parts, loading)
    }
}
