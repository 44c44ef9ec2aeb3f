//! The client's side of a storage server that prepares samples.
//!
//! In: requests of the engine. Out: samples, as they arrive. The server gets the plan before the first request. A server that no
//! longer knows the plan, because it was restarted or has dropped it, gets it again. Requests wait until the server has answered
//! the plan.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};

use feedline_data::store::{Fetch, Peer, PeerRequest, Prefix, Prepared, StoreError, Traffic};
use feedline_memory::{Mutex, MutexGuard};

use super::link::{Link, LinkCounts, LinkError, LinkTraffic, Pending};
use crate::wire::{Failure, Reply, Request, shortened};

/// How often a plan is sent again for one sample.
const MAX_RESENDS: u32 = 3;
/// The least time over which the speed of the link is averaged.
const SPEED_WINDOW: Duration = Duration::from_secs(1);

/// A server that prepares samples.
#[derive(Clone, Debug)]
pub(super) struct StoragePeer(Arc<PeerShared>);

struct PeerShared {
    link: Arc<Link>,
    /// `feedline://host:port`, for messages.
    server: String,
    /// The plans that the server has or will get, by `Prefix::number`.
    plans: Mutex<HashMap<u128, PlanState>>,
    /// Number of plans sent so far.
    sent_plans: AtomicU64,
    speed: Mutex<Speed>,
}

/// The recent speed of the link.
#[derive(Default)]
struct Speed {
    /// When the current window started, with these counts. The first window starts with the link.
    measured_at: Option<Instant>,
    before: LinkCounts,
    /// Bytes per second in the window before.
    found: Option<f64>,
}

impl fmt::Debug for PeerShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoragePeer").field("server", &self.server).finish_non_exhaustive()
    }
}

/// The state of a plan at the server.
enum PlanState {
    /// It was sent, and the server has not answered.
    Sent {
        /// Which sending of a plan this is: the server may drop a plan, so the same plan may be sent again.
        number: u64,
        /// Kept, because dropping it would cancel the request. `None` until the request has been sent.
        pending: Option<Pending>,
        /// The requests that wait for the answer.
        waiting: Vec<Arc<Ask>>,
    },
    /// The server has opened it.
    Known,
    /// The server cannot open it.
    Refused(String),
}

/// A request of the engine for one sample.
struct Ask {
    /// The part of the plan that the server runs.
    prefix: Arc<Prefix>,
    peer_request: PeerRequest,
    state: Mutex<AskState>,
}

#[derive(Default)]
struct AskState {
    /// Receives the answer. `None` once the request is answered or cancelled.
    done: Option<Box<dyn FnOnce(Prepared) + Send>>,
    /// The request on the link. Dropping it cancels it.
    pending: Option<Pending>,
    /// The traffic of all attempts.
    traffic: Traffic,
    /// How often the server did not know the plan.
    unknown: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Ask {
    /// Whether it is neither answered nor cancelled.
    fn is_pending(&self) -> bool {
        lock(&self.state).done.is_some()
    }

    fn add_traffic(&self, LinkTraffic { bytes, retries }: LinkTraffic) {
        let mut state = lock(&self.state);
        state.traffic.bytes += bytes;
        state.traffic.requests += 1 + retries;
        state.traffic.retries += retries;
    }

    /// Hands the answer to the engine, unless the request is answered or cancelled already.
    fn end(&self, sample: Result<(Vec<u8>, feedline_data::store::ServerCost), StoreError>) {
        let mut state = lock(&self.state);
        let (done, traffic) = (state.done.take(), state.traffic);
        // The callback runs without the lock.
        drop(state);
        if let Some(done) = done {
            done(Prepared { sample, traffic });
        }
    }

    /// Counts an answer that the server does not know the plan. Returns whether the plan may be sent again. The number is limited,
    /// because a server with too many plans may drop it each time.
    fn may_resend_plan(&self) -> bool {
        let mut state = lock(&self.state);
        state.unknown += 1;
        state.unknown <= MAX_RESENDS
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
        Self(Arc::new(PeerShared {
            link,
            server: server.to_owned(),
            plans: Mutex::default(),
            sent_plans: AtomicU64::new(0),
            speed: Mutex::default(),
        }))
    }
}

impl PeerShared {
    /// Sends a request once the server knows the plan. Sends the plan first, if nobody has.
    fn begin(self: &Arc<Self>, ask: Arc<Ask>) {
        let number = ask.prefix.number;
        let mut plans = lock(&self.plans);
        match plans.get_mut(&number) {
            // Callbacks and the link are called without the lock, here and below.
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
                let sent = self.sent_plans.fetch_add(1, Ordering::Relaxed);
                plans.insert(number, PlanState::Sent { number: sent, pending: None, waiting: vec![ask] });
                drop(plans);
                self.send_plan(&prefix, sent);
            }
        }
    }

    /// Sends a plan whose state is `Sent` with this number.
    fn send_plan(self: &Arc<Self>, prefix: &Arc<Prefix>, sent: u64) {
        let Prefix { text, number, listing, .. } = &**prefix;
        let (number, shared) = (*number, Arc::clone(self));
        let request = Request::Plan { text: text.clone(), listing: *listing };
        let pending = self.link.begin(&request, Box::new(move |reply, _| shared.planned(number, &reply)));
        // The answer may have arrived already. Then `pending` has nothing to cancel. The plan may even have been sent again since:
        // storing this `pending` there would drop and so cancel the newer request.
        let mut plans = lock(&self.plans);
        let unneeded = match plans.get_mut(&number) {
            Some(PlanState::Sent { number, pending: kept, .. }) if *number == sent => kept.replace(pending),
            _ => Some(pending),
        };
        drop(plans);
        drop(unneeded);
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
            // Not answered. The next request sends the plan again.
            Err(_) => None,
        };
        let mut plans = lock(&self.plans);
        let old = match state {
            Some(state) => plans.insert(number, state),
            None => plans.remove(&number),
        };
        drop(plans);
        // Only the state `Sent` has waiting requests. They are sent now, or fail with the link's error.
        let Some(PlanState::Sent { waiting, .. }) = old else { return };
        for ask in waiting {
            match reply {
                Ok(_) => self.begin(ask),
                Err(error) => ask.end(Err(self.gone(error.clone()))),
            }
        }
    }

    /// Requests a sample. The server knows its plan.
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
        // The request may have been answered or cancelled before `begin` returned. Then `pending` is dropped, which cancels it.
        if state.done.is_some() {
            state.pending = Some(pending);
        }
    }

    /// Handles the server's answer to a request for a sample.
    fn prepared(self: &Arc<Self>, ask: Arc<Ask>, reply: Result<(Reply, Vec<u8>), LinkError>) {
        match reply {
            Ok((Reply::Prepared(spent), bytes)) if spent.answers(&ask.peer_request) => ask.end(Ok((bytes, spent))),
            Ok((Reply::Prepared(_), _)) => ask.end(Err(self.content("the server reported impossible costs"))),
            Ok((Reply::Failed { failure: Failure::UnknownPlan, .. }, _)) if ask.may_resend_plan() => {
                let number = ask.prefix.number;
                let mut plans = lock(&self.plans);
                // Another request may have got the same answer first, and have sent the plan again already.
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

    /// The error of one sample. After `StoreError::Content` the engine loads the sample in its stored form.
    fn content(&self, reason: &str) -> StoreError {
        StoreError::Content {
            path: self.server.clone(),
            problem: format!("cannot prepare this sample: {}", shortened(reason)),
        }
    }

    /// The error of a server that cannot be reached. The engine does not ask it again for this sample.
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
        // A window without enough traffic is not ended, so it grows until it has enough.
        if speed.measured_at.is_none_or(|measured_at| measured_at.elapsed() >= SPEED_WINDOW)
            && let Some(found) = now.since(&speed.before).bytes_per_second()
        {
            *speed = Speed { measured_at: Some(Instant::now()), before: now, found: Some(found) };
        }
        speed.found
    }
}
