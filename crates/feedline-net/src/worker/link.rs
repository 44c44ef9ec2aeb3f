//! The connection to one worker.
//!
//! In: a frame. Out: the reply. The caller waits in short intervals, so that a closing run does not wait for a slow sample. A worker
//! that ends closes its socket, so its loss is noticed at once.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::descriptors::{receive_with, send_with};

use super::frame::{MAX_FRAME, read_hello};

/// Interval at which a waiting thread checks whether it should end.
const POLL: Duration = Duration::from_millis(50);
/// Upper limit of stacks that are read at once.
const MAX_STACK: usize = 64 << 10;
/// Slabs that count as mapped by a worker. A worker keeps as many mappings (`torch/worker/maker.py`), and each keeps its memory allocated, even
/// after this process has freed it. So there are few.
const MAX_SLABS: usize = 64;

/// A connected worker.
#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    /// Its memory for payloads, and the file into which it writes its Python stack when asked. Known once it said hello.
    files: Option<Arc<WorkerFiles>>,
    /// The slabs that it has mapped.
    slabs: HashSet<u64>,
    body: Vec<u8>,
    pub(super) frame: Vec<u8>,
}

/// The files of a worker.
#[derive(Debug)]
pub(super) struct WorkerFiles {
    arena: File,
    stack: Option<File>,
}

/// Why a worker gave no reply.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the caller was told to end")]
    Cancelled,
    #[error("the worker has ended")]
    Lost(#[source] io::Error),
    #[error("{0}")]
    Answer(String),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl Link {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, files: None, slabs: HashSet::new(), body: Vec::new(), frame: Vec::new() }
    }

    /// Whether the worker has to map a slab first. Afterwards it counts as mapped.
    pub(super) fn is_new_slab(&mut self, number: u64) -> bool {
        self.slabs.insert(number)
    }

    /// Whether so many slabs count as mapped that they should be forgotten here.
    pub(super) fn has_many_slabs(&self) -> bool {
        self.slabs.len() >= MAX_SLABS
    }

    /// Forgets all slabs. The worker keeps only the latest [`MAX_SLABS`] mappings.
    pub(super) fn forget_slabs(&mut self) {
        self.slabs.clear();
    }

    /// Ends the connection. Every further request finds the worker lost.
    pub(super) fn end(&self) {
        // It may have ended already.
        self.stream.shutdown(Shutdown::Both).unwrap_or_default();
    }

    /// Sends `self.frame`, with a descriptor, and waits for the reply.
    pub(super) fn ask(
        &mut self,
        descriptor: Option<BorrowedFd<'_>>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<&[u8], LinkError> {
        self.greet(is_cancelled)?;
        let sent = descriptor.map_or(Ok(0), |descriptor| send_with(&self.stream, &self.frame, descriptor))?;
        self.stream.write_all(&self.frame[sent..])?;
        self.receive(is_cancelled)?;
        Ok(&self.body)
    }

    /// Waits for the hello of the worker, once. Returns its files.
    pub(super) fn greet(&mut self, is_cancelled: &dyn Fn() -> bool) -> Result<Arc<WorkerFiles>, LinkError> {
        if let Some(files) = &self.files {
            return Ok(Arc::clone(files));
        }
        let mut descriptors = self.receive(is_cancelled)?.into_iter();
        read_hello(&self.body).map_err(LinkError::Answer)?;
        let arena = descriptors.next().ok_or_else(|| LinkError::Answer("its hello has no memory".to_owned()))?;
        let files = Arc::new(WorkerFiles { arena: arena.into(), stack: descriptors.next().map(File::from) });
        Ok(Arc::clone(self.files.insert(files)))
    }

    /// Receives a frame into `self.body`. Returns the descriptors that came with it.
    fn receive(&mut self, is_cancelled: &dyn Fn() -> bool) -> Result<Vec<OwnedFd>, LinkError> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL.as_nanos() as i64 };
        loop {
            let mut polled = [PollFd::new(&self.stream, PollFlags::IN)];
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) if is_cancelled() => return Err(LinkError::Cancelled),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(LinkError::Lost(error.into())),
            }
        }
        let mut head = [0; 4];
        let mut descriptors = Vec::new();
        let mut got = 0;
        while got < head.len() {
            got += match receive_with(&self.stream, &mut head[got..], &mut descriptors)? {
                0 => return Err(LinkError::Lost(io::ErrorKind::UnexpectedEof.into())),
                bytes => bytes,
            };
        }
        let len = u32::from_le_bytes(head) as usize;
        if len > MAX_FRAME {
            return Err(LinkError::Answer(format!("a reply of {len} bytes")));
        }
        self.body.resize(len, 0);
        // The worker writes a frame at once, so the rest follows without a wait.
        self.stream.read_exact(&mut self.body)?;
        Ok(descriptors)
    }

    /// Reads a part of the worker's arena, with one spare byte of capacity.
    pub(super) fn payload(&self, offset: u64, len: u64) -> Result<Vec<u8>, LinkError> {
        let files = self.files.as_ref().expect("a worker says hello before it replies");
        // The arena is as long as the worker made it. A length beyond it must not make this process allocate.
        let has = files.arena.metadata()?.len();
        if offset.checked_add(len).is_none_or(|end| end > has) {
            return Err(LinkError::Answer(format!("{len} bytes from {offset} on of an arena of {has} bytes")));
        }
        let mut bytes = Vec::with_capacity(len as usize + 1);
        let mut arena = &files.arena;
        arena.seek(SeekFrom::Start(offset))?;
        arena.take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != len {
            return Err(LinkError::Answer("its arena has become shorter".to_owned()));
        }
        Ok(bytes)
    }
}

impl WorkerFiles {
    /// The place in the request of the sample that the worker works on.
    pub(super) fn progress(&self) -> usize {
        let mut number = [0; 8];
        let read = self.arena.read_exact_at(&mut number, 0);
        read.map_or(0, |()| u64::from_le_bytes(number) as usize)
    }

    /// The Python stacks that the worker wrote when it was asked, from byte `start` on.
    pub(super) fn stacks(&self, start: u64) -> Option<Vec<u8>> {
        let file = self.stack.as_ref()?;
        let len = file.metadata().ok()?.len().saturating_sub(start);
        let mut text = vec![0; MAX_STACK.min(usize::try_from(len).ok()?)];
        file.read_exact_at(&mut text, start).ok()?;
        Some(text)
    }
}
