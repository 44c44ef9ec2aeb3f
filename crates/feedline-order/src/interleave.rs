//! Round-robin over several readers: which place is read at which step.
//!
//! In: a step, counted over all readers. Out: a place. The places `0..len` are divided into one equal part per reader. In each
//! round every reader advances by one place. This is a fixed rule, not a race, so every machine and every resume gets the same
//! order.

/// Round-robin over `0..len`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interleave {
    len: u64,
    readers: u64,
}

impl Interleave {
    /// Uses as many readers as requested, but at most one per place.
    pub(crate) fn new(len: u64, readers: u64) -> Self {
        Self { len, readers: readers.clamp(1, len.max(1)) }
    }

    /// The place that is read at `step`, which must be below the length.
    pub(crate) fn place_at(&self, step: u64) -> u64 {
        // The first `longer` readers have one place more than the others. They read it in a last, incomplete round.
        let (rounds, longer) = (self.len / self.readers, self.len % self.readers);
        let whole = rounds * self.readers;
        let (reader, round) =
            if step < whole { (step % self.readers, step / self.readers) } else { (step - whole, rounds) };
        // The reader's part starts after the parts of the readers before it, up to `longer` of which are one place longer.
        reader * rounds + reader.min(longer) + round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(len: u64, readers: u64) -> Vec<u64> {
        let interleave = Interleave::new(len, readers);
        (0..len).map(|step| interleave.place_at(step)).collect()
    }

    #[test]
    fn readers_take_turns_through_parts_of_their_own() {
        assert_eq!(places(7, 1), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(places(7, 3), [0, 3, 5, 1, 4, 6, 2]);
        assert_eq!(places(2, 5), [0, 1]);
    }

    #[test]
    fn law_2_every_place_is_read_once() {
        for len in [0, 1, 2, 7, 64, 1001] {
            for readers in [1, 2, 3, 4, 8, 100] {
                let mut places = places(len, readers);
                places.sort_unstable();
                assert!(places.into_iter().eq(0..len), "{readers} readers of {len}");
            }
        }
    }
}
