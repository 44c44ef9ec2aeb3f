//! The content of a produced segment, and what its production waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_memory::Slab;

use crate::metrics::{Phase, Substitute};

/// A produced segment.
#[derive(Clone, Debug)]
pub struct SegmentContent {
    /// Its memory, in the layout of the producing plan.
    pub slab: Arc<Slab>,
    /// Slots with substitutes.
    pub bad: Arc<[BadSlot]>,
    /// How it came about.
    pub provenance: Provenance,
}

/// A slot with a substitute.
#[derive(Clone, Debug)]
pub struct BadSlot {
    /// The slot, counted from the start of the slab.
    pub slot: usize,
    /// The substitute, and the reason.
    pub substitute: Substitute,
}

/// When and how a segment was produced.
#[derive(Clone, Copy, Debug)]
pub struct Provenance {
    /// When there was room for it and its production started.
    pub requested: Instant,
    /// The phase that took most of its samples' time.
    pub phase: Phase,
}

impl Provenance {
    /// Divides the wait of a job, from `since` until `now`: first for room, then for production.
    pub fn causes(self, since: Instant, now: Instant) -> [(Phase, Duration); 2] {
        let waited = now.saturating_duration_since(since);
        // Until production was requested, the segment lacked room. A request before the wait began leaves nothing for this part.
        let for_room = self.requested.saturating_duration_since(since).min(waited);
        [(Phase::Memory, for_room), (self.phase, waited.saturating_sub(for_room))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_waits_for_memory_until_a_segment_is_begun_and_then_for_what_its_samples_take() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let check = |requested: u64, since: u64, now: u64, for_room: u64, for_reading: u64| {
            let causes = Provenance { requested: at(requested), phase: Phase::Read }.causes(at(since), at(now));
            let expected = [(Phase::Memory, for_room), (Phase::Read, for_reading)];
            assert_eq!(causes, expected.map(|(phase, seconds)| (phase, Duration::from_secs(seconds))));
        };
        check(5, 3, 9, 2, 4);
        check(1, 3, 9, 0, 6);
        check(9, 3, 9, 6, 0);
        check(1, 3, 3, 0, 0);
    }
}
