//! One connection of a server: who it is, its requests, its replies.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::engine::{Cancel, NoMemory};
use feedline_core::error::chain;
use feedline_core::store::{Object, Room, StoreError, Version};
use feedline_core::supply::{Asked, NearWorkspace, PrepareError};

use super::cpu::Cpu;
use super::fair::{Fair, Next};
use super::plans::Plans;
use super::root::Root;
use super::tally::{Outcome, Tally};
use super::throttle::{PIECE_BYTES, Throttle};
use super::token::Token;
use crate::tls::{Identity, Stream};
use crate::wire::{Failure, Frame, MOST_REQUEST_BYTES, PROTOCOL, Reply, Request, WireError, engine_version};

/// How long a client may take to say who it is.
pub(super) const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// How long a client may take none of what is sent to it.
pub(super) const SEND_TIME: Duration = Duration::from_secs(30);
/// How long a client hears nothing: a request that takes long is not a server that is gone.
const STILL_HERE: Duration = Duration::from_secs(15);
/// The longest part of a file in one reply.
pub(super) const MOST_READ_BYTES: u64 = 256 << 20;

/// Finds out who the other side is; an error if it may not ask.
pub(super) fn greet(stream: &Stream, token: Option<&Token>) -> Result<(), WireError> {
    let hello = match next(stream) {
        Err(WireError::Magic { found }) if Stream::is_tls(found) => {
            let reason = "this server speaks no TLS; use feedline:// in place of feedlines://";
            return Err(WireError::Refused(reason.to_owned()));
        }
        other => other?,
    };
    let Request::Hello { protocol, engine } = hello.message()? else { return Err(WireError::Unexpected) };
    let own = engine_version();
    if protocol != PROTOCOL || engine != own {
        let reason = format!(
            "the client speaks protocol {protocol} with engine {engine:?}, this server protocol {PROTOCOL} with engine {own:?}; \
             install the same version of feedline on both"
        );
        return Err(WireError::Refused(reason));
    }
    if let Some(token) = token {
        let mut challenge = [0; 32];
        getrandom::fill(&mut challenge).map_err(io::Error::other)?;
        Frame::new(0, &Reply::Challenge { challenge }, Vec::new())?.write(&mut &*stream)?;
        let Request::Proof { proof } = next(stream)?.message()? else { return Err(WireError::Unexpected) };
        if !token.accepts(&challenge, &proof) {
            let reason = "the token is wrong or missing; set FEEDLINE_TOKEN_FILE to the server's";
            return Err(WireError::Refused(reason.to_owned()));
        }
    }
    Frame::new(0, &Reply::Welcome, Vec::new())?.write(&mut &*stream)?;
    stream.lift_deadline()?;
    Ok(())
}

fn next(mut stream: &Stream) -> Result<Frame, WireError> {
    let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
    Frame::read(&mut stream, 4096)?.ok_or_else(|| gone().into())
}

/// Tells somebody that he may not ask, and ends the connection.
pub(super) fn refuse(mut stream: &Stream, reason: &str) -> Result<(), WireError> {
    Frame::new(0, &Reply::Refused { reason: reason.to_owned() }, Vec::new())?.write(&mut stream)?;
    stream.end_after_refusal();
    Ok(())
}

/// Receives requests until the connection ends.
pub(super) fn receive(mut stream: &Stream, number: u64, shared: &Shared) -> Result<(), WireError> {
    let mut meter = shared.cpu.meter();
    while let Some(request) = Frame::read(&mut stream, MOST_REQUEST_BYTES)? {
        if !shared.fair.put_request(number, request) {
            break;
        }
        meter.charge();
    }
    Ok(())
}

/// Sends replies until the connection ends.
pub(super) fn send(stream: &Stream, number: u64, shared: &Shared) {
    let mut to = Throttled { stream, throttle: shared.throttle.as_deref() };
    let mut meter = shared.cpu.meter();
    loop {
        let next = shared.fair.next_reply(number, STILL_HERE);
        let began = Instant::now();
        let sent = match &next {
            Next::Reply(reply) => reply.write(&mut to).map_err(WireError::from),
            Next::NotYet => Frame::new(0, &Reply::Welcome, Vec::new()).and_then(|frame| Ok(frame.write(&mut to)?)),
            Next::Ended => break,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a client takes no more");
            break;
        }
        if let Next::Reply(reply) = next {
            shared.fair.sent(number, reply.wire_bytes(), began.elapsed());
            shared.tally.sent_bytes.fetch_add(reply.wire_bytes(), Ordering::Relaxed);
        }
        meter.charge();
    }
    // Wakes the thread that receives.
    stream.end();
}

struct Throttled<'a> {
    stream: &'a Stream,
    throttle: Option<&'a Throttle>,
}

impl Write for Throttled<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(throttle) = self.throttle else { return self.stream.write(bytes) };
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        throttle.wait(piece.len());
        self.stream.write_all(piece)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Does what a request asks for.
pub(super) fn answer(
    (number, request): (u64, &Frame),
    root: &Root,
    shared: &Shared,
    workspace: &mut NearWorkspace,
) -> Result<Frame, WireError> {
    let unreadable =
        |error: WireError| (Reply::Failed { failure: Failure::Other, reason: error.to_string() }, "unreadable");
    let done = request.message().map_err(unreadable).and_then(|asked: Request| {
        let kind = asked.kind();
        serve_request(asked, number, root, shared, workspace).map(|done| (done, kind)).map_err(|failed| (failed, kind))
    });
    let (reply, bytes) = match done {
        Ok(((reply, bytes), kind)) => {
            shared.tally.add_request(kind, Outcome::Done);
            shared.tally.content_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            (reply, bytes)
        }
        Err((failed, kind)) => {
            shared.tally.add_request(kind, Outcome::Failed);
            (failed, Vec::new())
        }
    };
    Frame::new(request.request, &reply, bytes)
}

/// Says that a request could not be done because of a bug.
pub(super) fn failed(request: &Frame) -> Result<Frame, WireError> {
    let reason = "the server panicked at this request, which is a bug; its log says more".to_owned();
    Frame::new(request.request, &Reply::Failed { failure: Failure::Other, reason }, Vec::new())
}

/// The reply and its bytes, or the reply that says why there are none.
fn serve_request(
    asked: Request,
    number: u64,
    root: &Root,
    shared: &Shared,
    workspace: &mut NearWorkspace,
) -> Result<(Reply, Vec<u8>), Reply> {
    match asked {
        Request::Prepare { plan, asked } => prepare(plan, &asked, (number, shared), workspace),
        Request::Plan { text, listing } => match shared.plans.open(&text, listing) {
            Ok(()) => Ok((Reply::Planned, Vec::new())),
            Err(reason) => Err(Reply::Failed { failure: Failure::Other, reason }),
        },
        asked => read(asked, root),
    }
}

fn prepare(
    plan: u128,
    asked: &Asked,
    (number, shared): (u64, &Shared),
    workspace: &mut NearWorkspace,
) -> Result<(Reply, Vec<u8>), Reply> {
    let unknown = || Reply::Failed { failure: Failure::UnknownPlan, reason: "the plan is not known".to_owned() };
    let preparer = shared.plans.get(plan).ok_or_else(unknown)?;
    let failed = |error: PrepareError| Reply::Failed { failure: Failure::Other, reason: chain(&error) };
    let (bytes, mut spent) = preparer.prepare(asked, workspace).map_err(failed)?;
    if bytes.len() as u64 > MOST_READ_BYTES {
        let reason = format!("{} bytes are more than a reply takes", bytes.len());
        return Err(Reply::Failed { failure: Failure::TooLong, reason });
    }
    spent.bytes_per_second = shared.fair.bytes_per_second(number);
    spent.cores = (shared.cpu.cores() / shared.fair.busy().max(1) as f64) as f32;
    Ok((Reply::Prepared(spent), bytes))
}

impl From<StoreError> for Reply {
    fn from(error: StoreError) -> Self {
        let failure = match error {
            StoreError::NotFound { .. } => Failure::NotFound,
            StoreError::Truncated { .. } => Failure::Truncated,
            StoreError::Memory(_) => Failure::TooLong,
            _ => Failure::Other,
        };
        Self::Failed { failure, reason: chain(&error) }
    }
}

/// What a request about files asks for.
fn read(asked: Request, root: &Root) -> Result<(Reply, Vec<u8>), Reply> {
    match asked {
        Request::Plan { .. } | Request::Prepare { .. } => unreachable!("these are not about files"),
        Request::Hello { .. } | Request::Proof { .. } => {
            Err(Reply::Failed { failure: Failure::Other, reason: "the client was greeted before".to_owned() })
        }
        Request::List { folder, is_flat } => {
            let store = root.below(&folder)?;
            // Folders of the root are told too, as `name/`: an empty one may be a class.
            let folders = Mutex::new(Vec::new());
            let accept = |name: &str| {
                if name.ends_with('/') {
                    folders.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), None));
                }
                true
            };
            let names = if is_flat { store.list_flat(&accept)? } else { store.list(&accept)? };
            let mut told: Vec<_> = names.iter().map(|name| (name.to_owned(), store.version(name))).collect();
            told.extend(folders.into_inner().unwrap_or_else(PoisonError::into_inner));
            Ok((Reply::Names(told), Vec::new()))
        }
        Request::Open { name } => {
            let object = root.whole().open(&name)?;
            Ok((Reply::Opened(version_of(&*object)), Vec::new()))
        }
        Request::Read { name, offset, len, version } => {
            let object = root.whole().open(&name)?;
            check_version(&*object, version)?;
            if offset.checked_add(len).is_none_or(|end| end > object.len()) {
                let range = offset..offset.saturating_add(len);
                return Err(StoreError::Truncated { path: name, range, len: object.len() }.into());
            }
            let mut bytes = Vec::new();
            object.read_at(offset, Limited(&mut bytes).room(len as usize).map_err(StoreError::from)?)?;
            Ok((Reply::Bytes, bytes))
        }
        Request::ReadAll { name } => {
            let mut bytes = Vec::new();
            root.whole().read(&name, &mut Limited(&mut bytes))?;
            Ok((Reply::Bytes, bytes))
        }
    }
}

fn version_of(object: &dyn Object) -> Version {
    Version { len: object.len(), modified_nanoseconds: object.modified_nanoseconds() }
}

/// An error if a file is not the one that the client has opened: bytes of two files are never mixed.
fn check_version(object: &dyn Object, opened: Option<Version>) -> Result<(), Reply> {
    let now = version_of(object);
    match opened {
        Some(opened) if opened != now => {
            let told = |version: Version| format!("{} bytes of {:?}", version.len, version.modified_nanoseconds);
            Err(Reply::Failed { failure: Failure::Changed, reason: format!("{}, not {}", told(now), told(opened)) })
        }
        _ => Ok(()),
    }
}

/// Memory for a reply that is not too long.
struct Limited<'a>(&'a mut Vec<u8>);

impl Room for Limited<'_> {
    fn room(&mut self, len: usize) -> Result<&mut [u8], NoMemory> {
        if len as u64 > MOST_READ_BYTES {
            return Err(NoMemory::TooLarge { bytes: len as u64, memory: MOST_READ_BYTES });
        }
        self.0.resize(len, 0);
        Ok(self.0)
    }
}

/// What a connection's threads need.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub fair: Arc<Fair>,
    pub cpu: Arc<Cpu>,
    pub tally: Arc<Tally>,
    pub throttle: Option<Arc<Throttle>>,
    pub token: Option<Token>,
    pub identity: Option<Identity>,
    pub plans: Arc<Plans>,
    pub cancel: Cancel,
}
