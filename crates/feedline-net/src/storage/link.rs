//! A client's connection to a server, which many threads use at once.
//!
//! In: requests. Out: replies, or an error within a bounded time. A connection that breaks is made anew, and what was asked
//! and not answered is asked again: all requests only read, so asking twice changes nothing.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::token::Token;
use crate::wire::{Frame, MOST_REPLY_BYTES, PROTOCOL, Reply, Request, WireError};

/// How long a connection may take to come about.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long a reply may take.
const REPLY_TIME: Duration = Duration::from_mins(1);
/// How long a server may be gone before a request of it fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pauses between attempts: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Why a server cannot be asked.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum LinkError {
    #[error(
        "the storage server {server} did not answer for {seconds:.0} s, asked {attempts} times; is `feedline storage` running there?"
    )]
    Gone { server: String, seconds: f64, attempts: u32, source: WireError },
    #[error("the storage server {server} refuses: {reason}")]
    Refused { server: String, reason: String },
}

/// A connection that is there as long as it is needed.
#[derive(Debug)]
pub struct Link {
    server: String,
    token: Option<Token>,
    live: Mutex<Option<Arc<Live>>>,
    requests: AtomicU64,
    retries: AtomicU64,
    received_bytes: AtomicU64,
    patience: Duration,
}

/// A connection that has come about.
#[derive(Debug)]
struct Live {
    stream: TcpStream,
    writing: Mutex<()>,
    /// Who waits for which reply; nothing once the connection has ended.
    waiting: Mutex<Option<HashMap<u64, SyncSender<Frame>>>>,
    /// The process whose threads serve it: a forked child has none.
    process: u32,
}

/// What went over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCounts {
    /// Requests, each counted once.
    pub requests: u64,
    /// How often one was asked again.
    pub retries: u64,
    /// Bytes of replies on the wire.
    pub received_bytes: u64,
}

impl Link {
    /// A link to `server`, a host and a port. Nothing is connected yet.
    pub fn new(server: &str, token: Option<Token>) -> Self {
        Self::with_patience(server, token, PATIENCE)
    }

    /// The same, with another time that the server may be gone.
    pub fn with_patience(server: &str, token: Option<Token>, patience: Duration) -> Self {
        Self {
            server: server.to_owned(),
            token,
            live: Mutex::default(),
            requests: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            patience,
        }
    }

    /// Asks the server, and waits for the reply and the bytes beside it.
    pub fn call(&self, request: &Request) -> Result<(Reply, Vec<u8>), LinkError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let (began, mut attempts, mut pause) = (Instant::now(), 0, FIRST_PAUSE);
        loop {
            attempts += 1;
            let error = match self.attempt(number, request) {
                Ok(frame) => {
                    self.received_bytes.fetch_add(frame.wire_bytes(), Ordering::Relaxed);
                    match frame.message() {
                        Ok(reply) => return Ok((reply, frame.bytes)),
                        Err(error) => error,
                    }
                }
                Err(WireError::Refused(reason)) => {
                    return Err(LinkError::Refused { server: self.server.clone(), reason });
                }
                Err(error) => error,
            };
            let seconds = began.elapsed();
            if seconds + pause > self.patience {
                let (server, seconds) = (self.server.clone(), seconds.as_secs_f64());
                return Err(LinkError::Gone { server, seconds, attempts, source: error });
            }
            tracing::debug!(%error, server = self.server, "asks again");
            self.retries.fetch_add(1, Ordering::Relaxed);
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// What went over it so far.
    pub fn counts(&self) -> LinkCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LinkCounts {
            requests: count(&self.requests),
            retries: count(&self.retries),
            received_bytes: count(&self.received_bytes),
        }
    }

    fn attempt(&self, number: u64, request: &Request) -> Result<Frame, WireError> {
        let live = self.live()?;
        let reply = live.ask(&Frame::new(number, request, Vec::new())?);
        if reply.is_err() {
            let mut kept = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, &live)) {
                *kept = None;
            }
        }
        reply
    }

    /// The connection, made if there is none.
    fn live(&self) -> Result<Arc<Live>, WireError> {
        let mut kept = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = kept.as_ref().filter(|live| live.process == std::process::id()) {
            return Ok(Arc::clone(live));
        }
        let live = Arc::new(self.connect()?);
        let receiving = Arc::clone(&live);
        let reader = live.stream.try_clone()?;
        thread::Builder::new().name("feedline-link".to_owned()).spawn(move || receiving.receive(reader))?;
        *kept = Some(Arc::clone(&live));
        Ok(live)
    }

    fn connect(&self) -> Result<Live, WireError> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no address is known for it");
        for address in self.server.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIME) {
                Ok(stream) => return self.greet(stream),
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    fn greet(&self, mut stream: TcpStream) -> Result<Live, WireError> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CONNECT_TIME))?;
        stream.set_write_timeout(Some(REPLY_TIME))?;
        let mut said = Request::Hello { protocol: PROTOCOL, codec: feedline_codec::VERSION.to_owned() };
        loop {
            Frame::new(0, &said, Vec::new())?.write(&mut stream)?;
            let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
            match Frame::read(&mut stream, 4096)?.ok_or_else(gone)?.message()? {
                Reply::Welcome => break,
                Reply::Refused { reason } => return Err(WireError::Refused(reason)),
                Reply::Challenge { challenge } => {
                    let proof = self.token.as_ref().map_or([0; 32], |token| token.proof(&challenge));
                    said = Request::Proof { proof };
                }
                _ => return Err(WireError::Unexpected),
            }
        }
        stream.set_read_timeout(None)?;
        let (writing, waiting) = (Mutex::default(), Mutex::new(Some(HashMap::new())));
        Ok(Live { stream, writing, waiting, process: std::process::id() })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let live = self.live.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(live) = live.filter(|live| live.process == std::process::id()) {
            live.end();
        }
    }
}

impl Live {
    fn ask(&self, request: &Frame) -> Result<Frame, WireError> {
        let (reply, replied) = sync_channel(1);
        let broken = || io::Error::from(io::ErrorKind::ConnectionReset);
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
            .ok_or_else(broken)?
            .insert(request.request, reply);
        let turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let written = request.write(&mut &self.stream);
        drop(turn);
        if let Err(error) = written {
            self.end();
            return Err(error.into());
        }
        replied.recv_timeout(REPLY_TIME).map_err(|error| {
            self.end();
            match error {
                RecvTimeoutError::Timeout => io::Error::from(io::ErrorKind::TimedOut).into(),
                RecvTimeoutError::Disconnected => broken().into(),
            }
        })
    }

    /// Hands replies to whoever waits for them, until the connection ends.
    fn receive(&self, mut stream: TcpStream) {
        loop {
            match Frame::read(&mut stream, MOST_REPLY_BYTES) {
                Ok(Some(frame)) => {
                    let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    let reply = waiting.as_mut().and_then(|waiting| waiting.remove(&frame.request));
                    drop(waiting);
                    if reply.is_none_or(|reply| reply.send(frame).is_err()) {
                        tracing::debug!("nobody waits for a reply that came");
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "a connection has ended");
                    break;
                }
            }
        }
        self.end();
    }

    /// Ends the connection; whoever waits is told.
    fn end(&self) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Err(error) = self.stream.shutdown(Shutdown::Both) {
            tracing::debug!(%error, "the connection had ended");
        }
    }
}
