//! Requests and replies of all connections of a server.
//!
//! In: requests, by connection. Out: one request at a time for a worker, from each connection in turn, so that one with many
//! requests does not starve the others; and replies for whoever sends them. A worker never waits for a slow client: a
//! connection whose replies are not taken gets no further requests done.
//!
//! Always true: requests that wait and bytes of replies that wait are bounded for each connection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::wire::Frame;

/// Requests of a connection that wait; further ones stay in the socket.
const MOST_REQUESTS: usize = 256;
/// Bytes of such requests beyond which no further one is taken.
const MOST_REQUEST_BYTES: u64 = 16 << 20;
/// Bytes of replies of a connection beyond which no further request of it is done.
const MOST_REPLY_BYTES: u64 = 8 << 20;

/// Bytes that have to be sent before their speed is told.
const TELLING_BYTES: u64 = 256 << 10;

/// Bytes after which those that were sent earlier count less.
const LATE_BYTES: u64 = 16 << 20;

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Fair {
    state: Mutex<State>,
    has_requests: Condvar,
}

/// What a wait for a reply gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Reply(Frame),
    NotYet,
    /// The connection has ended.
    Ended,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    connections: BTreeMap<u64, Connection>,
    /// Connections of which a request can be done.
    turns: VecDeque<u64>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Connection {
    requests: VecDeque<Frame>,
    request_bytes: u64,
    replies: VecDeque<Frame>,
    reply_bytes: u64,
    /// What was sent of late, and the time that took: a link that is slow makes it long.
    sent_bytes: u64,
    sending: Duration,
    /// Whether it is among those of which a request can be done.
    has_turn: bool,
    changed: Arc<Condvar>,
}

impl State {
    fn give_turn(&mut self, number: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return false };
        let can = !connection.requests.is_empty() && connection.reply_bytes < MOST_REPLY_BYTES && !connection.has_turn;
        if can {
            connection.has_turn = true;
            self.turns.push_back(number);
        }
        can
    }
}

impl Fair {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection begins; gives its number, or nothing if there are `most` already.
    pub fn enter(&self, most: usize) -> Option<u64> {
        let mut state = self.lock();
        if state.is_closed || state.connections.len() >= most {
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.connections.insert(number, Connection::default());
        Some(number)
    }

    /// A connection has ended; what waits of it is dropped.
    pub fn leave(&self, number: u64) {
        let left = self.lock().connections.remove(&number);
        if let Some(left) = left {
            left.changed.notify_all();
        }
    }

    /// A request has come; waits while too many do. Says whether the connection goes on.
    pub fn put_request(&self, number: u64, request: Frame) -> bool {
        let mut state = self.lock();
        loop {
            let Some(connection) = state.connections.get_mut(&number) else { return false };
            if connection.requests.len() < MOST_REQUESTS && connection.request_bytes < MOST_REQUEST_BYTES {
                connection.request_bytes += request.wire_bytes();
                connection.requests.push_back(request);
                let has_turn = state.give_turn(number);
                drop(state);
                if has_turn {
                    self.has_requests.notify_one();
                }
                return true;
            }
            let changed = Arc::clone(&connection.changed);
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next request to be done, from each connection in turn; waits for one. Nothing once the server is closed.
    pub fn next_request(&self) -> Option<(u64, Frame)> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            while let Some(number) = state.turns.pop_front() {
                let Some(connection) = state.connections.get_mut(&number) else { continue };
                connection.has_turn = false;
                let Some(request) = connection.requests.pop_front() else { continue };
                connection.request_bytes -= request.wire_bytes();
                connection.changed.notify_all();
                state.give_turn(number);
                return Some((number, request));
            }
            state = self.has_requests.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A reply is ready to be sent.
    pub fn put_reply(&self, number: u64, reply: Frame) {
        let mut state = self.lock();
        let Some(connection) = state.connections.get_mut(&number) else { return };
        connection.reply_bytes += reply.wire_bytes();
        connection.replies.push_back(reply);
        connection.changed.notify_all();
    }

    /// The next reply to be sent; waits for one, but not for long.
    pub fn next_reply(&self, number: u64, within: Duration) -> Next {
        let until = Instant::now() + within;
        let mut state = self.lock();
        loop {
            let Some(connection) = state.connections.get_mut(&number) else { return Next::Ended };
            if let Some(reply) = connection.replies.pop_front() {
                return Next::Reply(reply);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::NotYet;
            }
            let changed = Arc::clone(&connection.changed);
            state = changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A reply was sent, which took some time.
    pub fn sent(&self, number: u64, bytes: u64, took: Duration) {
        let mut state = self.lock();
        let Some(connection) = state.connections.get_mut(&number) else { return };
        connection.reply_bytes -= bytes;
        connection.sent_bytes += bytes;
        connection.sending += took;
        if connection.sent_bytes > LATE_BYTES {
            connection.sent_bytes /= 2;
            connection.sending /= 2;
        }
        let has_turn = state.give_turn(number);
        drop(state);
        if has_turn {
            self.has_requests.notify_one();
        }
    }

    /// Bytes a second that a connection takes while something is sent to it, once enough was.
    pub fn bytes_per_second(&self, number: u64) -> Option<f64> {
        let state = self.lock();
        let connection = state.connections.get(&number).filter(|it| it.sent_bytes >= TELLING_BYTES)?;
        Some(connection.sent_bytes as f64 / connection.sending.as_secs_f64().max(1e-9))
    }

    /// Connections of which something waits to be done or sent.
    pub fn busy(&self) -> usize {
        let is_busy = |connection: &&Connection| !connection.requests.is_empty() || connection.reply_bytes > 0;
        self.lock().connections.values().filter(is_busy).count()
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.lock().connections.len()
    }

    /// Ends all.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let left = std::mem::take(&mut state.connections);
        drop(state);
        self.has_requests.notify_all();
        for connection in left.into_values() {
            connection.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(request: u64) -> Frame {
        Frame::new(request, &(), Vec::new()).unwrap()
    }

    fn reply(request: u64) -> Frame {
        Frame::new(request, &(), vec![0; 1 << 20]).unwrap()
    }

    #[test]
    fn connections_take_turns_whatever_each_asks_for() {
        let fair = Fair::default();
        let (busy, quiet) = (fair.enter(9).unwrap(), fair.enter(9).unwrap());
        (0..100).for_each(|request| assert!(fair.put_request(busy, frame(request))));
        assert!(fair.put_request(quiet, frame(1000)));
        let first: Vec<u64> = (0..3).map(|_| fair.next_request().unwrap().0).collect();
        assert_eq!(first, [busy, quiet, busy]);
    }

    #[test]
    fn law_5_a_client_that_takes_no_replies_gets_no_more_requests_done() {
        let fair = Fair::default();
        let (slow, other) = (fair.enter(9).unwrap(), fair.enter(9).unwrap());
        for request in 0..20 {
            assert!(fair.put_request(slow, frame(request)));
        }
        let mut done = 0;
        while fair.lock().connections[&slow].has_turn {
            let (number, request) = fair.next_request().unwrap();
            fair.put_reply(number, reply(request.request));
            done += 1;
        }
        assert!((8..=9).contains(&done), "{done} replies of a megabyte wait");
        assert!(fair.put_request(other, frame(7)));
        assert_eq!(fair.next_request().unwrap().0, other);
        for _ in 0..2 {
            let Next::Reply(reply) = fair.next_reply(slow, Duration::ZERO) else { panic!("no reply waits") };
            fair.sent(slow, reply.wire_bytes(), Duration::ZERO);
        }
        assert_eq!(fair.next_request().unwrap().0, slow);
        assert_eq!(fair.next_reply(other, Duration::from_millis(1)), Next::NotYet);
    }

    #[test]
    fn no_more_connections_than_allowed_and_all_end_with_the_server() {
        let fair = Fair::default();
        let number = fair.enter(1).unwrap();
        assert!(fair.enter(1).is_none());
        fair.leave(number);
        let number = fair.enter(1).unwrap();
        fair.close();
        assert!(fair.next_request().is_none() && fair.enter(1).is_none());
        assert_eq!(fair.next_reply(number, Duration::from_mins(1)), Next::Ended);
        assert!(!fair.put_request(number, frame(1)));
    }
}
