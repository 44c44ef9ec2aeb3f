//! A connection between a job and a node: frames, some with a file descriptor.
//!
//! Always true: a message has at most one descriptor, which belongs to the bytes it was sent with. Unexpected descriptors are
//! closed.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use feedline_memory::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::descriptors::{receive_with, send_with};
use crate::wire::{Frame, Sequence, WireError};

/// Upper limit of a message. A plan with long lists may be large.
const MAX_BYTES: u64 = 256 << 20;

/// How long sending a message may take. The other side reads all the time.
const SEND_TIME: Duration = Duration::from_secs(20);

/// The sending half of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    stream: Mutex<(UnixStream, Sequence)>,
    /// The same socket, for a thread that cannot wait for the lock.
    ending: UnixStream,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiver {
    stream: UnixStream,
    sequence: Sequence,
    descriptors: VecDeque<OwnedFd>,
}

/// Splits a connection into its halves.
pub(super) fn split(stream: UnixStream) -> io::Result<(Sender, Receiver)> {
    // Three handles of one socket: to send (behind a lock), to receive, and to shut down without that lock.
    let (receiving, ending) = (stream.try_clone()?, stream.try_clone()?);
    stream.set_write_timeout(Some(SEND_TIME))?;
    let (sequence, descriptors) = (Sequence::default(), VecDeque::new());
    let sender = Sender { stream: Mutex::new((stream, Sequence::default())), ending };
    Ok((sender, Receiver { stream: receiving, sequence, descriptors }))
}

impl Sender {
    /// Sends a message, optionally with a descriptor.
    pub(super) fn send(&self, message: &impl Serialize, descriptor: Option<BorrowedFd<'_>>) -> Result<(), WireError> {
        let (frame, mut bytes) = (Frame::new(0, message, Vec::new())?, Vec::new());
        let mut guard = self.stream.lock();
        let (stream, sequence) = &mut *guard;
        // Under the lock, because the checksum of the frame contains its number in the sequence.
        frame.write(&mut bytes, sequence)?;
        let sent = match &descriptor {
            // A descriptor travels with the first bytes of its frame. The kernel may take only a part of them; the rest follows
            // without it.
            Some(descriptor) => send_with(stream, &bytes, *descriptor)?,
            None => 0,
        };
        Ok(stream.write_all(&bytes[sent..])?)
    }

    /// Ends the connection in both directions.
    pub(super) fn end(&self) {
        // It may have ended already.
        self.ending.shutdown(Shutdown::Both).unwrap_or_default();
    }
}

impl Receiver {
    /// Receives a message and its descriptor. `None` if the other side has ended the connection.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Option<OwnedFd>)>, WireError> {
        // Taken out for the call, because `Frame::read` borrows `self` as its stream.
        let mut sequence = std::mem::take(&mut self.sequence);
        let frame = Frame::read(&mut *self, &mut sequence, MAX_BYTES);
        self.sequence = sequence;
        let Some(frame) = frame? else { return Ok(None) };
        let descriptor = self.descriptors.pop_front();
        // A message has at most one descriptor. Dropping the others closes them, so a hostile peer cannot exhaust ours.
        self.descriptors.clear();
        Ok(Some((frame.message()?, descriptor)))
    }

    /// User and process id of the other side.
    pub(super) fn peer(&self) -> io::Result<(u32, u32)> {
        let peer = rustix::net::sockopt::socket_peercred(self.stream.as_fd())?;
        Ok((peer.uid.as_raw(), peer.pid.as_raw_nonzero().get().cast_unsigned()))
    }

    /// Limits how long receiving may wait.
    pub(super) fn set_patience(&self, patience: Option<std::time::Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)
    }
}

impl Read for Receiver {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        receive_with(&self.stream, target, &mut self.descriptors)
    }
}
