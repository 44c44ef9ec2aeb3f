//! One piece of zeroed heap memory, aligned for SIMD and for huge pages when large.
//!
//! Always true: M1 of the crate doc.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

/// Alignment of small allocations: a cache line, which satisfies every element type and `DLPack`'s 64 bytes.
const SMALL_ALIGNMENT: usize = 64;
/// From this size on memory is aligned to, and asked for in, huge pages.
const HUGE_PAGE: usize = 2 << 20;

/// Owned bytes whose address does not change.
#[derive(Debug)]
pub struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: M1, the allocation is owned and has no thread affinity.
unsafe impl Send for Allocation {}
// SAFETY: M1, shared access only reads; every write goes through `&mut` or through a `SlotWriter` (M3).
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Takes `len` zeroed bytes from the heap; `None` if the system does not have them.
    pub fn zeroed(len: usize) -> Option<Self> {
        let alignment = if len >= HUGE_PAGE { HUGE_PAGE } else { SMALL_ALIGNMENT };
        let layout = Layout::from_size_align(len.max(1), alignment).ok()?;
        // SAFETY: the layout's size is at least 1.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start)?;
        if len >= HUGE_PAGE {
            // SAFETY: M1; the range is ours and the advice changes no contents. Refusal is harmless: ordinary pages serve.
            unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, rustix::mm::Advice::LinuxHugepage) }
                .unwrap_or_default();
        }
        Some(Self { start, layout })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Whether there are no bytes; never true, an allocation has at least one.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: M1; `&self` excludes writers except a slab's, which never call this while open (M4).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: M1; allocated with this very layout and not freed before.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for len in [0, 1, 63, 4096, HUGE_PAGE, HUGE_PAGE + 17] {
            let memory = Allocation::zeroed(len).unwrap();
            assert!(memory.bytes().iter().all(|&byte| byte == 0));
            assert_eq!(memory.start().as_ptr() as usize % SMALL_ALIGNMENT, 0);
            assert_eq!(memory.len(), len.max(1));
        }
    }

    #[test]
    fn memory_that_does_not_exist_is_refused() {
        assert!(Allocation::zeroed(isize::MAX as usize - HUGE_PAGE).is_none());
    }
}
