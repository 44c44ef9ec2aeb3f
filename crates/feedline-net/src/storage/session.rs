//! One connection of a server: its requests and replies.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use feedline_data::memory::Cancel;

use super::cpu::Cpu;
use super::fair::{FairQueue, NextReply};
use super::plans::Plans;
use super::tally::ServerTally;
use super::throttle::{PIECE_BYTES, Throttle};
use super::token::Token;
use crate::tls::{Identity, Stream};
use crate::wire::{Frame, FrameHead, MAX_REQUEST_BYTES, Paced, Reply, Request, Sequence, WireError};

/// How long a client may not read what is sent.
pub(super) const SEND_TIME: Duration = Duration::from_secs(30);
/// Interval between signs of life, so that a slow request does not look like a dead server. It is longer than any pause within a
/// frame, so that a sign of life never fills a gap.
const STILL_HERE: Duration = Duration::from_secs(15);
/// How long one request may take to arrive.
const REQUEST_TIME: Duration = Duration::from_mins(1);

/// What a connection's threads need.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub fair: Arc<FairQueue>,
    pub cpu: Arc<Cpu>,
    pub tally: Arc<ServerTally>,
    pub throttle: Option<Arc<Throttle>>,
    pub token: Option<Token>,
    pub identity: Option<Identity>,
    pub plans: Arc<Plans>,
    /// Bytes of the longest listing so far. The next one may be as long.
    pub longest_listing: Arc<AtomicU64>,
    pub cancel: Cancel,
}

/// Receives requests until the connection ends.
pub(super) fn receive(stream: &Stream, sequence: &mut Sequence, number: u64, shared: &Shared) -> Result<(), WireError> {
    let mut meter = shared.cpu.meter();
    let mut from = Paced::new(stream, Some(REQUEST_TIME));
    loop {
        from.begin_frame();
        let Some(head) = FrameHead::read(&mut from, sequence, MAX_REQUEST_BYTES)? else { return Ok(()) };
        // The head announces the length. A long request waits for a permit before its bytes are read into memory.
        let Some(admission) = shared.fair.admit(number, head.rest_bytes()) else { return Ok(()) };
        let (request, _) = head.rest(&mut from)?;
        // A sign of life only counts for its place in the sequence.
        let is_alive = matches!(request.message(), Ok(Request::Alive));
        if !is_alive && !shared.fair.put_request(number, request, admission) {
            return Ok(());
        }
        meter.charge();
    }
}

/// Sends replies until the connection ends.
pub(super) fn send(stream: &Stream, sequence: &mut Sequence, number: u64, shared: &Shared) {
    let mut to = Sending { stream, number, shared };
    let mut meter = shared.cpu.meter();
    loop {
        let next = shared.fair.next_reply(number, STILL_HERE);
        let began = Instant::now();
        let sent = match &next {
            NextReply::Reply(reply) => reply.write(&mut to, sequence).map_err(WireError::from),
            NextReply::NotYet => Frame::new(0, &Reply::Alive, Vec::new())
                .and_then(|frame| frame.write(&mut to, sequence).map_err(WireError::from)),
            NextReply::Ended => break,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "could not send to a client");
            break;
        }
        if let NextReply::Reply(reply) = next {
            let bytes = reply.wire_bytes();
            // Freed before it is counted as sent, so that the memory is really available to others.
            drop(reply);
            shared.fair.sent(number, bytes, began.elapsed());
            shared.tally.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        meter.charge();
    }
    // Wakes the receiving thread.
    stream.end();
}

/// Writes replies, limited in speed.
struct Sending<'a> {
    stream: &'a Stream,
    number: u64,
    shared: &'a Shared,
}

impl Write for Sending<'_> {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        let mut to = self.stream;
        if self.shared.fair.must_yield(self.number) {
            let text = "the client reads its reply too slowly while other requests wait for the memory";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        let Some(throttle) = &self.shared.throttle else { return to.write(bytes) };
        // Small pieces: a long write would send everything at full speed and wait only afterwards.
        bytes = &bytes[..bytes.len().min(PIECE_BYTES)];
        throttle.wait(bytes.len());
        to.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut to = self.stream;
        to.flush()
    }
}
