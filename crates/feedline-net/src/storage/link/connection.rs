//! One connection to a server, from its handshake to its end.

use std::io::{self, Read, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use feedline_memory::Mutex;

use super::{LinkCounters, LinkTerms};
use crate::tls::Stream;
use crate::wire::{
    Arrival, Frame, FrameHead, MAX_REPLY_BYTES, PROTOCOL, Paced, Reply, Request, Sequence, WireError, engine_version,
};

/// How long connecting may take.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long a write may block because the server does not read.
const SEND_TIME: Duration = Duration::from_secs(30);

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    /// The sequence of sent frames.
    outgoing: Mutex<Sequence>,
    began: Instant,
    /// When something was last received, in milliseconds after `began`.
    heard_milliseconds: AtomicU64,
}

impl Connection {
    /// Connects and authenticates. The returned sequence is for the receiving thread.
    pub(super) fn open(terms: &LinkTerms, counts: &LinkCounters) -> Result<(Self, Sequence), WireError> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no address is known for it");
        for address in terms.server.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIME) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_write_timeout(Some(SEND_TIME))?;
                    let host = terms.server.rsplit_once(':').map_or(terms.server.as_str(), |(host, _)| host);
                    // An IPv6 address is written in brackets before the port. A certificate names it without them.
                    let host = host.trim_start_matches('[').trim_end_matches(']');
                    let stream = Stream::connect(socket, CONNECT_TIME, host, terms.trust.as_ref())?;
                    let connection = Self {
                        stream,
                        outgoing: Mutex::default(),
                        began: Instant::now(),
                        heard_milliseconds: AtomicU64::new(0),
                    };
                    let incoming = connection.greet(terms, counts)?;
                    return Ok((connection, incoming));
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    fn greet(&self, terms: &LinkTerms, counts: &LinkCounters) -> Result<Sequence, WireError> {
        let mut said = Request::Hello { protocol: PROTOCOL, engine: engine_version() };
        let mut incoming = Sequence::default();
        let mut counted = CountingStream { connection: self, counts, taken_bytes: 0 };
        loop {
            self.send([&Frame::new(0, &said, Vec::new())?])?;
            let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
            match Frame::read(&mut counted, &mut incoming, 4096)?.ok_or_else(gone)?.message()? {
                Reply::Welcome => break,
                Reply::Refused { reason } => return Err(WireError::Refused(reason)),
                Reply::Busy { reason } => return Err(WireError::Busy(reason)),
                Reply::Challenge { challenge } => {
                    // Without a token the proof is wrong on purpose. The server then answers with the reason.
                    let proof = terms.token.as_ref().map_or([0; 32], |token| token.proof(&challenge));
                    said = Request::Proof { proof };
                }
                _ => return Err(WireError::Unexpected),
            }
        }
        self.stream.lift_deadline()?;
        Ok(incoming)
    }

    /// Sends several requests at once.
    pub(super) fn send<'a>(&self, requests: impl IntoIterator<Item = &'a Frame>) -> io::Result<()> {
        // Locked while writing: the frames must arrive in the order of their sequence numbers.
        let mut outgoing = self.outgoing.lock();
        let mut bytes = Vec::new();
        for request in requests {
            request.write(&mut bytes, &mut outgoing)?;
        }
        (&self.stream).write_all(&bytes)
    }

    /// The receiving half, for one thread.
    pub(super) fn receiver<'a>(&'a self, incoming: Sequence, counts: &'a LinkCounters) -> Receiver<'a> {
        let counted = CountingStream { connection: self, counts, taken_bytes: 0 };
        Receiver { from: Paced::new(counted, None), incoming }
    }

    /// When something was last received.
    pub(super) fn heard(&self) -> Instant {
        self.began + Duration::from_millis(self.heard_milliseconds.load(Ordering::Relaxed))
    }

    /// Ends the connection. Threads that send or receive get an error.
    pub(super) fn end(&self) {
        self.stream.end();
    }
}

/// Receives replies.
#[derive(Debug)]
pub(super) struct Receiver<'a> {
    from: Paced<CountingStream<'a>>,
    incoming: Sequence,
}

impl Receiver<'_> {
    /// The next reply, or an error with its request, if known.
    pub(super) fn next(&mut self) -> Result<(Frame, Arrival), (Option<u64>, WireError)> {
        self.from.begin_frame();
        let ended = || WireError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        let head = FrameHead::read(&mut self.from, &mut self.incoming, MAX_REPLY_BYTES);
        let head = head.and_then(|head| head.ok_or_else(ended)).map_err(|error| (None, error))?;
        head.rest(&mut self.from).map_err(|error| (Some(head.request), error))
    }

    /// Bytes received so far by this receiver.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.from.get_ref().taken_bytes
    }
}

/// Counts received bytes.
#[derive(Debug)]
struct CountingStream<'a> {
    connection: &'a Connection,
    counts: &'a LinkCounters,
    taken_bytes: u64,
}

impl Read for CountingStream<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let read = (&self.connection.stream).read(target)?;
        // An atomic, because the keeper reads it from another thread without a lock.
        let heard = self.connection.began.elapsed().as_millis() as u64;
        self.connection.heard_milliseconds.store(heard, Ordering::Relaxed);
        self.counts.received_bytes.fetch_add(read as u64, Ordering::Relaxed);
        self.taken_bytes += read as u64;
        Ok(read)
    }
}
