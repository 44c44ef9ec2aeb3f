//! A connection, in TLS or plain, that one thread reads while another writes.
//!
//! Always true: the session's lock is held to encrypt and to decrypt, never while the socket is waited for.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::Connection;

use super::trust::advice;
use super::{Identity, Trust};
use crate::wire::WireError;

/// What is read from the socket at once: a TLS record and a bit.
const READ_BYTES: usize = 18 << 10;
/// What is encrypted at once.
const WRITE_BYTES: usize = 64 << 10;
/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;
/// What is read of somebody who was refused, so that the reason arrives before the end.
const DRAIN_BYTES: usize = 16 << 10;
const DRAIN_TIME: Duration = Duration::from_millis(200);

/// A connection.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: TcpStream,
    session: Option<Session>,
}

#[derive(Debug)]
struct Session {
    tls: Mutex<Connection>,
    incoming: Mutex<Incoming>,
    /// What is encrypted and not sent. Its lock keeps records in order.
    outgoing: Mutex<Vec<u8>>,
}

/// What was received and not decrypted.
#[derive(Debug)]
struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Stream {
    /// A client's side, with the times of the socket as they are.
    pub fn connect(socket: TcpStream, host: &str, trust: Option<&Trust>) -> Result<Self, WireError> {
        let Some(trust) = trust else { return Ok(Self { socket, session: None }) };
        let mut session = trust.session(host).map_err(|error| WireError::Tls(error.to_string()))?;
        let told = |error: io::Error| match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(inner) => WireError::Tls(advice(inner, host)),
            None => WireError::Broken(error),
        };
        session.complete_io(&mut &socket).map_err(told)?;
        Ok(Self::with(socket, session.into()))
    }

    /// A server's side. A client that does not speak TLS where it should is an error that can be told to it.
    pub fn accept(socket: TcpStream, identity: Option<&Identity>) -> Result<Self, (Self, WireError)> {
        let Some(identity) = identity else { return Ok(Self { socket, session: None }) };
        match Self::accept_session(&socket, identity) {
            Ok(session) => Ok(Self::with(socket, session)),
            Err(error) => Err((Self { socket, session: None }, error)),
        }
    }

    fn accept_session(mut socket: &TcpStream, identity: &Identity) -> Result<Connection, WireError> {
        let mut first = [0];
        if socket.peek(&mut first)? > 0 && first[0] != TLS_HANDSHAKE {
            let reason = "this server speaks TLS; use feedlines:// in place of feedline://";
            return Err(WireError::Refused(reason.to_owned()));
        }
        let mut session = identity.session().map_err(io::Error::other)?;
        session.complete_io(&mut socket)?;
        Ok(session.into())
    }

    fn with(socket: TcpStream, tls: Connection) -> Self {
        let incoming = Mutex::new(Incoming { bytes: vec![0; READ_BYTES], start: 0, end: 0 });
        Self { socket, session: Some(Session { tls: Mutex::new(tls), incoming, outgoing: Mutex::default() }) }
    }

    /// The socket, to set times.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether what a frame began with is the beginning of a TLS connection.
    pub fn is_tls(found: [u8; 4]) -> bool {
        found[0] == TLS_HANDSHAKE && found[1] == 3
    }

    /// Ends it for both directions; whoever reads or writes is told.
    pub fn end(&self) {
        if let Err(error) = self.socket.shutdown(Shutdown::Both) {
            tracing::debug!(%error, "the connection had ended");
        }
    }

    /// Ends it after the last words were written. What the other side says meanwhile is read, else the system would throw
    /// the last words away.
    pub fn end_after_refusal(&self) {
        let ended = self.socket.shutdown(Shutdown::Write).and_then(|()| self.socket.set_read_timeout(Some(DRAIN_TIME)));
        let mut room = [0; 1024];
        let mut left = DRAIN_BYTES;
        while ended.is_ok()
            && left > 0
            && let Ok(read @ 1..) = (&self.socket).read(&mut room)
        {
            left = left.saturating_sub(read);
        }
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Read for &Stream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &self.session else { return (&self.socket).read(target) };
        let mut incoming = lock(&session.incoming);
        loop {
            if let Some(read) = session.decrypt(&mut incoming, target)? {
                return Ok(read);
            }
            incoming.start = 0;
            incoming.end = 0;
            // Frames know their lengths, so an end without a farewell is an end.
            match (&self.socket).read(&mut incoming.bytes)? {
                0 => return Ok(0),
                read => incoming.end = read,
            }
        }
    }
}

impl Session {
    /// Decrypts what has come; nothing if that is not enough.
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
            *start += tls.read_tls(&mut &bytes[*start..*end])?;
            tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    fn encrypt(&self, bytes: &[u8], outgoing: &mut Vec<u8>) -> io::Result<usize> {
        let mut tls = lock(&self.tls);
        let taken = tls.writer().write(&bytes[..bytes.len().min(WRITE_BYTES)])?;
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
        let taken = session.encrypt(bytes, &mut outgoing)?;
        (&self.socket).write_all(&outgoing)?;
        outgoing.clear();
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.socket).flush()
    }
}
