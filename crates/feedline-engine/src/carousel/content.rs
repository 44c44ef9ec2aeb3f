//! What is in a segment, and how it came about.

use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_memory::Slab;

use crate::metrics::{Phase, Substitute};

/// A segment that was produced.
#[derive(Clone, Debug)]
pub struct SegmentContent {
    /// Its memory, in the layout of the plan that produces.
    pub slab: Arc<Slab>,
    /// Samples that others stand in for, by slot.
    pub bad: Arc<[BadSlot]>,
    /// How it came about.
    pub provenance: Provenance,
}

/// A slot with a substitute in it.
#[derive(Clone, Debug)]
pub struct BadSlot {
    /// The slot, counted from the beginning of the slab.
    pub slot: usize,
    /// What stands there, and why.
    pub substitute: Substitute,
}

/// How a segment came about.
#[derive(Clone, Copy, Debug)]
pub struct Provenance {
    /// When there was room for it, so that it was begun.
    pub asked: Instant,
    /// What its samples spent most of their time on.
    pub phase: Phase,
}

impl Provenance {
    /// What a job has waited for that wanted the segment from `since` on and got it `now`: first for room, then for the rest.
    pub fn causes(self, since: Instant, now: Instant) -> [(Phase, Duration); 2] {
        let waited = now.saturating_duration_since(since);
        let for_room = self.asked.saturating_duration_since(since).min(waited);
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
        let check = |asked: u64, since: u64, now: u64, for_room: u64, for_reading: u64| {
            let causes = Provenance { asked: at(asked), phase: Phase::Read }.causes(at(since), at(now));
            let expected = [(Phase::Memory, for_room), (Phase::Read, for_reading)];
            assert_eq!(causes, expected.map(|(phase, seconds)| (phase, Duration::from_secs(seconds))));
        };
        check(5, 3, 9, 2, 4);
        check(1, 3, 9, 0, 6);
        check(9, 3, 9, 6, 0);
        check(1, 3, 3, 0, 0);
    }
}
