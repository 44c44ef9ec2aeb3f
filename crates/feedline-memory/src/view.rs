//! Shared memory of another process, mapped into this one.
//!
//! In: a descriptor from another process. Out: its bytes. This process may change them without effect on others, because written
//! pages become private copies. Always true: V1 a mapping maps `len` bytes at `start` until it is dropped; V2 the file behind it
//! cannot shrink, so reading it never kills the process.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::Views;

/// Mapped memory of another process. When it is dropped, its [`Views`] may keep the mapping for the next view of the same memory.
#[derive(Debug)]
pub struct View {
    /// `Some` until the view is dropped.
    mapping: Option<Mapping>,
    home: Weak<Views>,
}

/// A file by device and inode, valid while it is open or mapped.
pub(crate) type FileId = (u64, u64);

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    pub(crate) file: FileId,
}

// SAFETY: V1, the mapping is owned and has no thread affinity.
unsafe impl Send for Mapping {}
// SAFETY: V1, shared access only reads; who writes through an address takes care of that himself.
unsafe impl Sync for Mapping {}

impl View {
    pub(crate) fn new(mapping: Mapping, home: &Arc<Views>) -> Self {
        Self { mapping: Some(mapping), home: Arc::downgrade(home) }
    }

    fn mapping(&self) -> &Mapping {
        self.mapping.as_ref().expect("it is there until the view is dropped")
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.mapping().start
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.mapping().len
    }

    /// Whether there are no bytes; never true.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some((home, mapping)) = self.home.upgrade().zip(self.mapping.take()) {
            home.put_back(mapping);
        }
    }
}

impl Mapping {
    /// Maps the first `len` bytes. Fails if the file is shorter, or could become shorter.
    pub(crate) fn new(file: &OwnedFd, len: usize) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(file)?;
        let stat = rustix::fs::fstat(file)?;
        let has = stat.st_size;
        if !seals.contains(SealFlags::SHRINK) || u64::try_from(has).unwrap_or(0) < len as u64 || len == 0 {
            let problem = format!("shared memory of {has} bytes is not what was promised: {len} bytes that stay");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, flags, file.as_fd(), 0) }?;
        let start = NonNull::new(start.cast()).expect("the system maps nothing at address 0");
        Ok(Self { start, len, file: (stat.st_dev, stat.st_ino) })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: V1; mapped with this very length and not unmapped before.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        unmapped.expect("what was mapped can be unmapped");
    }
}
