//! Counts the samples of an epoch: each must come once, or as often as a sampler gives it.

use feedline_order::Ordinal;
use std::collections::HashMap;

/// How often each sample must come in an epoch.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// Each of this many samples once.
    Each(u64),
    /// As often as a sampler gives it.
    Counted(HashMap<Ordinal, u32>),
}

impl Expected {
    fn times(&self, ordinal: Ordinal) -> u32 {
        match self {
            Self::Each(samples) => u32::from(ordinal.0 < *samples),
            Self::Counted(counts) => counts.get(&ordinal).copied().unwrap_or(0),
        }
    }

    fn all(&self) -> u64 {
        match self {
            Self::Each(samples) => *samples,
            Self::Counted(counts) => counts.values().copied().map(u64::from).sum(),
        }
    }

    /// The samples that must come at least once.
    fn ordinals(&self) -> Box<dyn Iterator<Item = Ordinal> + '_> {
        match self {
            Self::Each(samples) => Box::new((0..*samples).map(Ordinal)),
            Self::Counted(counts) => Box::new(counts.keys().copied()),
        }
    }
}

/// Counts the samples of an epoch. Only delivered samples take memory.
#[derive(Clone, Debug)]
pub(super) struct SampleCounter {
    expected: Expected,
    found: HashMap<Ordinal, u32>,
    padding: u64,
}

/// A fault in the samples of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A sample that is not in the source.
    Unknown,
    /// A sample that comes too often.
    TooOften {
        /// Its ordinal in the source.
        ordinal: Ordinal,
        /// How often it came.
        times: u32,
    },
    /// The number of missing samples is not the number of dropped ones. Contains the first missing sample.
    Missing {
        /// Its ordinal in the source.
        ordinal: Ordinal,
        /// How many are missing.
        missing: u64,
        /// The expected number: samples dropped at the end of the epoch.
        dropped: u64,
    },
    /// The wrong number of samples is marked as padding.
    Padding {
        /// How many are.
        found: u64,
        /// How many are needed.
        expected: u64,
    },
}

impl SampleCounter {
    /// An epoch without delivered samples.
    pub(super) fn new(expected: Expected) -> Self {
        Self { expected, found: HashMap::new(), padding: 0 }
    }

    /// Counts a delivered sample. `None` means that the source does not have it.
    pub(super) fn add(&mut self, ordinal: Option<Ordinal>, is_padding: bool) -> Result<(), Fault> {
        let ordinal = ordinal.ok_or(Fault::Unknown)?;
        // Padding repeats a sample to fill the last batch, so it does not count as a visit.
        if is_padding {
            self.padding += 1;
            return if self.expected.times(ordinal) > 0 { Ok(()) } else { Err(Fault::Unknown) };
        }
        let times = self.found.entry(ordinal).or_default();
        *times += 1;
        if *times > self.expected.times(ordinal) { Err(Fault::TooOften { ordinal, times: *times }) } else { Ok(()) }
    }

    /// Checks the totals at the end of an epoch that should have this much padding and drop this many samples.
    pub(super) fn end(&self, padding: u64, dropped: u64) -> Result<(), Fault> {
        let found = |ordinal: Ordinal| self.found.get(&ordinal).copied().unwrap_or(0);
        // Cannot underflow: `add` has refused every sample beyond its expected count.
        let missing = self.expected.all() - self.found.values().copied().map(u64::from).sum::<u64>();
        if missing != dropped {
            let lacking =
                self.expected.ordinals().filter(|&ordinal| found(ordinal) < self.expected.times(ordinal)).min();
            return Err(Fault::Missing { ordinal: lacking.unwrap_or_default(), missing, dropped });
        }
        if self.padding != padding {
            return Err(Fault::Padding { found: self.padding, expected: padding });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(expected: Expected, ordinals: &[u64], padding: u64, dropped: u64) -> Result<(), Fault> {
        let mut once = SampleCounter::new(expected);
        ordinals.iter().try_for_each(|&ordinal| once.add(Some(Ordinal(ordinal)), false))?;
        once.end(padding, dropped)
    }

    #[test]
    fn law_2_an_order_with_a_double_or_a_gap_is_found_out() {
        let each = |ordinals: &[u64], dropped| count(Expected::Each(4), ordinals, 0, dropped);
        assert_eq!(each(&[2, 0, 3, 1], 0), Ok(()));
        assert_eq!(each(&[2, 0, 2, 1], 0), Err(Fault::TooOften { ordinal: Ordinal(2), times: 2 }));
        assert_eq!(each(&[2, 0, 4, 1], 0), Err(Fault::TooOften { ordinal: Ordinal(4), times: 1 }));
        assert_eq!(each(&[2, 0, 1], 0), Err(Fault::Missing { ordinal: Ordinal(3), missing: 1, dropped: 0 }));
        assert_eq!(each(&[2, 0, 1], 1), Ok(()), "one may be dropped");
        assert_eq!(each(&[2, 0, 1, 3], 1), Err(Fault::Missing { ordinal: Ordinal(0), missing: 0, dropped: 1 }));
        let sampled =
            |ordinals: &[u64]| count(Expected::Counted([(Ordinal(5), 2), (Ordinal(7), 1)].into()), ordinals, 0, 0);
        assert_eq!(sampled(&[5, 7, 5]), Ok(()), "a sampler may repeat");
        assert_eq!(sampled(&[7, 7]), Err(Fault::TooOften { ordinal: Ordinal(7), times: 2 }));
        assert_eq!(sampled(&[5, 7]), Err(Fault::Missing { ordinal: Ordinal(5), missing: 1, dropped: 0 }));
        assert_eq!(SampleCounter::new(Expected::Each(1)).add(None, false), Err(Fault::Unknown));
    }

    #[test]
    fn law_2_padding_has_to_be_marked_and_of_the_right_number() {
        let mut once = SampleCounter::new(Expected::Each(2));
        for (ordinal, is_padding) in [(0, false), (1, false), (0, true)] {
            once.add(Some(Ordinal(ordinal)), is_padding).unwrap();
        }
        assert_eq!(once.end(1, 0), Ok(()));
        assert_eq!(once.end(0, 0), Err(Fault::Padding { found: 1, expected: 0 }));
        assert_eq!(once.add(Some(Ordinal(5)), true), Err(Fault::Unknown));
        let unmarked = once.add(Some(Ordinal(0)), false);
        assert_eq!(unmarked, Err(Fault::TooOften { ordinal: Ordinal(0), times: 2 }), "padding that is not marked");
    }
}
