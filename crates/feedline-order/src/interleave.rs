//! Readers that take turns: in which order they come upon the samples of their stretches.
//!
//! In: a step, counted over all readers. Out: a place. The places `0..len` are cut into one stretch for each reader, as equal as
//! can be; at each round every reader goes one place on. A rule and no race, so every machine and every resume finds the same.

/// Readers that take turns over `0..len`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interleave {
    len: u64,
    readers: u64,
}

impl Interleave {
    /// As many readers as asked for, at most one for each place.
    pub(crate) fn new(len: u64, readers: u64) -> Self {
        Self { len, readers: readers.clamp(1, len.max(1)) }
    }

    /// The place that is come upon at `step`, which is below the length.
    pub(crate) fn place_at(&self, step: u64) -> u64 {
        let (rounds, longer) = (self.len / self.readers, self.len % self.readers);
        let whole = rounds * self.readers;
        let (reader, round) =
            if step < whole { (step % self.readers, step / self.readers) } else { (step - whole, rounds) };
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
    fn readers_take_turns_each_through_a_stretch_of_its_own() {
        assert_eq!(places(7, 1), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(places(7, 3), [0, 3, 5, 1, 4, 6, 2]);
        assert_eq!(places(2, 5), [0, 1]);
    }

    #[test]
    fn law_2_every_place_is_come_upon_once() {
        for len in [0, 1, 2, 7, 64, 1001] {
            for readers in [1, 2, 3, 4, 8, 100] {
                let mut places = places(len, readers);
                places.sort_unstable();
                assert!(places.into_iter().eq(0..len), "{readers} readers of {len}");
            }
        }
    }
}
