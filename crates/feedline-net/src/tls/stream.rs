//! A connection, with or without TLS, that one thread reads while another writes.
//!
//! Always true: the session's lock is held while encrypting and decrypting, never while waiting for the socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use feedline_memory::{Mutex, MutexGuard};
use rustls::Connection;

use super::trust::advice;
use super::{Identity, Trust};
use crate::wire::{LONGEST_GAP, WireError};

/// Bytes to read from the socket at once: a TLS record and a little more.
const READ_BYTES: usize = 18 << 10;
/// Bytes to encrypt at once.
const WRITE_BYTES: usize = 64 << 10;
/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;
/// Bytes to read from a rejected client, so that the reason arrives before the end.
const DRAIN_BYTES: usize = 16 << 10;
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// A connection.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: TcpStream,
    /// The deadline of the handshake. `None` afterwards.
    deadline: Mutex<Option<Instant>>,
    session: Option<Box<Session>>,
}

#[derive(Debug)]
struct Session {
    tls: Mutex<Connection>,
    incoming: Mutex<Incoming>,
    /// Encrypted bytes that are not sent yet. The lock keeps records in order.
    outgoing: Mutex<Vec<u8>>,
}

/// Received bytes that are not decrypted yet.
#[derive(Debug)]
struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Stream {
    fn plain(socket: TcpStream, within: Duration) -> Self {
        Self { socket, deadline: Mutex::new(Some(Instant::now() + within)), session: None }
    }

    /// The client's side. Reading ends `within` a time, until the deadline is lifted.
    pub(crate) fn connect(
        socket: TcpStream,
        within: Duration,
        host: &str,
        trust: Option<&Trust>,
    ) -> Result<Self, WireError> {
        let plain = Self::plain(socket, within);
        let Some(trust) = trust else { return Ok(plain) };
        let mut session = trust.session(host).map_err(|error| WireError::Tls(error.to_string()))?;
        let explained = |error: io::Error| match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
        {
            Some(inner) => WireError::Tls(advice(inner, host)),
            None => WireError::Broken(error),
        };
        session.complete_io(&mut &plain).map_err(explained)?;
        Ok(plain.with(session.into()))
    }

    /// The server's side. Reading ends `within` a time, until the deadline is lifted. A client without TLS, where it is required,
    /// is an error that can be sent to it.
    pub(crate) fn accept(
        socket: TcpStream,
        within: Duration,
        identity: Option<&Identity>,
    ) -> Result<Self, (Self, WireError)> {
        let plain = Self::plain(socket, within);
        let Some(identity) = identity else { return Ok(plain) };
        match plain.accept_session(identity) {
            Ok(session) => Ok(plain.with(session)),
            Err(error) => Err((plain, error)),
        }
    }

    fn accept_session(&self, identity: &Identity) -> Result<Connection, WireError> {
        let mut first = [0];
        self.apply_deadline()?;
        // Looks at the first byte without consuming it: the TLS handshake still has to read it.
        if self.socket.peek(&mut first)? > 0 && first[0] != TLS_HANDSHAKE {
            let reason = "this server uses TLS; use feedlines:// in place of feedline://";
            return Err(WireError::Refused(reason.to_owned()));
        }
        let mut session = identity.session().map_err(io::Error::other)?;
        session.complete_io(&mut &*self)?;
        Ok(session.into())
    }

    fn with(self, tls: Connection) -> Self {
        let incoming = Mutex::new(Incoming { bytes: vec![0; READ_BYTES], start: 0, end: 0 });
        let session = Session { tls: Mutex::new(tls), incoming, outgoing: Mutex::default() };
        Self { session: Some(Box::new(session)), ..self }
    }

    /// Lifts the deadline. From now on a read fails if nothing arrives for a while, but may be repeated.
    pub(crate) fn lift_deadline(&self) -> io::Result<()> {
        *lock(&self.deadline) = None;
        self.socket.set_read_timeout(Some(LONGEST_GAP))
    }

    /// Waits for the socket at most until the deadline, so that a client gains nothing by sending single bytes.
    fn apply_deadline(&self) -> io::Result<()> {
        let Some(deadline) = *lock(&self.deadline) else { return Ok(()) };
        // The time-out of a socket limits each read alone. Setting it to the remaining time limits all of them together.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))
    }

    fn receive(&self, target: &mut [u8]) -> io::Result<usize> {
        self.apply_deadline()?;
        (&self.socket).read(target)
    }

    /// Whether these bytes start a TLS connection.
    pub(crate) fn is_tls(found: [u8; 4]) -> bool {
        found[0] == TLS_HANDSHAKE && found[1] == 3
    }

    /// Ends both directions. Threads that read or write get an error.
    pub(crate) fn end(&self) {
        if let Err(error) = self.socket.shutdown(Shutdown::Both) {
            tracing::debug!(%error, "the connection was closed before");
        }
    }

    /// Ends the connection after a last message. Incoming bytes are read meanwhile, otherwise the system would discard the message.
    pub(crate) fn end_after_refusal(&self) {
        // Sends FIN after the message. If unread data arrived afterwards, a full close would send RST and discard the message.
        let ended = self.socket.shutdown(Shutdown::Write);
        *lock(&self.deadline) = Some(Instant::now() + DRAIN_TIME);
        let mut room = [0; 1024];
        let mut read = 0;
        while ended.is_ok()
            && read < DRAIN_BYTES
            && let Ok(more @ 1..) = self.receive(&mut room)
        {
            read += more;
        }
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Read for &Stream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &self.session else { return self.receive(target) };
        // One reader at a time. The TLS session itself is only locked inside `decrypt`.
        let mut incoming = lock(&session.incoming);
        loop {
            if let Some(read) = session.decrypt(&mut incoming, target)? {
                return Ok(read);
            }
            incoming.start = 0;
            incoming.end = 0;
            // Frames have a length, so a missing TLS close is harmless.
            match self.receive(&mut incoming.bytes)? {
                0 => return Ok(0),
                read => incoming.end = read,
            }
        }
    }
}

impl Session {
    /// Decrypts received bytes. Returns nothing if there are too few.
    fn decrypt(&self, incoming: &mut Incoming, target: &mut [u8]) -> io::Result<Option<usize>> {
        let mut tls = lock(&self.tls);
        loop {
            match tls.reader().read(target) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other.map(Some),
            }
            let Incoming { bytes, start, end } = incoming;
            if start == end {
                return Ok(None);
            }
            // May take only a part of the bytes: one call reads at most what its buffer holds.
            *start += tls.read_tls(&mut &bytes[*start..*end])?;
            tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    fn encrypt(&self, bytes: &[u8], outgoing: &mut Vec<u8>) -> io::Result<usize> {
        let mut tls = lock(&self.tls);
        let taken = tls.writer().write(&bytes[..bytes.len().min(WRITE_BYTES)])?;
        // All records go into memory first. `wants_write` ends when the session has no more.
        while tls.wants_write() {
            tls.write_tls(outgoing)?;
        }
        Ok(taken)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &self.session else { return (&self.socket).write(bytes) };
        let mut outgoing = lock(&session.outgoing);
        // `outgoing` stays locked until the records are on the socket, so two writers cannot exchange the order of records.
        let taken = session.encrypt(bytes, &mut outgoing)?;
        (&self.socket).write_all(&outgoing)?;
        outgoing.clear();
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.socket).flush()
    }
}
