//! An allocator that returns large blocks to the system at once.
//!
//! The C library keeps freed blocks of many megabytes in one arena per thread. So a process with many threads holds far more memory
//! than it uses, whatever the memory budget says. Blocks from [`MIN_MAPPED`] on are therefore mapped and unmapped one by one. All
//! others go to the system's allocator. Programs choose it with `#[global_allocator]`.
//!
//! Invariant relied on here: **M5** a block of a given layout came from the side that its size says, and a mapped block is
//! exactly its size rounded up to whole pages, at a multiple of its alignment.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

/// Blocks of at least this size are mapped.
pub(crate) const MIN_MAPPED: usize = 1 << 20;
/// A multiple of the page size of every supported machine.
const PAGE: usize = 1 << 16;

/// Maps large blocks, leaves small ones to the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct MappingAllocator;

// SAFETY: M5; both sides give memory that is valid for the layout until it is given back.
unsafe impl GlobalAlloc for MappingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() < MIN_MAPPED {
            // SAFETY: the caller's promise is passed on.
            return unsafe { System.alloc(layout) };
        }
        map(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() < MIN_MAPPED {
            // SAFETY: the caller's promise is passed on.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // Mapped memory is zero.
        map(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() < MIN_MAPPED {
            // SAFETY: M5, the block came from the system's allocator.
            return unsafe { System.dealloc(block, layout) };
        }
        // SAFETY: M5, the block is a mapping of this size, and the caller gives it up.
        unsafe { unmap(block, whole_pages(layout.size())) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let (is_mapped, will_be_mapped) = (layout.size() >= MIN_MAPPED, new_size >= MIN_MAPPED);
        if is_mapped && will_be_mapped && layout.align() <= PAGE_ALIGNMENT {
            let (old, new) = (whole_pages(layout.size()), whole_pages(new_size));
            // SAFETY: M5, the block is a mapping of `old` bytes that the caller gives up for the result.
            let moved = unsafe { rustix::mm::mremap(block.cast(), old, new, MremapFlags::MAYMOVE) };
            return moved.map_or(ptr::null_mut(), <*mut _>::cast);
        }
        if !is_mapped && !will_be_mapped {
            // SAFETY: M5, the block came from the system's allocator.
            return unsafe { System.realloc(block, layout, new_size) };
        }
        let Ok(new_layout) = Layout::from_size_align(new_size, layout.align()) else { return ptr::null_mut() };
        // SAFETY: the caller promises a size above zero.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: both blocks are valid for the lesser size and apart.
            unsafe { ptr::copy_nonoverlapping(block, new, layout.size().min(new_size)) };
            // SAFETY: the caller gives the old block up.
            unsafe { self.dealloc(block, layout) };
        }
        new
    }
}

/// Alignment that every mapping has.
const PAGE_ALIGNMENT: usize = 4096;

fn whole_pages(size: usize) -> usize {
    size.next_multiple_of(PAGE)
}

/// Maps memory for a layout. Unmaps what lies around the aligned block.
fn map(layout: Layout) -> Option<NonNull<u8>> {
    let size = layout.size().checked_next_multiple_of(PAGE)?;
    let slack = if layout.align() > PAGE_ALIGNMENT { layout.align() } else { 0 };
    let total = size.checked_add(slack)?;
    // SAFETY: an anonymous mapping at an address of the system's choice touches nothing that exists.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), total, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let start = mapped.ok()?.cast::<u8>();
    let head = start.align_offset(layout.align().max(PAGE_ALIGNMENT));
    // SAFETY: `head` is at most the slack.
    let block = unsafe { start.add(head) };
    // SAFETY: the first `head` bytes are ours and not part of the block.
    unsafe { unmap(start, head) };
    // SAFETY: the block ends inside the mapping.
    let end = unsafe { block.add(size) };
    // SAFETY: what is behind the block is ours and not part of it.
    unsafe { unmap(end, total - size - head) };
    NonNull::new(block)
}

/// Returns whole pages to the system.
///
/// # Safety
///
/// [`map`] mapped the pages, and nobody uses them any more.
unsafe fn unmap(start: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: the caller promises it. A refusal would be a bug in the bookkeeping above; the memory then stays.
        unsafe { rustix::mm::munmap(start.cast(), len) }.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_all_sizes_hold_what_is_written_grow_and_shrink() {
        let allocator = MappingAllocator;
        let sizes = [16, MIN_MAPPED - 1, MIN_MAPPED, 5 * MIN_MAPPED + 7, 3 * MIN_MAPPED, 100];
        for align in [1, 64, 4096, 2 << 20] {
            let mut layout = Layout::from_size_align(sizes[0], align).unwrap();
            // SAFETY: the layout has a size.
            let mut block = unsafe { allocator.alloc_zeroed(layout) };
            for size in sizes {
                // SAFETY: the block has this layout.
                block = unsafe { allocator.realloc(block, layout, size) };
                layout = Layout::from_size_align(size, align).unwrap();
                assert_eq!(block as usize % align.min(4096), 0);
                // SAFETY: the block has `size` bytes.
                let bytes = unsafe { std::slice::from_raw_parts_mut(block, size) };
                bytes[size - 1] = 7;
                bytes[0] = bytes[0].wrapping_add(1);
            }
            // SAFETY: the block is there.
            assert_eq!(unsafe { *block }, sizes.len() as u8, "the first byte moved along each time");
            // SAFETY: the block has this layout.
            unsafe { allocator.dealloc(block, layout) };
        }
    }

    #[test]
    fn large_blocks_are_zero_and_aligned() {
        for align in [1, 4096, 2 << 20] {
            let layout = Layout::from_size_align(3 * MIN_MAPPED, align).unwrap();
            // SAFETY: the layout has a size.
            let block = unsafe { MappingAllocator.alloc_zeroed(layout) };
            assert_eq!(block as usize % align, 0);
            // SAFETY: the block has this many bytes.
            assert!(unsafe { std::slice::from_raw_parts(block, layout.size()) }.iter().all(|&byte| byte == 0));
            // SAFETY: the block has this layout.
            unsafe { MappingAllocator.dealloc(block, layout) };
        }
    }
}
