//! What waits for replies, and the thread that keeps the connection.
//!
//! The keeper connects when something is to be sent, sends, and asks again after a connection broke, with pauses that grow. It
//! ends requests with an error once the server was gone for the time it may be. It alone writes, so nobody who asks is ever
//! kept by a slow server.
//!
//! Always true: a request is told its end once; no lock is held while it is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::connection::Connection;
use super::{LONG_BYTES, LinkCounters, LinkDone, LinkError, LinkTerms, LinkTraffic};
use crate::wire::{Arrival, Frame, Request, Sequence, WireError};

/// How long a server may send nothing at all while it is asked for something.
const SILENCE: Duration = Duration::from_mins(1);
/// How long one reply may take while others come.
const LONGEST_REPLY: Duration = Duration::from_mins(10);
/// Pauses between attempts: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often a server that is asked for something is told that the client waits: this shows whether a request was lost.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// As much is written at once when many requests wait.
const WRITE_BYTES: u64 = 64 << 10;

/// Requests under way, in the process that asks.
pub(super) struct Talk {
    process: u32,
    terms: Arc<LinkTerms>,
    counts: Arc<LinkCounters>,
    state: Mutex<TalkState>,
    changed: Condvar,
}

struct TalkState {
    /// By number, so in the order of asking.
    waiting: BTreeMap<u64, PendingRequest>,
    /// Those that are to be sent, or sent again.
    unsent: VecDeque<u64>,
    connection: Option<Arc<Connection>>,
    /// When something was sent last.
    spoken: Instant,
    /// Not before this may the next connection be tried; and the pause after that, if it fails.
    next_try: Instant,
    pause: Duration,
    has_keeper: bool,
    is_closed: bool,
}

struct PendingRequest {
    request: Arc<Frame>,
    done: LinkDone,
    /// When it was sent last.
    sent: Option<Instant>,
    attempts: u32,
    /// When what has not ended since went wrong first.
    trouble: Option<Instant>,
    traffic: LinkTraffic,
}

/// What the keeper does next.
enum KeeperStep {
    Connect,
    Send(Arc<Connection>, Vec<Arc<Frame>>),
    SayAlive(Arc<Connection>),
    GiveUp(Arc<Connection>),
    Close,
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Talk").field("process", &self.process).finish_non_exhaustive()
    }
}

/// Ends requests.
fn tell(ended: impl IntoIterator<Item = PendingRequest>, error: impl Fn(&PendingRequest) -> LinkError) {
    for waiting in ended {
        let error = error(&waiting);
        (waiting.done)(Err(error), waiting.traffic);
    }
}

impl Talk {
    pub(super) fn new(terms: Arc<LinkTerms>, counts: Arc<LinkCounters>) -> Arc<Self> {
        let state = TalkState {
            waiting: BTreeMap::new(),
            unsent: VecDeque::new(),
            connection: None,
            spoken: Instant::now(),
            next_try: Instant::now(),
            pause: FIRST_PAUSE,
            has_keeper: false,
            is_closed: false,
        };
        let process = std::process::id();
        Arc::new(Self { process, terms, counts, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Whether its threads are here: a forked child has none.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Takes a request.
    pub(super) fn ask(self: &Arc<Self>, number: u64, request: &Request, done: LinkDone) {
        let frame = Frame::new(number, request, Vec::new());
        let mut state = self.state.lock();
        let started = if state.has_keeper { Ok(()) } else { self.start_keeper() };
        state.has_keeper |= started.is_ok();
        let request = match started.map_err(WireError::from).and(frame) {
            Ok(frame) => Arc::new(frame),
            Err(error) => {
                drop(state);
                let error = LinkError::Message { server: self.terms.server.clone(), source: Arc::new(error) };
                return done(Err(error), LinkTraffic::default());
            }
        };
        let traffic = LinkTraffic::default();
        let waiting = PendingRequest { request, done, sent: None, attempts: 0, trouble: None, traffic };
        state.waiting.insert(number, waiting);
        state.unsent.push_back(number);
        drop(state);
        self.changed.notify_one();
    }

    fn start_keeper(self: &Arc<Self>) -> io::Result<()> {
        let talk = Arc::clone(self);
        thread::Builder::new().name("feedline-link".to_owned()).spawn(move || talk.keep()).map(drop)
    }

    /// Nobody wants a reply any more.
    pub(super) fn forget(&self, number: u64) {
        if self.is_of_this_process() {
            let forgotten = self.state.lock().waiting.remove(&number);
            drop(forgotten);
        }
    }

    /// Ends the connection and its threads; who waits is not told.
    pub(super) fn close(&self) {
        if !self.is_of_this_process() {
            return;
        }
        let mut state = self.state.lock();
        state.is_closed = true;
        let (waiting, connection) = (std::mem::take(&mut state.waiting), state.connection.take());
        drop(state);
        self.changed.notify_one();
        if let Some(connection) = connection {
            connection.end();
        }
        drop(waiting);
    }

    fn keep(self: Arc<Self>) {
        loop {
            match self.next_step() {
                KeeperStep::Close => return,
                KeeperStep::Connect => self.connect(),
                KeeperStep::Send(connection, requests) => {
                    if let Err(error) = connection.send(requests.iter().map(|request| &**request)) {
                        self.lost(&connection, error.into());
                    }
                }
                KeeperStep::SayAlive(connection) => {
                    let alive = Frame::new(0, &Request::Alive, Vec::new());
                    if let Err(error) = alive.and_then(|alive| Ok(connection.send([&alive])?)) {
                        self.lost(&connection, error);
                    }
                }
                KeeperStep::GiveUp(connection) => {
                    self.lost(&connection, io::Error::from(io::ErrorKind::TimedOut).into());
                }
            }
        }
    }

    /// Waits until there is something to do.
    fn next_step(&self) -> KeeperStep {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return KeeperStep::Close;
            }
            let now = Instant::now();
            let until = match state.connection.clone() {
                None if state.waiting.is_empty() => None,
                None if state.next_try <= now => return KeeperStep::Connect,
                None => Some(state.next_try),
                Some(connection) if !state.unsent.is_empty() => {
                    return KeeperStep::Send(connection, self.write(&mut state, now));
                }
                Some(connection) => {
                    let oldest = state.waiting.values().next().and_then(|waiting| waiting.sent);
                    let until = oldest.map(|sent| (sent + LONGEST_REPLY).min(sent.max(connection.heard()) + SILENCE));
                    if until.is_some_and(|until| until <= now) {
                        return KeeperStep::GiveUp(connection);
                    }
                    let alive = oldest.map(|_| state.spoken + ALIVE_EVERY);
                    if alive.is_some_and(|alive| alive <= now) {
                        state.spoken = now;
                        return KeeperStep::SayAlive(connection);
                    }
                    until.min(alive)
                }
            };
            match until {
                None => self.changed.wait(&mut state),
                Some(until) => drop(self.changed.wait_until(&mut state, until)),
            }
        }
    }

    /// The next requests to be sent.
    fn write(&self, state: &mut TalkState, now: Instant) -> Vec<Arc<Frame>> {
        let (mut requests, mut bytes) = (Vec::new(), 0);
        state.spoken = now;
        while bytes < WRITE_BYTES
            && let Some(number) = state.unsent.pop_front()
        {
            let Some(waiting) = state.waiting.get_mut(&number) else { continue };
            bytes += waiting.request.wire_bytes();
            requests.push(Arc::clone(&waiting.request));
            waiting.attempts += 1;
            if waiting.sent.replace(now).is_some() {
                waiting.traffic.retries += 1;
                self.counts.retries.fetch_add(1, Ordering::Relaxed);
            }
        }
        requests
    }

    fn connect(self: &Arc<Self>) {
        let began = Instant::now();
        let started = Connection::open(&self.terms, &self.counts).and_then(|(connection, incoming)| {
            let connection = Arc::new(connection);
            let (talk, receiving) = (Arc::clone(self), Arc::clone(&connection));
            let name = "feedline-receive".to_owned();
            thread::Builder::new().name(name).spawn(move || talk.receive(&receiving, incoming))?;
            Ok(connection)
        });
        let mut state = self.state.lock();
        match started {
            Ok(connection) if state.is_closed => {
                drop(state);
                connection.end();
            }
            Ok(connection) => {
                state.unsent = state.waiting.keys().copied().collect();
                state.connection = Some(connection);
            }
            // To ask again would change nothing.
            Err(error @ (WireError::Refused(_) | WireError::Tls(_))) => {
                let server = self.terms.server.clone();
                let refused = match error {
                    WireError::Tls(problem) => LinkError::Tls { server, problem },
                    other => LinkError::Refused { server, reason: other.to_string() },
                };
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                tell(waiting.into_values(), |_| refused.clone());
            }
            Err(error) => {
                state.waiting.values_mut().for_each(|waiting| waiting.attempts += 1);
                self.failed(state, began, error);
            }
        }
    }

    /// Hands replies to whoever waits for them, until the connection ends.
    fn receive(&self, connection: &Arc<Connection>, incoming: Sequence) {
        let mut stream = connection.receiver(incoming, &self.counts);
        let error = loop {
            let before = stream.taken_bytes();
            match stream.next() {
                Ok((frame, arrival)) => self.answered(frame, arrival, stream.taken_bytes() - before),
                Err((request, error)) => {
                    let mut state = self.state.lock();
                    if let Some(waiting) = request.and_then(|request| state.waiting.get_mut(&request)) {
                        waiting.traffic.bytes += stream.taken_bytes() - before;
                    }
                    break error;
                }
            }
        };
        self.lost(connection, error);
    }

    fn answered(&self, frame: Frame, arrival: Arrival, bytes: u64) {
        if bytes >= LONG_BYTES {
            let add = |counter: &AtomicU64, more: u64| counter.fetch_add(more, Ordering::Relaxed);
            add(&self.counts.long_bytes, bytes);
            add(&self.counts.long_nanoseconds, arrival.time.as_nanos() as u64);
            add(&self.counts.telling_bytes, arrival.later_bytes);
            add(&self.counts.telling_nanoseconds, arrival.later_time.as_nanos() as u64);
        }
        let mut state = self.state.lock();
        state.pause = FIRST_PAUSE;
        let waiting = state.waiting.remove(&frame.request);
        drop(state);
        // Without, nobody wants it any more.
        let Some(PendingRequest { done, mut traffic, .. }) = waiting else { return };
        traffic.bytes += bytes;
        let server = || self.terms.server.clone();
        let reply = frame.message().map_err(|error| LinkError::Message { server: server(), source: Arc::new(error) });
        done(reply.map(|reply| (reply, frame.bytes)), traffic);
    }

    /// A connection has ended, or is to end.
    fn lost(&self, connection: &Arc<Connection>, error: WireError) {
        connection.end();
        let mut state = self.state.lock();
        if state.connection.take_if(|kept| Arc::ptr_eq(kept, connection)).is_some() {
            self.failed(state, Instant::now(), error);
        }
    }

    /// Goes on after an attempt that began at `since` has failed; ends the requests that were patient for long enough.
    fn failed(&self, mut state: MutexGuard<'_, TalkState>, since: Instant, error: WireError) {
        let (now, pause) = (Instant::now(), state.pause);
        state.next_try = now + pause;
        state.pause = (pause * 2).min(LONGEST_PAUSE);
        state.unsent.clear();
        for waiting in state.waiting.values_mut() {
            waiting.trouble.get_or_insert(since);
        }
        let troubled = |waiting: &PendingRequest| waiting.trouble.map_or(Duration::ZERO, |trouble| now - trouble);
        let patience = self.terms.patience;
        let ended: Vec<_> = state.waiting.extract_if(.., |_, waiting| troubled(waiting) + pause > patience).collect();
        drop(state);
        self.changed.notify_one();
        tracing::debug!(%error, server = self.terms.server, "a connection has ended");
        let source = Arc::new(error);
        let gone = |waiting: &PendingRequest| LinkError::Gone {
            server: self.terms.server.clone(),
            seconds: troubled(waiting).as_secs_f64(),
            attempts: waiting.attempts,
            source: Arc::clone(&source),
        };
        tell(ended.into_iter().map(|(_, waiting)| waiting), gone);
    }
}
