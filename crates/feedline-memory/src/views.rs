//! Reuses mappings of shared memory.
//!
//! In: descriptors of the same few blocks of memory, again and again. Out: views of them. Mapping a block, faulting its pages one
//! by one and unmapping it costs far more than reading one value per page. So an unused mapping is kept for the next view of the
//! same memory. Dropping a view only hands the mapping back, because the thread that drops it is training.
//!
//! Always true: a view shows the content of the memory when it is given out. A mapping with privately copied pages is not reused,
//! nor is one whose pages cannot be checked.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::{io, process};

use crate::lock::Mutex;
use rustix::fs::{Mode, OFlags};

use crate::view::{FileId, Mapping, View};

/// Size of the kernel's entry for a page in bytes. It says whether the page is present, swapped out, or backed by a file.
const ENTRY_BYTES: usize = 8;
const IS_PRESENT: u64 = 1 << 63;
const IS_SWAPPED: u64 = 1 << 62;
const IS_OF_FILE: u64 = 1 << 61;
/// Upper limit of unused mappings, exceeded by a few at times.
const MAX_WAITING: usize = 64;
/// Number of pages to check with one read.
const CHUNK: usize = 4096;

/// Keeps unused mappings.
#[derive(Debug, Default)]
pub struct Views {
    /// The kernel's page map of this process, if it is readable.
    pages: Option<OwnedFd>,
    /// Returned mappings that have not been checked yet.
    returned: Mutex<Vec<Mapping>>,
    waiting: Mutex<WaitingViews>,
    /// The process of the mappings. A forked child has its own.
    process: u32,
}

#[derive(Debug, Default)]
struct WaitingViews {
    /// Unused mappings, each with the number of views when it was returned.
    mappings: HashMap<FileId, (Mapping, u64)>,
    views: u64,
}

impl Views {
    /// Without mappings.
    pub fn new() -> Arc<Self> {
        let pages = rustix::fs::open("/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        Arc::new(Self { pages, process: process::id(), ..Self::default() })
    }

    /// A view of the first `len` bytes of shared memory. Fails if it is shorter, or could become shorter.
    pub fn view(self: &Arc<Self>, memory: &OwnedFd, len: usize) -> io::Result<View> {
        self.sort_out();
        let stat = rustix::fs::fstat(memory)?;
        let mut waiting = self.waiting.lock();
        let kept = waiting.mappings.remove(&(stat.st_dev, stat.st_ino)).map(|(mapping, _)| mapping);
        let kept = kept.filter(|mapping| mapping.len() == len);
        waiting.views += 1;
        // The other process may have given up memory that has not come for long.
        let oldest = waiting.mappings.iter().min_by_key(|(_, (_, came))| *came).map(|(file, _)| *file);
        let oldest = oldest.filter(|_| waiting.mappings.len() > MAX_WAITING);
        let given_up = oldest.and_then(|file| waiting.mappings.remove(&file));
        drop(waiting);
        drop(given_up);
        let mapping = kept.map_or_else(|| Mapping::new(memory, len), Ok)?;
        Ok(View::new(mapping, self))
    }

    /// Takes back an unused mapping.
    pub(crate) fn put_back(&self, mapping: Mapping) {
        // In the child of a fork, a thread of the parent may have held the lock.
        if self.process != process::id() {
            return drop(mapping);
        }
        self.returned.lock().push(mapping);
    }

    /// Keeps returned mappings that can be reused, and unmaps the others.
    pub fn sort_out(&self) {
        let returned = std::mem::take(&mut *self.returned.lock());
        for mapping in returned {
            if self.is_as_in_memory(&mapping).unwrap_or(false) {
                let mut waiting = self.waiting.lock();
                let came = waiting.views;
                let before = waiting.mappings.insert(mapping.file, (mapping, came));
                drop(waiting);
                drop(before);
            }
        }
    }

    /// Whether no page of a mapping became a private copy.
    fn is_as_in_memory(&self, mapping: &Mapping) -> io::Result<bool> {
        let Some(pages) = &self.pages else { return Ok(false) };
        let page_bytes = rustix::param::page_size();
        let first = mapping.start().as_ptr() as usize / page_bytes;
        let count = mapping.len().div_ceil(page_bytes);
        let mut entries = vec![0; CHUNK.min(count) * ENTRY_BYTES];
        for begin in (0..count).step_by(CHUNK) {
            let entries = &mut entries[..CHUNK.min(count - begin) * ENTRY_BYTES];
            let read = rustix::io::pread(pages, &mut *entries, ((first + begin) * ENTRY_BYTES) as u64)?;
            let is_own = |entry: &[u8; ENTRY_BYTES]| {
                let entry = u64::from_ne_bytes(*entry);
                entry & IS_SWAPPED != 0 || entry & (IS_PRESENT | IS_OF_FILE) == IS_PRESENT
            };
            if read < entries.len() || entries.as_chunks().0.iter().any(is_own) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, SlabLayout, Span};
    use std::os::fd::AsFd as _;

    const LEN: usize = 4 * 65_536;

    struct Shared {
        pool: Pool,
        file: Option<OwnedFd>,
    }

    impl Shared {
        fn new() -> Self {
            Self { pool: Pool::shared(SlabLayout::new(4, &[65_536]).unwrap(), 1), file: None }
        }

        /// Writes a byte everywhere, always in the same memory.
        fn fill(&mut self, byte: u8) -> &OwnedFd {
            let open = self.pool.open().unwrap();
            let mut writer = open.claim(0..4).unwrap();
            (0..4).for_each(|slot| writer.slot_mut(slot)[0].fill(byte));
            drop(writer);
            let slab = open.seal().unwrap();
            self.file = Some(slab.descriptor().unwrap().as_fd().try_clone_to_owned().unwrap());
            self.file.as_ref().unwrap()
        }
    }

    fn look(view: View) -> (usize, Vec<u8>) {
        let address = view.start().as_ptr() as usize;
        (address, Span::of_view(&Arc::new(view), 0..LEN).bytes().to_vec())
    }

    #[test]
    fn a_mapping_is_used_again_and_shows_what_is_new() {
        let (views, mut shared) = (Views::new(), Shared::new());
        let (first, bytes) = look(views.view(shared.fill(1), LEN).unwrap());
        assert!(bytes.iter().all(|&byte| byte == 1));
        let (second, bytes) = look(views.view(shared.fill(2), LEN).unwrap());
        assert!(bytes.iter().all(|&byte| byte == 2));
        assert_eq!(first, second);
    }

    #[test]
    fn what_was_changed_in_place_is_not_seen_again() {
        for place in [0, LEN / 2, LEN - 1] {
            let (views, mut shared) = (Views::new(), Shared::new());
            let view = views.view(shared.fill(1), LEN).unwrap();
            // SAFETY: the view has this many bytes.
            let address = unsafe { view.start().add(place) };
            // SAFETY: as above; this test stands for a user who owns the batch.
            unsafe { address.write(99) };
            drop(view);
            views.sort_out();
            assert!(views.waiting.lock().mappings.is_empty());
            let (_, bytes) = look(views.view(shared.fill(2), LEN).unwrap());
            assert!(bytes.iter().all(|&byte| byte == 2), "{place}");
        }
    }

    #[test]
    fn two_views_of_one_memory_are_apart_and_one_is_kept() {
        let (views, mut shared) = (Views::new(), Shared::new());
        let file = shared.fill(5);
        let [first, second] = [(); 2].map(|()| views.view(file, LEN).unwrap());
        assert_ne!(first.start(), second.start());
        drop((first, second));
        views.sort_out();
        assert_eq!(views.waiting.lock().mappings.len(), 1);
        drop(views);
    }

    #[test]
    fn mappings_of_memory_that_does_not_come_again_are_given_up() {
        let views = Views::new();
        for _ in 0..3 * MAX_WAITING {
            let mut shared = Shared::new();
            drop(views.view(shared.fill(1), LEN).unwrap());
        }
        views.sort_out();
        let count = views.waiting.lock().mappings.len();
        assert!(count <= MAX_WAITING + 2, "{count} mappings");
    }

    #[test]
    fn memory_of_another_length_is_mapped_anew() {
        let (views, mut shared) = (Views::new(), Shared::new());
        let file = shared.fill(3);
        drop(views.view(file, LEN).unwrap());
        assert_eq!(views.view(file, LEN / 2).unwrap().len(), LEN / 2);
        assert!(views.view(file, 2 * LEN).is_err());
    }
}
