//! A server's answers to requests.
//!
//! In: a request. Out: a reply, or the amount of memory that it needs and that is not free. Then the request waits, and the thread
//! continues with another one. Memory for a reply is reserved before it is allocated. The length of a listing or of a prepared
//! sample is not known in advance, so the length of the longest one so far is reserved. A longer listing waits until the rest is
//! free. A longer sample is sent anyway, so it may exceed the memory limit.

use std::sync::atomic::Ordering;

use feedline_data::failure::chain;
use feedline_data::memory::NoMemory;
use feedline_data::store::{BufferSource, Object, PeerRequest, StoreError, Version};
use feedline_engine::supply::{NearWorkspace, PrepareError};

use super::fair::Reservation;
use super::root::Root;
use super::session::Shared;
use super::tally::Outcome;
use crate::wire::{Failure, Frame, Reply, Request, WireError};

/// Upper limit of a file part in one reply.
pub(super) const MAX_READ_BYTES: u64 = 16 << 20;
/// Upper limit of a sample in one reply.
const MAX_SAMPLE_BYTES: u64 = 256 << 20;
/// Least memory to reserve for a listing, in bytes.
const LISTING_BYTES: u64 = 1 << 20;

/// The result of a request.
#[derive(Debug)]
pub(super) enum Answered {
    Reply(Frame),
    /// This many bytes were not free. The request must be answered again later.
    NoRoom(u64),
}

/// Why a request could not be served.
enum Refusal {
    /// It failed. The client gets this reply.
    Reply(Reply),
    /// This many bytes were not free.
    NoRoom(u64),
}

type Answer = Result<(Reply, Vec<u8>), Refusal>;

/// Answers a request. The memory of the reply comes from `reservation`.
pub(super) fn answer(
    request: &Frame,
    root: &Root,
    shared: &Shared,
    reservation: &mut Reservation<'_>,
    workspace: &mut NearWorkspace,
) -> Result<Answered, WireError> {
    let (done, kind) = match request.message::<Request>() {
        Ok(request) => {
            let kind = request.kind();
            (serve_request(request, root, shared, reservation, workspace), kind)
        }
        Err(error) => (Err(refused(Failure::Other, error.to_string())), "unreadable"),
    };
    let (reply, bytes, outcome) = match done {
        Ok((reply, bytes)) => (reply, bytes, Outcome::Done),
        Err(Refusal::Reply(reply)) => (reply, Vec::new(), Outcome::Failed),
        Err(Refusal::NoRoom(bytes)) => return Ok(Answered::NoRoom(bytes)),
    };
    // Relaxed, here and below: statistics that guard no data.
    shared.tally.add_request(kind, outcome);
    shared.tally.content_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(Answered::Reply(Frame::new(request.request, &reply, bytes)?))
}

/// The reply for a failed request.
pub(super) fn failed(request: &Frame, reason: &str) -> Result<Frame, WireError> {
    Frame::new(request.request, &Reply::Failed { failure: Failure::Other, reason: reason.to_owned() }, Vec::new())
}

/// A failure of this kind, as a reply.
fn refused(failure: Failure, reason: String) -> Refusal {
    Refusal::Reply(Reply::Failed { failure, reason })
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let failure = match error {
            StoreError::Memory(NoMemory::NotNow { bytes }) => return Self::NoRoom(bytes),
            StoreError::Memory(NoMemory::Limited { .. }) => Failure::TooLong,
            StoreError::NotFound { .. } => Failure::NotFound,
            StoreError::Truncated { .. } => Failure::Truncated,
            _ => Failure::Other,
        };
        refused(failure, chain(&error))
    }
}

impl From<NoMemory> for Refusal {
    fn from(error: NoMemory) -> Self {
        StoreError::from(error).into()
    }
}

fn serve_request(
    request: Request,
    root: &Root,
    shared: &Shared,
    reservation: &mut Reservation<'_>,
    workspace: &mut NearWorkspace,
) -> Answer {
    match request {
        Request::Hello { .. } | Request::Proof { .. } | Request::Alive => {
            Err(refused(Failure::Other, "the handshake of this client is already complete".to_owned()))
        }
        Request::Prepare { plan, peer_request } => prepare(plan, &peer_request, shared, reservation, workspace),
        Request::Plan { text, listing } => match shared.plans.open(&text, listing) {
            Ok(()) => Ok((Reply::Planned, Vec::new())),
            Err(reason) => Err(refused(Failure::Other, reason)),
        },
        Request::List { folder, is_flat } => {
            let limit = shared.fair.memory_bytes;
            // The length is known only after listing. The longest listing so far is the best estimate, within the memory limit.
            let expected = shared.longest_listing.load(Ordering::Relaxed).clamp(LISTING_BYTES.min(limit), limit);
            reservation.reserve(expected)?;
            let listing = root.listing(&folder, is_flat)?;
            shared.longest_listing.fetch_max(listing.bytes(), Ordering::Relaxed);
            // If the rest is not free, this returns `NoRoom`, and the folder is listed again later. A listing longer than the limit
            // reserves only the limit: otherwise it could never be sent.
            let more = listing.bytes().min(limit).saturating_sub(expected);
            if more > 0 {
                reservation.reserve(more)?;
            }
            let left_out = listing.left_out;
            Ok((Reply::Names { names: listing.into_entries(), left_out }, Vec::new()))
        }
        Request::Open { name } => {
            let object = root.whole().open(&name)?;
            Ok((Reply::Opened(version_of(&*object)), Vec::new()))
        }
        Request::Read { name, offset, len, version } => {
            let object = root.whole().open(&name)?;
            check_version(&*object, version)?;
            // Both numbers come from the client, so their sum may overflow.
            if offset.checked_add(len).is_none_or(|end| end > object.len()) {
                let range = offset..offset.saturating_add(len);
                return Err(StoreError::Truncated { path: name, range, len: object.len() }.into());
            }
            let mut room = ReplyRoom { bytes: Vec::new(), reservation };
            object.read_at(offset, room.room(usize::try_from(len).unwrap_or(usize::MAX))?)?;
            Ok((Reply::Bytes, room.bytes))
        }
        Request::ReadAll { name } => {
            let mut room = ReplyRoom { bytes: Vec::new(), reservation };
            root.whole().read(&name, &mut room)?;
            Ok((Reply::Bytes, room.bytes))
        }
    }
}

fn prepare(
    plan: u128,
    peer_request: &PeerRequest,
    shared: &Shared,
    reservation: &mut Reservation<'_>,
    workspace: &mut NearWorkspace,
) -> Answer {
    let unknown = || refused(Failure::UnknownPlan, "the plan is not known".to_owned());
    let plan = shared.plans.get(plan).ok_or_else(unknown)?;
    // The longest reply so far is the best estimate. The first reply of a plan reserves nothing. Replies that turn out longer than
    // reserved exceed the limit by at most one reply per worker.
    reservation.reserve(plan.longest_reply.load(Ordering::Relaxed))?;
    let failed = |error: PrepareError| {
        let failure = if matches!(error, PrepareError::Changed { .. }) { Failure::Changed } else { Failure::Other };
        refused(failure, chain(&error))
    };
    let (bytes, mut spent) = plan.preparer.prepare(peer_request, workspace).map_err(failed)?;
    let len = bytes.len() as u64;
    plan.longest_reply.fetch_max(len, Ordering::Relaxed);
    // The length is known only now.
    if len > MAX_SAMPLE_BYTES {
        return Err(NoMemory::Limited { bytes: len, limit: MAX_SAMPLE_BYTES }.into());
    }
    spent.bytes_per_second = reservation.bytes_per_second();
    // The cores that this client can expect: an equal share among the connections that have work now.
    spent.cores = (shared.cpu.cores() / shared.fair.busy().max(1) as f64) as f32;
    Ok((Reply::Prepared(spent), bytes))
}

fn version_of(object: &dyn Object) -> Version {
    Version { len: object.len(), modified_nanoseconds: object.modified_nanoseconds() }
}

/// Fails if a file changed since the client opened it. Bytes of two versions are never mixed.
fn check_version(object: &dyn Object, opened: Option<Version>) -> Result<(), Refusal> {
    let now = version_of(object);
    match opened {
        Some(opened) if opened != now => Err(refused(Failure::Changed, now.difference_to(opened))),
        _ => Ok(()),
    }
}

/// Memory for the bytes of a reply.
struct ReplyRoom<'a, 'b> {
    bytes: Vec<u8>,
    reservation: &'a mut Reservation<'b>,
}

impl BufferSource for ReplyRoom<'_, '_> {
    fn room(&mut self, len: usize) -> Result<&mut [u8], NoMemory> {
        let bytes = len as u64;
        if bytes > MAX_READ_BYTES {
            return Err(NoMemory::Limited { bytes, limit: MAX_READ_BYTES });
        }
        self.reservation.reserve(bytes)?;
        // Fallible: a refused allocation becomes an error reply, not an abort.
        self.bytes.try_reserve_exact(len).map_err(|_| NoMemory::Exhausted { bytes })?;
        self.bytes.resize(len, 0);
        Ok(&mut self.bytes)
    }
}
