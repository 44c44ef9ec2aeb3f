//! A part of some memory that stays valid as long as the span exists.
//!
//! In: the owner of the memory. Out: bytes that keep their owner alive. Always true: S1 the bytes lie in memory of `owner`, which
//! neither moves nor frees them before it is dropped; S2 nobody writes to them except through the address, as array libraries do
//! for a user who owns the batch.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{Slab, View};

/// Bytes and their owner.
#[derive(Clone)]
pub struct Span {
    owner: Arc<dyn Any + Send + Sync>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: S1, the owner may be sent, and the address is that of its memory.
unsafe impl Send for Span {}
// SAFETY: S1 and S2, shared access only reads.
unsafe impl Sync for Span {}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Span {
    /// Bytes of a slab.
    pub fn of_slab(slab: &Arc<Slab>, range: Range<usize>) -> Self {
        Self::within(slab.start(), slab.layout().total_bytes(), range, Arc::<Slab>::clone(slab))
    }

    /// Bytes of a view.
    pub fn of_view(view: &Arc<View>, range: Range<usize>) -> Self {
        Self::within(view.start(), view.len(), range, Arc::<View>::clone(view))
    }

    /// The same bytes, which also keep another value alive. It is dropped after them.
    #[must_use]
    pub fn keeping(self, kept: Arc<dyn Any + Send + Sync>) -> Self {
        let Self { owner, start, len } = self;
        Self { owner: Arc::new((owner, kept)), start, len }
    }

    fn within(start: NonNull<u8>, len: usize, range: Range<usize>, owner: Arc<dyn Any + Send + Sync>) -> Self {
        assert!(range.start <= range.end && range.end <= len, "{range:?} of {len} bytes");
        // SAFETY: S1; the range was checked to lie in the owner's memory.
        let start = unsafe { start.add(range.start) };
        Self { owner, start, len: range.len() }
    }

    /// The address of the first byte, for array libraries that keep the span as long as they use the memory.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: S1 keeps the bytes, S2 keeps writers away.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, SlabLayout, Views};
    use std::os::fd::AsFd as _;

    #[test]
    fn what_a_process_changes_in_its_view_nobody_else_sees() {
        let pool = Pool::shared(SlabLayout::new(4, &[4096]).unwrap(), 1);
        let open = pool.open().unwrap();
        open.claim(0..4).unwrap().slot_mut(2)[0].fill(7);
        let slab = Arc::new(open.seal().unwrap());
        let file = slab.descriptor().unwrap().as_fd().try_clone_to_owned().unwrap();
        let home = Views::new();
        let views: Vec<Arc<View>> = (0..2).map(|_| Arc::new(home.view(&file, 4 * 4096).unwrap())).collect();
        let spans: Vec<Span> = views.iter().map(|view| Span::of_view(view, 8192..12_288)).collect();
        drop(views);
        assert!(spans.iter().all(|span| span.bytes() == [7; 4096]));
        // SAFETY: S2; this test stands for a user who owns the batch.
        unsafe { spans[0].start().as_ptr().write(9) };
        assert_eq!((spans[0].bytes()[0], spans[1].bytes()[0], slab.region(0)[8192]), (9, 7, 7));
    }

    #[test]
    fn memory_stays_as_long_as_a_span_and_its_owner_is_told_afterwards() {
        let pool = Pool::new(SlabLayout::new(2, &[64]).unwrap(), 1);
        let slab = Arc::new(pool.open().unwrap().seal().unwrap());
        let owner = Arc::new(());
        let span = Span::of_slab(&slab, 64..128).keeping(Arc::<()>::clone(&owner));
        drop(slab);
        assert_eq!((span.bytes().len(), pool.spare_bytes(), Arc::strong_count(&owner)), (64, 0, 2));
        drop(span);
        assert_eq!((pool.spare_bytes(), Arc::strong_count(&owner)), (pool.layout().total_bytes(), 1));
    }

    #[test]
    fn a_descriptor_of_something_else_is_refused() {
        let file = tempfile();
        let views = Views::new();
        assert!(views.view(&file, 10).is_err(), "it may become shorter");
        let slab = Pool::shared(SlabLayout::new(1, &[64]).unwrap(), 0).open().unwrap().seal().unwrap();
        let file = slab.descriptor().unwrap().try_clone_to_owned().unwrap();
        assert!(views.view(&file, 1 << 20).is_err() && views.view(&file, 0).is_err());
    }

    fn tempfile() -> std::os::fd::OwnedFd {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        file
    }
}
