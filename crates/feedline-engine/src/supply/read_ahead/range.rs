//! A unit of reading: a range of an object, or a sample that a peer prepares.
//!
//! In: the parts of samples. Out: ranges that cover them, each with its parts. The gap between two parts is read too, if that is
//! cheaper than another seek or request. Typical gaps are tar headers and samples of another rank.
//!
//! Always true: every part lies in one range. A range exceeds its limit only if a single part does.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_data::store::{Form, Object, StoreError};
use feedline_order::{Epoch, SampleRequest};

use super::super::Reading;
use super::super::reader::{Fetched, Part};
use super::buffer::{PendingNumber, ReadPart};
use super::order::ReadPriority;

/// Bytes to read between two checks whether the range is still needed.
const PIECE_BYTES: usize = 4 << 20;

/// What can be read or fetched.
#[derive(Clone, Debug)]
pub(in super::super) enum ReadTarget {
    /// A range of an object.
    Range { object: Arc<dyn Object>, range: Range<u64> },
    /// A sample that the peer prepares, with its estimated size in bytes.
    Sample { request: SampleRequest, form: Form, bytes: u64, reading: Reading },
}

impl ReadTarget {
    /// The expected number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Range { range, .. } => range.end.saturating_sub(range.start),
            Self::Sample { bytes, .. } => *bytes,
        }
    }

    /// Whether it is fetched from a peer. Otherwise the thread reads it.
    pub(crate) fn is_remote(&self) -> bool {
        match self {
            Self::Range { object, .. } => object.remote().is_some(),
            Self::Sample { .. } => true,
        }
    }

    /// The sort key. Targets that can be merged are neighbours in this order.
    fn place(&self) -> (usize, u64, u64) {
        match self {
            // The address groups the parts of one object. Which object comes first does not matter.
            Self::Range { object, range } => (Arc::as_ptr(object).cast::<()>().addr(), range.start, range.end),
            Self::Sample { request, .. } => (0, request.id.0, request.occurrence.0.into()),
        }
    }

    /// The range that covers both targets, if the gap and the result are short enough. `next` must not start before `self`.
    fn merged(&self, next: &Self, grouping: Grouping) -> Option<Self> {
        let (Self::Range { object, range }, Self::Range { object: also, range: next }) = (self, next) else {
            return None;
        };
        let (gap_bytes, most_bytes) = grouping.limits(object.remote().is_some());
        let end = range.end.max(next.end);
        let is_close = Arc::ptr_eq(object, also) && next.start <= range.end.saturating_add(gap_bytes);
        // A part inside the range never makes it longer, so it always fits.
        let is_short = end - range.start <= most_bytes || end == range.end;
        (is_close && is_short).then(|| Self::Range { object: Arc::clone(object), range: range.start..end })
    }
}

/// How parts are merged into ranges, and how the bytes of a range become parts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Short ranges for random access. The parts share the bytes of their range, and its error.
    Random,
    /// Long ranges for sequential access. Each part gets a copy of its bytes, so that it can be freed alone. A part that could not
    /// be read has no bytes. It is read again when its sample is loaded, and fails there with an error that names the sample.
    Sequential,
}

impl Grouping {
    /// The longest gap to read over, and the longest range, in bytes.
    fn limits(self, is_remote: bool) -> (u64, u64) {
        match self {
            // The gap covers a tar header and a label. A longer range would delay the part that is needed first.
            Self::Random => (4 << 10, 1 << 20),
            // Reading a gap of this length takes about as long as another request or seek. Ranges of a peer are shorter, because
            // several are fetched at once.
            Self::Sequential if is_remote => (128 << 10, 8 << 20),
            Self::Sequential => (1 << 20, 32 << 20),
        }
    }
}

/// A part of a sample to read.
#[derive(Debug)]
pub(super) struct PartRequest {
    pub request: SampleRequest,
    pub number: PendingNumber,
    pub priority: ReadPriority,
    pub target: ReadTarget,
}

/// A range and its parts.
#[derive(Debug)]
pub(super) struct ReadRange {
    pub target: ReadTarget,
    /// The epoch of all its parts, because traffic is counted by epoch.
    pub epoch: Epoch,
    /// The earliest priority of its parts.
    pub priority: ReadPriority,
    pub parts: Vec<PartRequest>,
}

impl ReadRange {
    /// Adds a part if it is close enough. Otherwise returns it.
    fn add(&mut self, part: PartRequest, grouping: Grouping) -> Option<PartRequest> {
        match self.target.merged(&part.target, grouping) {
            Some(target) if self.epoch == part.request.epoch => {
                self.target = target;
                self.priority = self.priority.min(part.priority);
                self.parts.push(part);
                None
            }
            _ => Some(part),
        }
    }

    /// Divides the bytes among the parts. See [`Grouping`].
    pub(super) fn divide(
        &self,
        bytes: Result<Cow<'_, [u8]>, StoreError>,
        grouping: Grouping,
        booked: &Arc<AtomicU64>,
    ) -> Vec<ReadPart> {
        let read = |of: &PartRequest, part| ReadPart { request: of.request, number: of.number, part };
        match grouping {
            Grouping::Random => {
                let bytes = bytes.map(Cow::into_owned).map_err(Arc::new);
                let part = fetched(self.target.clone(), bytes, booked);
                self.parts.iter().map(|of| read(of, Some(Arc::clone(&part)))).collect()
            }
            Grouping::Sequential => {
                // After an error there are no bytes, so `cut` returns `None` for every part.
                let bytes = bytes.unwrap_or_default();
                self.parts.iter().map(|of| read(of, self.cut(&of.target, &bytes, booked))).collect()
            }
        }
    }

    /// Copies the bytes of a part. `None` if they were not read, or if the system has no memory for the copy.
    fn cut(&self, target: &ReadTarget, bytes: &[u8], booked: &Arc<AtomicU64>) -> Option<Part> {
        let (ReadTarget::Range { range: all, .. }, ReadTarget::Range { range, .. }) = (&self.target, target) else {
            return None;
        };
        let bytes = bytes.get((range.start - all.start) as usize..(range.end - all.start) as usize)?;
        let mut own = Vec::new();
        own.try_reserve_exact(bytes.len()).ok()?;
        own.extend_from_slice(bytes);
        Some(fetched(target.clone(), Ok(own), booked))
    }
}

/// A part that was read. Its bytes are booked until its last user drops it.
pub(super) fn fetched(target: ReadTarget, bytes: Result<Vec<u8>, Arc<StoreError>>, booked: &Arc<AtomicU64>) -> Part {
    let booking = Booking::new(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64), booked);
    Arc::new(Fetched { target, bytes, _booking: booking })
}

/// Bytes that count as held until this is dropped.
#[derive(Debug)]
pub(in super::super) struct Booking {
    bytes: u64,
    booked: Arc<AtomicU64>,
}

impl Booking {
    fn new(bytes: u64, booked: &Arc<AtomicU64>) -> Self {
        // Relaxed: a sum that guards no data. See `ReadBuffer::bytes` for its reader.
        booked.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, booked: Arc::clone(booked) }
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.booked.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Merges neighbouring parts into ranges, within the limits of `grouping`.
pub(super) fn coalesce(mut parts: Vec<PartRequest>, grouping: Grouping) -> Vec<ReadRange> {
    // By epoch first, because a range has one epoch. Then by place, so that it is enough to compare each part with the last range.
    parts.sort_by_key(|part| (part.request.epoch, part.target.place()));
    let mut ranges: Vec<ReadRange> = Vec::with_capacity(parts.len());
    for part in parts {
        let left = match ranges.last_mut() {
            Some(last) => last.add(part, grouping),
            None => Some(part),
        };
        ranges.extend(left.map(|part| ReadRange {
            target: part.target.clone(),
            epoch: part.request.epoch,
            priority: part.priority,
            parts: vec![part],
        }));
    }
    ranges
}

/// Reads ranges from a disk, one after the other.
#[derive(Debug, Default)]
pub(super) struct DiskReader {
    /// Reused for each range.
    memory: Vec<u8>,
    /// The object and the end of the last range.
    last: Option<(Arc<dyn Object>, u64)>,
}

impl DiskReader {
    /// Reads a range in pieces. Returns `None` as soon as `is_wanted` is false. The bytes are empty if the read failed or there is
    /// no memory. `target` may be extended to the front, see `join`.
    pub(super) fn read(&mut self, target: &mut ReadTarget, is_wanted: impl Fn() -> bool) -> Option<&[u8]> {
        let ReadTarget::Range { object, range } = target else { return Some(&[]) };
        self.join(object, range);
        let len = (range.end - range.start) as usize;
        let missing = len.saturating_sub(self.memory.len());
        if self.memory.try_reserve_exact(missing).is_err() {
            return Some(&[]);
        }
        // The buffer only grows, so each byte is zeroed once, not once per range.
        self.memory.resize(self.memory.len() + missing, 0);
        let bytes = &mut self.memory[..len];
        let mut offset = range.start;
        let mut is_read = true;
        for piece in bytes.chunks_mut(PIECE_BYTES) {
            if !is_wanted() {
                return None;
            }
            // After a failed piece the rest is skipped, but the loop still checks whether the range is wanted.
            is_read = is_read && object.read_at(offset, piece).is_ok();
            offset += piece.len() as u64;
        }
        self.last = Some((Arc::clone(object), range.end));
        Some(if is_read { bytes } else { &[] })
    }

    /// Extends a range to start where the last one ended, if the gap is short. Then the disk need not seek.
    fn join(&self, object: &Arc<dyn Object>, range: &mut Range<u64>) {
        let (gap_bytes, _) = Grouping::Sequential.limits(false);
        if let Some((last, end)) = &self.last
            && Arc::ptr_eq(last, object)
            && *end < range.start
            && range.start - end <= gap_bytes
        {
            range.start = *end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::store::{DiskStore, Store as _};
    use feedline_order::{Occurrence, SampleId};

    fn empty_object() -> Arc<dyn Object> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x"), b"").unwrap();
        DiskStore::new(folder.path()).open("x").unwrap()
    }

    fn bounds(range: &ReadRange) -> (u64, u64) {
        let ReadTarget::Range { range, .. } = &range.target else { unreachable!("all are ranges") };
        (range.start, range.end)
    }

    /// Merges parts of one object, given by sample number and range in the order of need. Returns the ranges in the order of need.
    fn coalesced(object: &Arc<dyn Object>, parts: &[(u64, Range<u64>)], grouping: Grouping) -> Vec<ReadRange> {
        let part = |(number, (id, range)): (usize, &(u64, Range<u64>))| PartRequest {
            request: SampleRequest { id: SampleId(*id), epoch: Epoch(0), occurrence: Occurrence(0) },
            number: PendingNumber::default(),
            priority: ReadPriority { round: 0, place: number as u64 },
            target: ReadTarget::Range { object: Arc::clone(object), range: range.clone() },
        };
        let mut ranges = coalesce(parts.iter().enumerate().map(part).collect(), grouping);
        assert_eq!(ranges.iter().map(|range| range.parts.len()).sum::<usize>(), parts.len());
        for range in &ranges {
            assert_eq!(Some(range.priority), range.parts.iter().map(|part| part.priority).min());
        }
        ranges.sort_by_key(|range| range.priority);
        ranges
    }

    #[track_caller]
    fn check(grouping: Grouping, parts: &[Range<u64>], expected: &[(u64, u64)]) {
        let parts: Vec<_> = parts.iter().enumerate().map(|(id, range)| (id as u64, range.clone())).collect();
        let ranges = coalesced(&empty_object(), &parts, grouping);
        assert_eq!(ranges.iter().map(bounds).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn parts_that_touch_overlap_or_lie_close_are_read_together_and_the_range_needed_first_comes_first() {
        let (near, far) = (4 << 10, 100 << 20);
        check(Grouping::Random, &[0..10, 10..20, 500..600], &[(0, 600)]);
        check(Grouping::Random, &[50..90, 0..100], &[(0, 100)]);
        check(Grouping::Random, &[0..10, 11 + near..99 + near], &[(0, 10), (11 + near, 99 + near)]);
        check(
            Grouping::Sequential,
            &[far..far + 10, 0..10, 500..900, far + 20..far + 30],
            &[(far, far + 30), (0, 900)],
        );
        check(
            Grouping::Sequential,
            &[0..10, 11 + (1 << 20)..12 + (1 << 20)],
            &[(0, 10), (11 + (1 << 20), 12 + (1 << 20))],
        );
    }

    #[test]
    fn a_long_range_is_not_made_longer() {
        let most: u64 = 1 << 20;
        check(Grouping::Random, &[0..most - 5, most - 5..most + 5], &[(0, most - 5), (most - 5, most + 5)]);
        check(Grouping::Random, &[0..most - 5, most - 5..most], &[(0, most)]);
        check(Grouping::Random, &[0..5 * most, 7..9], &[(0, 5 * most)]);
        let samples: Vec<_> = (0..40).map(|number| number << 21..(number + 1) << 21).collect();
        check(Grouping::Sequential, &samples, &[(0, 32 << 20), (32 << 20, 64 << 20), (64 << 20, 80 << 20)]);
        let giant = 5 << 25;
        check(Grouping::Sequential, &[0..giant, giant..giant + 1], &[(0, giant), (giant, giant + 1)]);
    }

    #[test]
    fn law_5_a_range_is_divided_among_its_samples_and_its_bytes_are_booked_until_they_are_dropped() {
        let object = empty_object();
        let booked = Arc::default();
        let parts_of = |range: &ReadRange, bytes: &'static [u8], grouping| {
            let parts = range.divide(Ok(Cow::Borrowed(bytes)), grouping, &booked);
            parts.into_iter().map(|read| read.part).collect::<Vec<_>>()
        };
        let bytes_of = |part: &Option<Part>| part.as_ref().unwrap().bytes.as_ref().unwrap().clone();
        let mut range = coalesced(&object, &[(0, 10..12), (1, 14..17)], Grouping::Sequential).remove(0);
        let reader = DiskReader { memory: Vec::new(), last: Some((Arc::clone(&object), 8)) };
        let ReadTarget::Range { range: all, .. } = &mut range.target else { unreachable!("all are ranges") };
        reader.join(&object, all);
        assert_eq!(*all, 8..17);
        let bytes = &[8, 9, 10, 11, 12, 13, 14, 15, 16];
        let cut = parts_of(&range, bytes, Grouping::Sequential);
        assert_eq!(cut.iter().map(bytes_of).collect::<Vec<_>>(), [vec![10, 11], vec![14, 15, 16]]);
        assert_eq!(booked.load(Ordering::Relaxed), 5);
        drop(cut);
        let none = parts_of(&range, &[8, 9], Grouping::Sequential);
        assert!(none.iter().all(Option::is_none), "bytes that were not read are not made up");
        let mut shared = parts_of(&range, bytes, Grouping::Random);
        assert_eq!(bytes_of(&shared[0]), bytes_of(&shared[1]));
        drop(shared.pop());
        assert_eq!(booked.load(Ordering::Relaxed), 9);
        drop(shared);
        assert_eq!(booked.load(Ordering::Relaxed), 0);
    }
}
