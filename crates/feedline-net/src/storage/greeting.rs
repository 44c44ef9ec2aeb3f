//! The handshake of a connection: authenticates the client.
//!
//! In: a stream of an unknown client. Out: a [`Greeted`] connection, or an error for the client. It must complete within
//! [`HANDSHAKE_TIME`], and no message before the welcome exceeds [`MAX_BYTES`].

use std::io;
use std::time::Duration;

use super::token::Token;
use crate::tls::{Identity, Stream};
use crate::wire::{Frame, PROTOCOL, Reply, Request, Sequence, WireError, engine_version};

/// Upper limit of the duration of the handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Upper limit of a message before the welcome.
const MAX_BYTES: u64 = 4096;

/// A connection of an authenticated client.
#[derive(Debug)]
pub(super) struct Greeted {
    pub stream: Stream,
    pub incoming: Sequence,
    pub outgoing: Sequence,
}

/// Authenticates a client. A client that is rejected is told why.
pub(super) fn greet(
    socket: std::net::TcpStream,
    token: Option<&Token>,
    identity: Option<&Identity>,
) -> Result<Greeted, WireError> {
    let (incoming, outgoing) = (Sequence::default(), Sequence::default());
    let mut greeted = match Stream::accept(socket, HANDSHAKE_TIME, identity) {
        Ok(stream) => Greeted { stream, incoming, outgoing },
        Err((stream, error)) => {
            Greeted { stream, incoming, outgoing }.reject(&error);
            return Err(error);
        }
    };
    match greeted.check(token) {
        Ok(()) => Ok(greeted),
        Err(error) => {
            greeted.reject(&error);
            Err(error)
        }
    }
}

impl Greeted {
    fn check(&mut self, token: Option<&Token>) -> Result<(), WireError> {
        let hello = match self.next() {
            Err(WireError::Magic { found }) if Stream::is_tls(found) => {
                let reason = "this server does not use TLS; use feedline:// in place of feedlines://";
                return Err(WireError::Refused(reason.to_owned()));
            }
            Err(WireError::Magic { found }) if found.starts_with(b"FLN") => {
                let reason =
                    "the client has another version of the protocol; install the same version of feedline on both";
                return Err(WireError::Refused(reason.to_owned()));
            }
            other => other?,
        };
        let Request::Hello { protocol, engine } = hello.message()? else { return Err(WireError::Unexpected) };
        let own = engine_version();
        if protocol != PROTOCOL || engine != own {
            let reason = format!(
                "the client has protocol {protocol} with engine {engine:?}, this server has protocol {PROTOCOL} with engine \
                 {own:?}; install the same version of feedline on both"
            );
            return Err(WireError::Refused(reason));
        }
        let Some(token) = token else { return Ok(()) };
        let mut challenge = [0; 32];
        // A fresh challenge for each connection, so that a recorded proof is worthless.
        getrandom::fill(&mut challenge).map_err(io::Error::other)?;
        self.send(&Reply::Challenge { challenge })?;
        let Request::Proof { proof } = self.next()?.message()? else { return Err(WireError::Unexpected) };
        if token.accepts(&challenge, &proof) {
            return Ok(());
        }
        Err(WireError::Refused("the token is wrong or missing; set FEEDLINE_TOKEN_FILE to the server's".to_owned()))
    }

    fn next(&mut self) -> Result<Frame, WireError> {
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        Frame::read(&mut &self.stream, &mut self.incoming, MAX_BYTES)?.ok_or_else(|| gone().into())
    }

    fn send(&mut self, reply: &Reply) -> Result<(), WireError> {
        Ok(Frame::new(0, reply, Vec::new())?.write(&mut &self.stream, &mut self.outgoing)?)
    }

    /// Accepts the client.
    pub(super) fn welcome(&mut self) -> Result<(), WireError> {
        self.send(&Reply::Welcome)?;
        Ok(self.stream.lift_deadline()?)
    }

    /// Tells a client why it is rejected, and ends the connection.
    pub(super) fn reject(&mut self, why: &WireError) {
        let reason = why.to_string();
        let reply = match why {
            WireError::Refused(_) => Reply::Refused { reason },
            WireError::Busy(_) => Reply::Busy { reason },
            // Other errors mean a broken connection or another protocol. A reply would not be understood.
            _ => return,
        };
        match self.send(&reply) {
            Ok(()) => self.stream.end_after_refusal(),
            Err(error) => tracing::debug!(%error, "could not tell a client why it is rejected"),
        }
    }
}
