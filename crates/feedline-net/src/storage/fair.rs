//! Schedules the requests and replies of all connections of a server.
//!
//! In: requests by connection. Out: one request at a time for a worker, from each connection in turn, so that a connection with
//! many requests does not starve the others; and replies to send. A worker never waits for a slow client or for memory. A
//! connection that does not take its replies gets no further requests served. A request whose reply has no room waits until others
//! were sent.
//!
//! Always true: pending requests are bounded per connection and in total. The memory of replies is bounded in total, with two
//! exceptions: replies that turn out longer than reserved, at most one per worker, and a single reply that is larger than all
//! memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::memory::NoMemory;
use feedline_memory::{Condvar, Mutex, MutexGuard};

use super::connection::Connection;
use super::permits::{Admission, Permits};
use crate::wire::Frame;

/// Upper limit of pending requests per connection. Further ones stay in the socket.
const MAX_REQUESTS: usize = 256;
/// Upper limit of bytes of pending requests per connection. The last one may exceed it. Beyond it no further request is read.
const MAX_REQUEST_BYTES: u64 = 1 << 20;
/// Longer requests need a permit before they are received.
const LONG_REQUEST_BYTES: u64 = 256 << 10;
/// Number of permits for long requests, for all connections together.
const LONG_REQUESTS: usize = 8;
/// Upper limit of reply bytes per connection. Beyond it no further request of the connection is served.
const MAX_REPLY_BYTES: u64 = 8 << 20;
/// How long a reply may take to send while other requests wait for its memory.
const MAX_SEND_TIME: Duration = Duration::from_secs(20);

/// The requests and replies of all connections. Each connection gets its turn (round robin).
#[derive(Debug)]
pub(super) struct FairQueue {
    /// Upper limit of the bytes of all replies: in preparation, queued or being sent.
    pub memory_bytes: u64,
    permits: Arc<Permits>,
    state: Mutex<FairState>,
    has_requests: Condvar,
}

/// The result of waiting for a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextReply {
    Reply(Frame),
    NotYet,
    /// The connection has ended.
    Ended,
}

/// A pending request, with its permit.
pub(super) type Request = (Frame, Admission);

#[derive(Debug, Default)]
struct FairState {
    next: u64,
    connections: BTreeMap<u64, Connection>,
    /// Connections with a request that can be served.
    turns: VecDeque<u64>,
    /// Connections whose next request waits for memory, and how much.
    waiting_for_memory: VecDeque<(u64, u64)>,
    /// Bytes of all replies.
    reserved_bytes: u64,
    is_closed: bool,
}

/// Memory for the reply to one request. The unused part is returned when this is dropped.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    fair: &'a FairQueue,
    number: u64,
    bytes: u64,
}

impl Reservation<'_> {
    /// Reserves memory before it is allocated. Fails if it is not free.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), NoMemory> {
        self.fair.state.lock().reserve(self.number, bytes, self.fair.memory_bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// The speed at which the client receives, in bytes per second, once enough was sent.
    pub(super) fn bytes_per_second(&self) -> Option<f64> {
        self.fair.state.lock().connections.get(&self.number)?.bytes_per_second()
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.fair.release(self.number, self.bytes);
    }
}

impl FairState {
    fn queue_turn(&mut self, number: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return false };
        // `has_turn` keeps a connection in the queue at most once, so each gets one request per round.
        let can_be_served = !connection.requests.is_empty()
            && connection.reply_bytes < MAX_REPLY_BYTES
            && !connection.has_turn
            && !connection.waits_for_memory;
        if can_be_served {
            connection.has_turn = true;
            self.turns.push_back(number);
        }
        can_be_served
    }

    /// Whether this many bytes are free for a connection. A connection that already has replies gets memory only while all
    /// connections together use at most half of it.
    fn has_room(&self, connection: &Connection, bytes: u64, limit: u64) -> bool {
        let limit = if connection.reply_bytes == 0 { limit } else { limit / 2 };
        // With nothing reserved, any size is granted. Otherwise a reply larger than the limit could never be made.
        self.reserved_bytes == 0 || self.reserved_bytes.saturating_add(bytes) <= limit
    }

    fn reserve(&mut self, number: u64, bytes: u64, limit: u64) -> Result<(), NoMemory> {
        // Replies to a client that is gone are dropped.
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        if !self.has_room(connection, bytes, limit) {
            return Err(NoMemory::NotNow { bytes });
        }
        self.add(number, bytes);
        Ok(())
    }

    fn add(&mut self, number: u64, bytes: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.reply_bytes += bytes;
            self.reserved_bytes += bytes;
        }
    }

    fn subtract(&mut self, number: u64, bytes: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.reply_bytes -= bytes;
            self.reserved_bytes -= bytes;
        }
    }

    /// Resumes requests whose memory is free now. They keep their order, but a request that fits may overtake one that does not.
    /// Returns whether a connection got a turn.
    fn resume_waiting(&mut self, limit: u64) -> bool {
        let waiting = std::mem::take(&mut self.waiting_for_memory);
        // Each waiting request is compared with the memory that is free now. Several may be woken for the same bytes; those that
        // find it taken wait again.
        let (woken, still_waiting): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(|(number, bytes)| {
            self.connections.get(number).is_none_or(|connection| self.has_room(connection, *bytes, limit))
        });
        self.waiting_for_memory = still_waiting;
        let mut has_woken = false;
        for (number, _) in woken {
            if let Some(connection) = self.connections.get_mut(&number) {
                connection.waits_for_memory = false;
            }
            has_woken |= self.queue_turn(number);
        }
        has_woken
    }
}

impl FairQueue {
    /// Without connections. Replies take up to `memory_bytes`.
    pub(super) fn new(memory_bytes: u64) -> Self {
        let permits = Arc::new(Permits::new(LONG_REQUESTS));
        Self { memory_bytes, permits, state: Mutex::default(), has_requests: Condvar::new() }
    }

    /// Adds a connection. Returns its number, or `None` if there are already `most` of them, or if the server is closed.
    pub(super) fn enter(&self, most: usize) -> Option<u64> {
        let mut state = self.state.lock();
        if state.is_closed || state.connections.len() >= most {
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.connections.insert(number, Connection::default());
        Some(number)
    }

    /// Removes a connection and drops everything queued for it.
    pub(super) fn leave(&self, number: u64) {
        let mut state = self.state.lock();
        let Some(left) = state.connections.remove(&number) else { return };
        // Its replies are dropped with it. Reservations of its running requests are ignored later, because the connection is gone.
        state.reserved_bytes -= left.reply_bytes;
        state.resume_waiting(self.memory_bytes);
        drop(state);
        self.has_requests.notify_all();
        left.changed.notify_all();
    }

    /// Waits until a request of this size may be received. `None` if the connection has ended meanwhile.
    pub(super) fn admit(&self, number: u64, bytes: u64) -> Option<Admission> {
        if bytes <= LONG_REQUEST_BYTES {
            return Some(Admission::Free);
        }
        self.permits.take(|| self.state.lock().connections.contains_key(&number)).map(Admission::Permitted)
    }

    /// Adds a request. Waits while there are too many. Returns whether the connection continues.
    pub(super) fn put_request(&self, number: u64, request: Frame, admission: Admission) -> bool {
        let mut state = self.state.lock();
        loop {
            let Some(connection) = state.connections.get_mut(&number) else { return false };
            if connection.requests.len() < MAX_REQUESTS && connection.request_bytes < MAX_REQUEST_BYTES {
                connection.request_bytes += request.wire_bytes();
                connection.requests.push_back((request, admission));
                let has_turn = state.queue_turn(number);
                drop(state);
                if has_turn {
                    self.has_requests.notify_one();
                }
                return true;
            }
            let changed = Arc::clone(&connection.changed);
            changed.wait(&mut state);
        }
    }

    /// Waits for the next request, from each connection in turn. `None` once the server is closed.
    pub(super) fn next_request(&self) -> Option<(Reservation<'_>, Request)> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            while let Some(number) = state.turns.pop_front() {
                let Some(connection) = state.connections.get_mut(&number) else { continue };
                connection.has_turn = false;
                // A connection with a turn always has a request. This is only a safeguard.
                let Some(request) = connection.requests.pop_front() else { continue };
                connection.request_bytes -= request.0.wire_bytes();
                connection.changed.notify_all();
                // `put_request` notifies only for the first request of a burst. So a worker that leaves more behind wakes the next.
                let has_more = state.queue_turn(number) || !state.turns.is_empty();
                drop(state);
                if has_more {
                    self.has_requests.notify_one();
                }
                return Some((Reservation { fair: self, number, bytes: 0 }, request));
            }
            self.has_requests.wait(&mut state);
        }
    }

    /// Puts a request back until `bytes` are free for its reply.
    pub(super) fn put_back(&self, reservation: Reservation<'_>, request: Request, bytes: u64) {
        let number = reservation.number;
        drop(reservation);
        let mut state = self.state.lock();
        let Some(connection) = state.connections.get_mut(&number) else { return };
        connection.request_bytes += request.0.wire_bytes();
        // At the front, so that a connection's requests stay in order.
        connection.requests.push_front(request);
        let waits_already = std::mem::replace(&mut connection.waits_for_memory, true);
        if !waits_already {
            state.waiting_for_memory.push_back((number, bytes));
        }
        // The memory may have become free since.
        let has_woken = state.resume_waiting(self.memory_bytes);
        drop(state);
        if has_woken {
            self.has_requests.notify_all();
        }
    }

    /// Queues a reply.
    pub(super) fn put_reply(&self, mut reservation: Reservation<'_>, reply: Frame) {
        let (number, reserved) = (reservation.number, std::mem::take(&mut reservation.bytes));
        let mut state = self.state.lock();
        // The reservation was an estimate. From here on the reply counts with its real length.
        state.subtract(number, reserved);
        state.add(number, reply.wire_bytes());
        let Some(connection) = state.connections.get_mut(&number) else { return };
        connection.replies.push_back(reply);
        connection.changed.notify_all();
        self.wake(state, number);
    }

    /// Waits up to `within` for the next reply to send.
    pub(super) fn next_reply(&self, number: u64, within: Duration) -> NextReply {
        let until = Instant::now() + within;
        let mut state = self.state.lock();
        loop {
            let Some(connection) = state.connections.get_mut(&number) else { return NextReply::Ended };
            if let Some(reply) = connection.replies.pop_front() {
                // Starts the clock of `must_yield`.
                connection.sending_since = Some(Instant::now());
                return NextReply::Reply(reply);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return NextReply::NotYet;
            }
            let changed = Arc::clone(&connection.changed);
            changed.wait_for(&mut state, left);
        }
    }

    /// Whether a connection takes its reply so slowly that it must give way to requests that wait for memory.
    pub(super) fn must_yield(&self, number: u64) -> bool {
        let state = self.state.lock();
        let since = state.connections.get(&number).and_then(|connection| connection.sending_since);
        !state.waiting_for_memory.is_empty() && since.is_some_and(|since| since.elapsed() > MAX_SEND_TIME)
    }

    /// Records a reply that was sent.
    pub(super) fn sent(&self, number: u64, bytes: u64, took: Duration) {
        let mut state = self.state.lock();
        state.subtract(number, bytes);
        if let Some(connection) = state.connections.get_mut(&number) {
            connection.add_sent(bytes, took);
        }
        self.wake(state, number);
    }

    fn release(&self, number: u64, bytes: u64) {
        if bytes > 0 {
            let mut state = self.state.lock();
            state.subtract(number, bytes);
            self.wake(state, number);
        }
    }

    /// Resumes a connection and requests that wait for memory, after some became free.
    fn wake(&self, mut state: MutexGuard<'_, FairState>, number: u64) {
        let has_woken = state.resume_waiting(self.memory_bytes);
        let has_turn = state.queue_turn(number);
        drop(state);
        if has_woken || has_turn {
            self.has_requests.notify_all();
        }
    }

    /// Number of connections with pending requests or replies.
    pub(super) fn busy(&self) -> usize {
        let is_busy = |connection: &&Connection| !connection.requests.is_empty() || connection.reply_bytes > 0;
        self.state.lock().connections.values().filter(is_busy).count()
    }

    /// Number of connections, and memory of their replies.
    pub(super) fn usage(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.connections.len(), state.reserved_bytes)
    }

    /// Removes all connections. Every waiting thread returns.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        // Without connections every waiting thread finds that its own is gone, and ends.
        let left = std::mem::take(&mut state.connections);
        drop(state);
        self.has_requests.notify_all();
        for connection in left.into_values() {
            connection.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
