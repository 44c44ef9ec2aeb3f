//! The pending requests of a link, and the thread that keeps its connection.
//!
//! The keeper connects when there is something to send, sends, and repeats requests after a connection broke, with growing pauses.
//! It fails requests once the server has been unreachable for too long. Only the keeper writes, so a slow server never blocks a
//! caller.
//!
//! Always true: each request ends once, and no lock is held while its callback runs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use feedline_memory::{Condvar, Mutex, MutexGuard};

use super::connection::Connection;
use super::{LONG_BYTES, LinkCounters, LinkDone, LinkError, LinkTerms, LinkTraffic};
use crate::wire::{Arrival, Frame, Request, Sequence, WireError};

/// How long a server may send nothing while requests are pending.
const SILENCE: Duration = Duration::from_mins(1);
/// How long one reply may take, even while others arrive.
const LONGEST_REPLY: Duration = Duration::from_mins(10);
/// The first and the longest pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Interval between signs of life to a server with pending requests. Frames are numbered, so the server notices that an earlier
/// frame was lost.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// Upper limit of bytes to write at once.
const WRITE_BYTES: u64 = 64 << 10;

/// Requests in flight, in the process that sent them.
pub(super) struct Talk {
    process: u32,
    terms: Arc<LinkTerms>,
    counts: Arc<LinkCounters>,
    state: Mutex<TalkState>,
    changed: Condvar,
}

struct TalkState {
    /// Requests without a reply, by number: the oldest comes first.
    waiting: BTreeMap<u64, PendingRequest>,
    /// The numbers of requests to send, or to send again. Some may have been cancelled.
    unsent: VecDeque<u64>,
    connection: Option<Arc<Connection>>,
    /// When something was last sent.
    last_sent: Instant,
    /// The earliest time of the next attempt to connect, and the pause after it if it fails.
    next_try: Instant,
    pause: Duration,
    has_keeper: bool,
    is_closed: bool,
}

struct PendingRequest {
    request: Arc<Frame>,
    done: LinkDone,
    /// When it was last sent.
    sent: Option<Instant>,
    attempts: u32,
    /// When the first failed attempt began. Never reset, because a reply ends the request.
    failing_since: Option<Instant>,
    traffic: LinkTraffic,
}

/// The next action of the keeper. `GiveUp` gives up the connection, not its requests.
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

/// Ends requests with an error.
fn fail_all(ended: impl IntoIterator<Item = PendingRequest>, error: impl Fn(&PendingRequest) -> LinkError) {
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
            last_sent: Instant::now(),
            next_try: Instant::now(),
            pause: FIRST_PAUSE,
            has_keeper: false,
            is_closed: false,
        };
        let process = std::process::id();
        Arc::new(Self { process, terms, counts, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Whether its threads exist in this process. A forked child has none.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Adds a request.
    pub(super) fn ask(self: &Arc<Self>, number: u64, request: &Request, done: LinkDone) {
        let frame = Frame::new(number, request, Vec::new());
        let mut state = self.state.lock();
        // The thread starts with the first request, so a link that is never used costs nothing.
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
        let waiting = PendingRequest { request, done, sent: None, attempts: 0, failing_since: None, traffic };
        state.waiting.insert(number, waiting);
        state.unsent.push_back(number);
        drop(state);
        self.changed.notify_one();
    }

    fn start_keeper(self: &Arc<Self>) -> io::Result<()> {
        let talk = Arc::clone(self);
        thread::Builder::new().name("feedline-link".to_owned()).spawn(move || talk.keep()).map(drop)
    }

    /// Cancels a request.
    pub(super) fn cancel(&self, number: u64) {
        if self.is_of_this_process() {
            // The callback may own large buffers or call back into this link. It is dropped without the lock.
            let cancelled = self.state.lock().waiting.remove(&number);
            drop(cancelled);
        }
    }

    /// Ends the connection and its threads without calling callbacks.
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

    /// The loop of the keeper thread.
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

    /// Blocks until there is something to do.
    fn next_step(&self) -> KeeperStep {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return KeeperStep::Close;
            }
            let now = Instant::now();
            let until = match state.connection.clone() {
                // Without requests there is no reason to connect. Waits for `ask` without a time limit.
                None if state.waiting.is_empty() => None,
                None if state.next_try <= now => return KeeperStep::Connect,
                None => Some(state.next_try),
                Some(connection) if !state.unsent.is_empty() => {
                    return KeeperStep::Send(connection, self.write(&mut state, now));
                }
                Some(connection) => {
                    // `unsent` is empty, so every pending request was sent. Two limits hold for the oldest one: its own age, and
                    // the time in which the server has sent nothing at all.
                    let oldest = state.waiting.values().next().and_then(|waiting| waiting.sent);
                    let until = oldest.map(|sent| (sent + LONGEST_REPLY).min(sent.max(connection.heard()) + SILENCE));
                    if until.is_some_and(|until| until <= now) {
                        return KeeperStep::GiveUp(connection);
                    }
                    let alive = oldest.map(|_| state.last_sent + ALIVE_EVERY);
                    if alive.is_some_and(|alive| alive <= now) {
                        state.last_sent = now;
                        return KeeperStep::SayAlive(connection);
                    }
                    // Both are `Some` if a request is pending, otherwise both are `None`. `None` would be the minimum of the two.
                    until.min(alive)
                }
            };
            match until {
                None => self.changed.wait(&mut state),
                Some(until) => self.changed.wait_until(&mut state, until),
            }
        }
    }

    /// The next requests to send.
    fn write(&self, state: &mut TalkState, now: Instant) -> Vec<Arc<Frame>> {
        let (mut requests, mut bytes) = (Vec::new(), 0);
        state.last_sent = now;
        while bytes < WRITE_BYTES
            && let Some(number) = state.unsent.pop_front()
        {
            // Cancelled requests are only removed from `waiting`. They are skipped here.
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
            // `close` came while this thread connected. It found no connection to end, so it is ended here.
            Ok(connection) if state.is_closed => {
                drop(state);
                connection.end();
            }
            Ok(connection) => {
                // A new connection knows none of the pending requests, so all are sent again, oldest first.
                state.unsent = state.waiting.keys().copied().collect();
                state.connection = Some(connection);
            }
            // A retry would not help.
            Err(error @ (WireError::Refused(_) | WireError::Tls(_))) => {
                let server = self.terms.server.clone();
                let refused = match error {
                    WireError::Tls(problem) => LinkError::Tls { server, problem },
                    other => LinkError::Refused { server, reason: other.to_string() },
                };
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                fail_all(waiting.into_values(), |_| refused.clone());
            }
            Err(error) => {
                // A failed connection counts as an attempt of every pending request.
                state.waiting.values_mut().for_each(|waiting| waiting.attempts += 1);
                self.failed(state, began, error);
            }
        }
    }

    /// Passes replies to their callbacks until the connection ends.
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
            add(&self.counts.piecewise_bytes, arrival.later_bytes);
            add(&self.counts.piecewise_nanoseconds, arrival.later_time.as_nanos() as u64);
        }
        let mut state = self.state.lock();
        // A reply shows that the server works again, so the backoff starts over.
        state.pause = FIRST_PAUSE;
        let waiting = state.waiting.remove(&frame.request);
        drop(state);
        // Otherwise the request was cancelled.
        let Some(PendingRequest { done, mut traffic, .. }) = waiting else { return };
        traffic.bytes += bytes;
        let server = || self.terms.server.clone();
        let reply = frame.message().map_err(|error| LinkError::Message { server: server(), source: Arc::new(error) });
        done(reply.map(|reply| (reply, frame.bytes)), traffic);
    }

    /// Handles the end of a connection.
    fn lost(&self, connection: &Arc<Connection>, error: WireError) {
        connection.end();
        let mut state = self.state.lock();
        // Sender and receiver may both report the same broken connection. Only the first report counts.
        if state.connection.take_if(|kept| Arc::ptr_eq(kept, connection)).is_some() {
            self.failed(state, Instant::now(), error);
        }
    }

    /// Schedules the next attempt, after one that began at `since` failed. Fails requests that have waited too long.
    fn failed(&self, mut state: MutexGuard<'_, TalkState>, since: Instant, error: WireError) {
        // Exponential backoff. A request fails now if the next attempt would come after its patience has ended.
        let (now, pause) = (Instant::now(), state.pause);
        state.next_try = now + pause;
        state.pause = (pause * 2).min(LONGEST_PAUSE);
        // `connect` queues all pending requests again.
        state.unsent.clear();
        for waiting in state.waiting.values_mut() {
            waiting.failing_since.get_or_insert(since);
        }
        let failing_time = |waiting: &PendingRequest| waiting.failing_since.map_or(Duration::ZERO, |since| now - since);
        let patience = self.terms.patience;
        let ended: Vec<_> =
            state.waiting.extract_if(.., |_, waiting| failing_time(waiting) + pause > patience).collect();
        drop(state);
        self.changed.notify_one();
        tracing::debug!(%error, server = self.terms.server, "lost, or could not open, the connection to a storage server");
        let source = Arc::new(error);
        let gone = |waiting: &PendingRequest| LinkError::Gone {
            server: self.terms.server.clone(),
            seconds: failing_time(waiting).as_secs_f64(),
            attempts: waiting.attempts,
            source: Arc::clone(&source),
        };
        fail_all(ended.into_iter().map(|(_, waiting)| waiting), gone);
    }
}
