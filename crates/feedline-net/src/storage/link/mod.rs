//! A client's link to a server, shared by many threads.
//!
//! In: requests. Out: replies or errors within a bounded time, to a callback on a thread of the link. A broken connection is opened
//! again, and unanswered requests are repeated. All requests only read, so repeating them is safe. No thread has to wait for a
//! reply.
//!
//! - `talk.rs` holds pending requests, and is the thread that connects, sends and gives up
//! - `connection.rs` is one connection, and the thread that receives

mod connection;
mod talk;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use feedline_memory::Mutex;

use self::talk::Talk;
use super::token::Token;
use crate::tls::Trust;
use crate::wire::{Reply, Request, WireError};

/// How long a server may be unreachable before its requests fail.
const PATIENCE: Duration = Duration::from_secs(30);
/// Replies of at least this many bytes are long. Shorter ones arrive in one piece and say nothing about the link's speed.
const LONG_BYTES: u64 = 16 << 10;
/// The fraction of the bytes of long replies that must arrive piecewise. Below it the link is faster than its reader.
const PIECEWISE_SHARE: f64 = 0.1;
/// Bytes of long replies to receive before the speed is known.
const MIN_SPEED_BYTES: u64 = 256 << 10;

/// Why a server cannot be reached.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum LinkError {
    #[error(
        "the storage server {server} did not answer for {seconds:.0} s, after {attempts} attempts; is `feedline storage` running there?"
    )]
    Gone { server: String, seconds: f64, attempts: u32, source: Arc<WireError> },
    #[error("the storage server {server} rejects this client: {reason}")]
    Refused { server: String, reason: String },
    #[error("no TLS connection to the storage server {server}: {problem}")]
    Tls { server: String, problem: String },
    #[error("a message to or from the storage server {server} cannot be encoded or decoded")]
    Message { server: String, source: Arc<WireError> },
    #[error("the link to the storage server {server} was closed")]
    Closed { server: String },
}

/// Receives the result of a request.
pub type LinkDone = Box<dyn FnOnce(Result<(Reply, Vec<u8>), LinkError>, LinkTraffic) + Send>;

/// The traffic of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    /// Bytes of its replies, including truncated ones.
    pub bytes: u64,
    /// Number of retries.
    pub retries: u64,
}

/// The traffic of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkCounts {
    /// Requests, each counted once.
    pub requests: u64,
    /// Number of retries.
    pub retries: u64,
    /// Bytes received on the wire.
    pub received_bytes: u64,
    /// Bytes of long replies.
    pub long_bytes: u64,
    /// The total time of long replies, each from its head to its end.
    pub long_seconds: f64,
    /// Bytes of long replies that arrived after the first piece of their reply.
    pub piecewise_bytes: u64,
    /// The time in which the piecewise bytes arrived.
    pub piecewise_seconds: f64,
}

impl LinkCounts {
    /// The speed of the link, once enough was received. If nearly all replies are complete when they are read, this is the speed of
    /// the reader: the link is at least as fast.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let is_piecewise = self.piecewise_bytes as f64 >= PIECEWISE_SHARE * self.long_bytes as f64;
        // Piecewise bytes exclude the first piece of each reply, which may have waited in a buffer and would look too fast.
        let (bytes, seconds) = if is_piecewise {
            (self.piecewise_bytes, self.piecewise_seconds)
        } else {
            (self.long_bytes, self.long_seconds)
        };
        (self.long_bytes >= MIN_SPEED_BYTES && seconds > 0.0).then(|| bytes as f64 / seconds)
    }

    /// The traffic since earlier counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests - earlier.requests,
            retries: self.retries - earlier.retries,
            received_bytes: self.received_bytes - earlier.received_bytes,
            long_bytes: self.long_bytes - earlier.long_bytes,
            long_seconds: self.long_seconds - earlier.long_seconds,
            piecewise_bytes: self.piecewise_bytes - earlier.piecewise_bytes,
            piecewise_seconds: self.piecewise_seconds - earlier.piecewise_seconds,
        }
    }
}

#[derive(Debug, Default)]
struct LinkCounters {
    requests: AtomicU64,
    retries: AtomicU64,
    received_bytes: AtomicU64,
    long_bytes: AtomicU64,
    long_nanoseconds: AtomicU64,
    piecewise_bytes: AtomicU64,
    piecewise_nanoseconds: AtomicU64,
}

/// The server, and how to reach it.
#[derive(Clone, Debug)]
pub struct LinkTerms {
    /// A host and a port.
    pub server: String,
    /// The secret, if the server requires one.
    pub token: Option<Token>,
    /// The trusted authorities, if the server uses TLS.
    pub trust: Option<Trust>,
    /// How long the server may be unreachable.
    pub patience: Duration,
}

impl LinkTerms {
    /// A server without TLS, with the default patience.
    pub fn plain(server: &str, token: Option<Token>) -> Self {
        Self { server: server.to_owned(), token, trust: None, patience: PATIENCE }
    }
}

/// A connection that is opened on demand.
///
/// Its threads end soon after it is dropped. Nobody joins them, because connecting may take seconds.
#[derive(Debug)]
pub struct Link {
    terms: Arc<LinkTerms>,
    counts: Arc<LinkCounters>,
    talk: Mutex<Arc<Talk>>,
}

impl Link {
    /// A link to a server. Nothing is connected yet.
    pub fn new(terms: LinkTerms) -> Self {
        let terms = Arc::new(terms);
        let counts = Arc::default();
        let talk = Talk::new(Arc::clone(&terms), Arc::clone(&counts));
        Self { terms, counts, talk: Mutex::new(talk) }
    }

    /// Sends a request and returns at once. `done` gets the reply and its bytes, or an error, on a thread that it must not block.
    /// It is not called if the [`Pending`] was dropped before.
    pub fn begin(&self, request: &Request, done: LinkDone) -> Pending {
        let number = self.counts.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let talk = self.talk();
        talk.ask(number, request, done);
        Pending { number, talk }
    }

    /// Sends a request, and waits for the reply and its bytes.
    pub fn call(&self, request: &Request) -> Result<(Reply, Vec<u8>), LinkError> {
        let (sender, answer) = mpsc::sync_channel(1);
        // If the receiver is gone, the caller has stopped waiting.
        let _pending = self.begin(request, Box::new(move |reply, _| drop(sender.send(reply))));
        answer.recv().unwrap_or_else(|_| Err(LinkError::Closed { server: self.terms.server.clone() }))
    }

    /// The traffic so far.
    pub fn counts(&self) -> LinkCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| Duration::from_nanos(count(counter)).as_secs_f64();
        LinkCounts {
            requests: count(&self.counts.requests),
            retries: count(&self.counts.retries),
            received_bytes: count(&self.counts.received_bytes),
            long_bytes: count(&self.counts.long_bytes),
            long_seconds: seconds(&self.counts.long_nanoseconds),
            piecewise_bytes: count(&self.counts.piecewise_bytes),
            piecewise_seconds: seconds(&self.counts.piecewise_nanoseconds),
        }
    }

    /// The pending requests and threads. A forked process gets its own, at its first request.
    fn talk(&self) -> Arc<Talk> {
        let mut talk = self.talk.lock();
        if !talk.is_of_this_process() {
            let new = Talk::new(Arc::clone(&self.terms), Arc::clone(&self.counts));
            // The old one is leaked, not dropped: its threads exist only in the parent, and its lock may have been held during the
            // fork.
            std::mem::forget(std::mem::replace(&mut *talk, new));
        }
        Arc::clone(&talk)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.talk.get_mut().close();
    }
}

/// A request without a reply. Dropping it cancels the request.
pub struct Pending {
    number: u64,
    talk: Arc<Talk>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.talk.cancel(self.number);
    }
}
