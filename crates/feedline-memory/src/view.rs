//! Shared memory of another process, as this one sees it.
//!
//! In: a descriptor that came from elsewhere. Out: its bytes, which this process may change without anybody seeing it: pages that
//! are written to become its own. Always true: V1 a view has mapped `len` bytes at `start` until it is dropped; V2 the file
//! behind it cannot become shorter, so reading it never ends the process.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Mapped memory of another process.
#[derive(Debug)]
pub struct View {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: V1, the mapping is owned and has no thread affinity.
unsafe impl Send for View {}
// SAFETY: V1, shared access only reads; who writes through an address takes care of that himself.
unsafe impl Sync for View {}

impl View {
    /// Maps the first `len` bytes; an error if there are fewer, or if there may be fewer later.
    pub fn map(file: &OwnedFd, len: usize) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(file)?;
        let has = rustix::fs::fstat(file)?.st_size;
        if !seals.contains(SealFlags::SHRINK) || u64::try_from(has).unwrap_or(0) < len as u64 || len == 0 {
            let problem = format!("shared memory of {has} bytes is not what was promised: {len} bytes that stay");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, flags, file.as_fd(), 0) }?;
        Ok(Self { start: NonNull::new(start.cast()).expect("the system maps nothing at address 0"), len })
    }

    /// The address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes; never true.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: V1; mapped with this very length and not unmapped before.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        unmapped.expect("what was mapped can be unmapped");
    }
}
