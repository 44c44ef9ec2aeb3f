//! One connection to a server, from its greeting to its end.

use std::io::{self, Read, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Counts, LinkTerms};
use crate::tls::Stream;
use crate::wire::{Arrival, Frame, Head, MOST_REPLY_BYTES, PROTOCOL, Reply, Request, WireError, engine_version};

/// How long a connection may take to come about.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long a server may take nothing of what is sent to it.
const SEND_TIME: Duration = Duration::from_secs(30);

/// A connection that has come about.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    began: Instant,
    /// When something came last, in milliseconds since it began.
    heard_milliseconds: AtomicU64,
}

impl Connection {
    /// Connects and says who asks.
    pub fn open(terms: &LinkTerms, counts: &Counts) -> Result<Self, WireError> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no address is known for it");
        for address in terms.server.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIME) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_write_timeout(Some(SEND_TIME))?;
                    let host = terms.server.rsplit_once(':').map_or(terms.server.as_str(), |(host, _)| host);
                    let host = host.trim_start_matches('[').trim_end_matches(']');
                    let stream = Stream::connect(socket, CONNECT_TIME, host, terms.trust.as_ref())?;
                    let connection = Self { stream, began: Instant::now(), heard_milliseconds: AtomicU64::new(0) };
                    connection.greet(terms, counts)?;
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    fn greet(&self, terms: &LinkTerms, counts: &Counts) -> Result<(), WireError> {
        let mut said = Request::Hello { protocol: PROTOCOL, engine: engine_version() };
        let mut stream = self.receiver(counts);
        loop {
            Frame::new(0, &said, Vec::new())?.write(&mut &self.stream)?;
            let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
            match Frame::read(&mut stream, 4096)?.ok_or_else(gone)?.message()? {
                Reply::Welcome => break,
                Reply::Refused { reason } => return Err(WireError::Refused(reason)),
                Reply::Busy { reason } => return Err(WireError::Busy(reason)),
                Reply::Challenge { challenge } => {
                    let proof = terms.token.as_ref().map_or([0; 32], |token| token.proof(&challenge));
                    said = Request::Proof { proof };
                }
                _ => return Err(WireError::Unexpected),
            }
        }
        self.stream.lift_deadline()?;
        Ok(())
    }

    /// Sends requests.
    pub fn send(&self, requests: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(requests)
    }

    /// What it receives, for the one thread that does.
    pub fn receiver<'a>(&'a self, counts: &'a Counts) -> Receiver<'a> {
        Receiver { connection: self, counts, taken_bytes: 0 }
    }

    /// When something came last.
    pub fn heard(&self) -> Instant {
        self.began + Duration::from_millis(self.heard_milliseconds.load(Ordering::Relaxed))
    }

    /// Ends it; whoever sends or receives is told.
    pub fn end(&self) {
        self.stream.end();
    }
}

/// Receives, and counts what comes.
#[derive(Debug)]
pub(super) struct Receiver<'a> {
    connection: &'a Connection,
    counts: &'a Counts,
    /// Bytes that came.
    pub taken_bytes: u64,
}

impl Receiver<'_> {
    /// The next reply, or why there is none, and the request that it was for where that is known.
    pub fn next(&mut self) -> Result<(Frame, Arrival), (Option<u64>, WireError)> {
        let ended = || WireError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        let head = Head::read(self, MOST_REPLY_BYTES).and_then(|head| head.ok_or_else(ended));
        let head = head.map_err(|error| (None, error))?;
        head.rest(self).map_err(|error| (Some(head.request), error))
    }
}

impl Read for Receiver<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let read = (&self.connection.stream).read(target)?;
        let heard = self.connection.began.elapsed().as_millis() as u64;
        self.connection.heard_milliseconds.store(heard, Ordering::Relaxed);
        self.counts.received_bytes.fetch_add(read as u64, Ordering::Relaxed);
        self.taken_bytes += read as u64;
        Ok(read)
    }
}
