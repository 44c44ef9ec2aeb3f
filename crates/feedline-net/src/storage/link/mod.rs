//! A client's way to a server, which many threads use at once.
//!
//! In: requests. Out: replies, or an error within a bounded time, to whoever was named, from a thread of the link. A
//! connection that breaks is made anew, and what was asked and not answered is asked again: all requests only read, so asking
//! twice changes nothing. No thread waits for a reply unless it wants to.
//!
//! - `talk.rs` is what waits for replies, and the thread that connects, sends, and gives up
//! - `connection.rs` is one connection, from its greeting to its end, and the thread that receives

mod connection;
mod talk;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;

use self::talk::Talk;
use super::token::Token;
use crate::tls::Trust;
use crate::wire::{Reply, Request, WireError};

/// How long a server may be gone before a request of it fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shorter frames come in one piece and say nothing about the link's speed.
const LONG_BYTES: u64 = 16 << 10;
/// The share of long replies that has to have come piece by piece, else the link is faster than what reads it.
const TELLING_SHARE: f64 = 0.1;
/// Before so many bytes of long replies have come, a link's speed is not known.
const FEWEST_BYTES: u64 = 256 << 10;

/// Why a server cannot be asked.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum LinkError {
    #[error(
        "the storage server {server} did not answer for {seconds:.0} s, asked {attempts} times; is `feedline storage` running there?"
    )]
    Gone { server: String, seconds: f64, attempts: u32, source: Arc<WireError> },
    #[error("the storage server {server} refuses: {reason}")]
    Refused { server: String, reason: String },
    #[error("no TLS connection to the storage server {server}: {problem}")]
    Tls { server: String, problem: String },
    #[error("what is said to or by the storage server {server} cannot be written or read")]
    Message { server: String, source: Arc<WireError> },
    #[error("the link to the storage server {server} was closed")]
    Closed { server: String },
}

/// Takes what became of a request.
pub type LinkDone = Box<dyn FnOnce(Result<(Reply, Vec<u8>), LinkError>, LinkTraffic) + Send>;

/// What one request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    /// Bytes of its replies on the wire, also of those that were cut short.
    pub bytes: u64,
    /// How often it was sent again.
    pub retries: u64,
}

/// What went over a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkCounts {
    /// Requests, each counted once.
    pub requests: u64,
    /// How often one was sent again.
    pub retries: u64,
    /// Bytes received on the wire.
    pub received_bytes: u64,
    /// Bytes of long replies...
    pub long_bytes: u64,
    /// ...and the time from their heads to their ends.
    pub long_seconds: f64,
    /// Those of them that came after the first piece of their reply...
    pub telling_bytes: u64,
    /// ...and the time in which they came.
    pub telling_seconds: f64,
}

impl LinkCounts {
    /// How fast the link is, once enough has come to say so. What comes piece by piece tells it; where nearly all replies
    /// are here as soon as somebody looks, the link is at least as fast as they are read.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let is_telling = self.telling_bytes as f64 >= TELLING_SHARE * self.long_bytes as f64;
        let (bytes, seconds) =
            if is_telling { (self.telling_bytes, self.telling_seconds) } else { (self.long_bytes, self.long_seconds) };
        (self.long_bytes >= FEWEST_BYTES && seconds > 0.0).then(|| bytes as f64 / seconds)
    }

    /// What went over it since some earlier counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests - earlier.requests,
            retries: self.retries - earlier.retries,
            received_bytes: self.received_bytes - earlier.received_bytes,
            long_bytes: self.long_bytes - earlier.long_bytes,
            long_seconds: self.long_seconds - earlier.long_seconds,
            telling_bytes: self.telling_bytes - earlier.telling_bytes,
            telling_seconds: self.telling_seconds - earlier.telling_seconds,
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
    telling_bytes: AtomicU64,
    telling_nanoseconds: AtomicU64,
}

/// Whom to ask, and how.
#[derive(Clone, Debug)]
pub struct LinkTerms {
    /// A host and a port.
    pub server: String,
    /// The secret that the server may ask for.
    pub token: Option<Token>,
    /// Whom to believe, if the server speaks TLS.
    pub trust: Option<Trust>,
    /// How long the server may be gone.
    pub patience: Duration,
}

impl LinkTerms {
    /// A server that speaks no TLS, with the usual patience.
    pub fn plain(server: &str, token: Option<Token>) -> Self {
        Self { server: server.to_owned(), token, trust: None, patience: PATIENCE }
    }
}

/// A connection that is there as long as it is needed.
///
/// Its threads end soon after it is dropped; nobody waits for them, because to connect may take seconds.
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

    /// Asks the server and returns at once. `done` gets the reply and the bytes beside it, or why there is none, from a
    /// thread that must not be kept; it is not called if the [`Pending`] was dropped before.
    pub fn begin(&self, request: &Request, done: LinkDone) -> Pending {
        let number = self.counts.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let talk = self.talk();
        talk.ask(number, request, done);
        Pending { number, talk }
    }

    /// Asks the server, and waits for the reply and the bytes beside it.
    pub fn call(&self, request: &Request) -> Result<(Reply, Vec<u8>), LinkError> {
        let (sender, answer) = mpsc::sync_channel(1);
        // A receiver that is gone has stopped waiting.
        let _pending = self.begin(request, Box::new(move |reply, _| drop(sender.send(reply))));
        answer.recv().unwrap_or_else(|_| Err(LinkError::Closed { server: self.terms.server.clone() }))
    }

    /// What went over it so far.
    pub fn counts(&self) -> LinkCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| Duration::from_nanos(count(counter)).as_secs_f64();
        LinkCounts {
            requests: count(&self.counts.requests),
            retries: count(&self.counts.retries),
            received_bytes: count(&self.counts.received_bytes),
            long_bytes: count(&self.counts.long_bytes),
            long_seconds: seconds(&self.counts.long_nanoseconds),
            telling_bytes: count(&self.counts.telling_bytes),
            telling_seconds: seconds(&self.counts.telling_nanoseconds),
        }
    }

    /// What waits and its threads, made anew in a process that was forked.
    fn talk(&self) -> Arc<Talk> {
        let mut talk = self.talk.lock();
        if !talk.is_of_this_process() {
            let new = Talk::new(Arc::clone(&self.terms), Arc::clone(&self.counts));
            // Its threads are those of the process that was forked, which may have held its lock just then.
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

/// A request that was not answered yet. Dropping it says that nobody wants the reply any more.
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
        self.talk.forget(self.number);
    }
}
