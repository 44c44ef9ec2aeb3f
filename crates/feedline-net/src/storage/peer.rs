//! A storage server that prepares samples.
//!
//! In: requests of the engine. Out: samples, as they arrive. A server that does not know the plan, because it was restarted,
//! receives the plan again. Requests wait for that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use feedline_data::store::{Fetch, Peer, PeerRequest, Prefix, Prepared, StoreError, Traffic};
use feedline_memory::{Mutex, MutexGuard};

use super::link::{Link, LinkCounts, LinkError, LinkTraffic, Pending};
use crate::wire::{Failure, Reply, Request, shortened};

/// Upper limit of times to send a plan again for one sample.
const MAX_UNKNOWN: u32 = 3;
/// The time over which the speed of the link is averaged.
const SPEED_WINDOW: Duration = Duration::from_secs(1);

/// A server that prepares samples.
#[derive(Clone, Debug)]
pub(super) struct StoragePeer(Arc<PeerShared>);

struct PeerShared {
    link: Arc<Link>,
    /// `feedline://host:port`, for messages.
    server: String,
    plans: Mutex<HashMap<u128, PlanState>>,
    speed: Mutex<Speed>,
}

/// The recent speed of the link.
#[derive(Default)]
struct Speed {
    measured_at: Option<Instant>,
    before: LinkCounts,
    found: Option<f64>,
}

impl fmt::Debug for PeerShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoragePeer").field("server", &self.server).finish_non_exhaustive()
    }
}

/// The state of a plan at the server.
enum PlanState {
    /// It was sent. These requests wait for the answer.
    Sent {
        _pending: Option<Pending>,
        waiting: Vec<Arc<Ask>>,
    },
    Known,
    /// The server cannot open it.
    Refused(String),
}

/// A request of the engine.
struct Ask {
    prefix: Arc<Prefix>,
    peer_request: PeerRequest,
    state: Mutex<AskState>,
}

#[derive(Default)]
struct AskState {
    /// `None` once it is answered or cancelled.
    done: Option<Box<dyn FnOnce(Prepared) + Send>>,
    pending: Option<Pending>,
    traffic: Traffic,
    /// How often the server did not know the plan.
    unknown: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Ask {
    fn is_pending(&self) -> bool {
        lock(&self.state).done.is_some()
    }

    fn add_traffic(&self, LinkTraffic { bytes, retries }: LinkTraffic) {
        let mut state = lock(&self.state);
        state.traffic.bytes += bytes;
        state.traffic.requests += 1 + retries;
        state.traffic.retries += retries;
    }

    fn end(&self, sample: Result<(Vec<u8>, feedline_data::store::ServerCost), StoreError>) {
        let mut state = lock(&self.state);
        let (done, traffic) = (state.done.take(), state.traffic);
        drop(state);
        if let Some(done) = done {
            done(Prepared { sample, traffic });
        }
    }

    /// Whether the plan may be sent again. A server that forgets it at once has too many plans.
    fn may_resend_plan(&self) -> bool {
        let mut state = lock(&self.state);
        state.unknown += 1;
        state.unknown <= MAX_UNKNOWN
    }

    fn cancel(&self) {
        let mut state = lock(&self.state);
        // Dropped without the lock: dropping `pending` takes the lock of the link.
        let dropped = (state.done.take(), state.pending.take());
        drop(state);
        drop(dropped);
    }
}

impl StoragePeer {
    /// The server that `link` leads to.
    pub(super) fn new(link: Arc<Link>, server: &str) -> Self {
        Self(Arc::new(PeerShared { link, server: server.to_owned(), plans: Mutex::default(), speed: Mutex::default() }))
    }
}

impl PeerShared {
    /// Sends the request once the server knows the plan.
    fn begin(self: &Arc<Self>, ask: Arc<Ask>) {
        let number = ask.prefix.number;
        let mut plans = lock(&self.plans);
        match plans.get_mut(&number) {
            Some(PlanState::Known) => {
                drop(plans);
                self.prepare(&ask);
            }
            Some(PlanState::Sent { waiting, .. }) => waiting.push(ask),
            Some(PlanState::Refused(reason)) => {
                let error = self.content(reason);
                drop(plans);
                ask.end(Err(error));
            }
            None => {
                let prefix = Arc::clone(&ask.prefix);
                plans.insert(number, PlanState::Sent { _pending: None, waiting: vec![ask] });
                drop(plans);
                self.send_plan(&prefix);
            }
        }
    }

    fn send_plan(self: &Arc<Self>, prefix: &Arc<Prefix>) {
        let Prefix { text, number, listing, .. } = &**prefix;
        let (number, shared) = (*number, Arc::clone(self));
        let request = Request::Plan { text: text.clone(), listing: *listing };
        let pending = self.link.begin(&request, Box::new(move |reply, _| shared.planned(number, &reply)));
        // The answer may have arrived already.
        if let Some(PlanState::Sent { _pending, .. }) = lock(&self.plans).get_mut(&number) {
            *_pending = Some(pending);
        }
    }

    /// Handles the server's answer to a plan.
    fn planned(self: &Arc<Self>, number: u128, reply: &Result<(Reply, Vec<u8>), LinkError>) {
        let state = match reply {
            Ok((Reply::Planned, _)) => Some(PlanState::Known),
            Ok((Reply::Failed { reason, .. }, _)) => {
                tracing::warn!(
                    server = self.server,
                    reason = shortened(reason),
                    "the storage server cannot open the plan, so it prepares no samples"
                );
                Some(PlanState::Refused(reason.clone()))
            }
            Ok(_) => Some(PlanState::Refused("the server sent an unexpected kind of answer".to_owned())),
            Err(_) => None,
        };
        let mut plans = lock(&self.plans);
        let old = match state {
            Some(state) => plans.insert(number, state),
            None => plans.remove(&number),
        };
        drop(plans);
        // Only the transition out of `Sent` has waiting requests.
        let Some(PlanState::Sent { waiting, _pending }) = old else { return };
        for ask in waiting {
            match reply {
                Ok(_) => self.begin(ask),
                Err(error) => ask.end(Err(self.gone(error.clone()))),
            }
        }
    }

    fn prepare(self: &Arc<Self>, ask: &Arc<Ask>) {
        if !ask.is_pending() {
            return;
        }
        let request = Request::Prepare { plan: ask.prefix.number, peer_request: ask.peer_request.clone() };
        let (shared, of_answer) = (Arc::clone(self), Arc::clone(ask));
        let pending = self.link.begin(
            &request,
            Box::new(move |reply, traffic| {
                of_answer.add_traffic(traffic);
                shared.prepared(of_answer, reply);
            }),
        );
        let mut state = lock(&ask.state);
        // The answer may have come, or the request may have been cancelled, before `begin` returned.
        if state.done.is_some() {
            state.pending = Some(pending);
        }
    }

    fn prepared(self: &Arc<Self>, ask: Arc<Ask>, reply: Result<(Reply, Vec<u8>), LinkError>) {
        match reply {
            Ok((Reply::Prepared(spent), bytes)) if spent.answers(&ask.peer_request) => ask.end(Ok((bytes, spent))),
            Ok((Reply::Prepared(_), _)) => ask.end(Err(self.content("the server reported impossible costs"))),
            Ok((Reply::Failed { failure: Failure::UnknownPlan, .. }, _)) if ask.may_resend_plan() => {
                let number = ask.prefix.number;
                let mut plans = lock(&self.plans);
                // Another request may have noticed it first and have sent the plan again already.
                if matches!(plans.get(&number), Some(PlanState::Known)) {
                    plans.remove(&number);
                }
                drop(plans);
                self.begin(ask);
            }
            Ok((Reply::Failed { reason, .. }, _)) => ask.end(Err(self.content(&reason))),
            Ok(_) => ask.end(Err(self.content("the server sent an unexpected kind of answer"))),
            Err(error) => ask.end(Err(self.gone(error))),
        }
    }

    /// A sample that the server cannot prepare may still be readable in its stored form.
    fn content(&self, reason: &str) -> StoreError {
        StoreError::Content {
            path: self.server.clone(),
            problem: format!("cannot prepare this sample: {}", shortened(reason)),
        }
    }

    fn gone(&self, error: LinkError) -> StoreError {
        StoreError::Read { path: self.server.clone(), source: io::Error::other(error) }
    }
}

impl Peer for StoragePeer {
    fn ask(&self, prefix: &Arc<Prefix>, peer_request: PeerRequest, done: Box<dyn FnOnce(Prepared) + Send>) -> Fetch {
        let state = Mutex::new(AskState { done: Some(done), ..AskState::default() });
        let ask = Arc::new(Ask { prefix: Arc::clone(prefix), peer_request, state });
        self.0.begin(Arc::clone(&ask));
        Fetch::new(move || ask.cancel())
    }

    fn refuses(&self, prefix: &Prefix) -> bool {
        matches!(lock(&self.0.plans).get(&prefix.number), Some(PlanState::Refused(_)))
    }

    fn bytes_per_second(&self) -> Option<f64> {
        let mut speed = lock(&self.0.speed);
        let now = self.0.link.counts();
        // A window without enough traffic keeps its start, so it grows until it has enough.
        if speed.measured_at.is_none_or(|measured_at| measured_at.elapsed() >= SPEED_WINDOW)
            && let Some(found) = now.since(&speed.before).bytes_per_second()
        {
            *speed = Speed { measured_at: Some(Instant::now()), before: now, found: Some(found) };
        }
        speed.found
    }
}
