//! One block of zeroed memory: on the heap, or shared with other processes. Heap blocks are aligned for SIMD, and large ones for
//! huge pages.
//!
//! Always true: M1 of the crate doc. Other processes get a descriptor of shared memory. With it they can read the memory or map a
//! private copy, and write to it only if it was allocated for [`Sharing::Writers`]. Nobody can change its length.

use std::alloc::{self, Layout};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Alignment of small allocations: a cache line, which satisfies every element type and `DLPack`'s 64 bytes.
const SMALL_ALIGNMENT: usize = 64;
/// From this size on memory is aligned to huge pages and requested as such.
const HUGE_PAGE: usize = 2 << 20;

/// The number of the next shared allocation.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Number of allocations that other processes may write to. Each has a file descriptor.
static WRITABLE: AtomicUsize = AtomicUsize::new(0);
/// A process may have 1024 open files by default. Batches that a user keeps must not use them up.
const MAX_WRITABLE: usize = 256;

/// Who else may use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody: the memory is on the heap.
    Private,
    /// Other processes may read it.
    Readers,
    /// Other processes may also write to it (M6).
    Writers,
}

/// Owned bytes whose address does not change.
#[derive(Debug)]
pub struct Allocation {
    start: NonNull<u8>,
    len: usize,
    kind: Backing,
    /// Different for all shared allocations of this process, so that another process can recognise memory that it has mapped. 0 on
    /// the heap.
    number: u64,
}

#[derive(Debug)]
enum Backing {
    Heap(Layout),
    Shared { file: OwnedFd, is_writable: bool },
}

// SAFETY: M1, the allocation is owned and has no thread affinity.
unsafe impl Send for Allocation {}
// SAFETY: M1, shared access only reads; every write goes through `&mut` or through a `SlotWriter` (M3).
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Takes `len` zeroed bytes from the heap; `None` if the system does not have them.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        let alignment = if len >= HUGE_PAGE { HUGE_PAGE } else { SMALL_ALIGNMENT };
        let layout = Layout::from_size_align(len.max(1), alignment).ok()?;
        // SAFETY: the layout's size is at least 1.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start)?;
        if len >= HUGE_PAGE {
            // SAFETY: M1; the range is ours and the advice changes no contents. Refusal is harmless: ordinary pages serve.
            unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) }.unwrap_or_default();
        }
        Some(Self { start, len: layout.size(), kind: Backing::Heap(layout), number: 0 })
    }

    /// Allocates `len` zeroed bytes that other processes may write to, or on the heap if there are many such allocations already.
    pub(crate) fn writable(len: usize) -> Option<Self> {
        // Relaxed: the limit need not be exact.
        if WRITABLE.load(Ordering::Relaxed) >= MAX_WRITABLE {
            return Self::zeroed(len);
        }
        Self::shared(len, Sharing::Writers).ok().or_else(|| Self::zeroed(len))
    }

    /// Allocates `len` zeroed bytes that other processes can map.
    pub(crate) fn shared(len: usize, sharing: Sharing) -> io::Result<Self> {
        let len = len.max(1);
        let file = rustix::fs::memfd_create("feedline-slab", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Pages are allocated when they are first written, as on the heap.
        rustix::fs::ftruncate(&file, len as u64)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, flags, &file, 0) }?;
        let start = NonNull::new(start.cast()).expect("the system maps nothing at address 0");
        // Relaxed: only the numbers must differ.
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let is_writable = sharing == Sharing::Writers;
        WRITABLE.fetch_add(usize::from(is_writable), Ordering::Relaxed);
        let this = Self { start, len, kind: Backing::Shared { file, is_writable }, number };
        let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        if !is_writable {
            seals |= SealFlags::FUTURE_WRITE;
        }
        rustix::fs::fcntl_add_seals(this.descriptor().expect("it is shared"), seals)?;
        Ok(this)
    }

    /// The descriptor for other processes, if the memory is shared.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Backing::Heap(_) => None,
            Backing::Shared { file, .. } => Some(file.as_fd()),
        }
    }

    /// The number of this shared allocation.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: M1; `&self` excludes writers except a slab's, which never call this while open (M4).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        match &self.kind {
            Backing::Heap(layout) => {
                // SAFETY: M1; allocated with this very layout and not freed before.
                unsafe { alloc::dealloc(self.start.as_ptr(), *layout) }
            }
            Backing::Shared { is_writable, .. } => {
                WRITABLE.fetch_sub(usize::from(*is_writable), Ordering::Relaxed);
                // SAFETY: M1; mapped with this very length and not unmapped before.
                let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
                unmapped.expect("what was mapped can be unmapped");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for len in [0, 1, 63, 4096, HUGE_PAGE, HUGE_PAGE + 17] {
            for memory in [Allocation::zeroed(len).unwrap(), Allocation::shared(len, Sharing::Readers).unwrap()] {
                assert!(memory.bytes().iter().all(|&byte| byte == 0));
                assert_eq!(memory.start().as_ptr() as usize % SMALL_ALIGNMENT, 0);
                assert_eq!(memory.len, len.max(1));
            }
        }
    }

    #[test]
    fn memory_that_does_not_exist_is_refused() {
        assert!(Allocation::zeroed(isize::MAX as usize - HUGE_PAGE).is_none());
        assert!(Allocation::shared(1 << 60, Sharing::Readers).is_err());
    }

    #[test]
    fn nobody_else_can_write_to_shared_memory_or_change_its_length() {
        let memory = Allocation::shared(4096, Sharing::Readers).unwrap();
        let file = memory.descriptor().unwrap();
        assert!(rustix::io::pwrite(file, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(file, 1).is_err());
        assert!(rustix::fs::ftruncate(file, 9000).is_err());
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping touches nothing that exists; it is refused.
        assert!(unsafe { rustix::mm::mmap(ptr::null_mut(), 4096, access, MapFlags::SHARED, file, 0) }.is_err());
    }

    #[test]
    fn workers_can_write_but_not_change_the_length() {
        let memory = Allocation::shared(4096, Sharing::Writers).unwrap();
        let file = memory.descriptor().unwrap();
        assert_eq!(rustix::io::pwrite(file, b"x", 7).unwrap(), 1);
        assert_eq!(memory.bytes()[7], b'x');
        assert!(rustix::fs::ftruncate(file, 1).is_err());
        assert_ne!(memory.number(), Allocation::shared(1, Sharing::Writers).unwrap().number());
    }

    #[test]
    fn memory_for_workers_does_not_use_up_the_descriptors_of_the_process() {
        let many: Vec<Allocation> = (0..MAX_WRITABLE + 50).map(|_| Allocation::writable(64).unwrap()).collect();
        let shared = many.iter().filter(|memory| memory.descriptor().is_some()).count();
        assert!(shared <= MAX_WRITABLE && shared > MAX_WRITABLE / 2, "{shared}");
        drop(many);
        assert!(Allocation::writable(64).unwrap().descriptor().is_some());
    }
}
