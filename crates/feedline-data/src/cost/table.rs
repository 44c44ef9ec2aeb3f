//! The cost of each stage for each sample, in two bytes per entry.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Steps per factor of two. One step is 0.07 %.
const STEPS: f64 = 1024.0;

/// Costs by sample and stage. 0 means unknown.
#[derive(Debug)]
pub(super) struct Table {
    stages: usize,
    entries: Box<[AtomicU16]>,
}

impl Table {
    /// Upper limit of entries (128 MB). A larger source has no table.
    pub(super) const MAX_ENTRIES: u64 = 1 << 26;

    /// An empty table, if it is not too large.
    pub(super) fn for_samples(samples: u64, stages: usize) -> Option<Self> {
        let entries = samples.checked_mul(stages as u64).filter(|&entries| entries <= Self::MAX_ENTRIES)?;
        let mut zeros = Vec::new();
        zeros.try_reserve_exact(entries as usize).ok()?;
        zeros.extend((0..entries).map(|_| AtomicU16::new(0)));
        Some(Self { stages, entries: zeros.into() })
    }

    fn entry(&self, row: u64, stage: usize) -> Option<&AtomicU16> {
        self.entries.get(usize::try_from(row).ok()?.checked_mul(self.stages)? + stage)
    }

    /// Records a time as the mean of it and the previous entry.
    pub(super) fn record_time(&self, row: u64, stage: usize, time: Duration) {
        let Some(entry) = self.entry(row, stage) else { return };
        // Two threads may record the same sample at once. Then one of the times is lost, which does no harm.
        let known = self.of(row, stage);
        let time = known.map_or(time, |known| (known + time) / 2);
        // Logarithmic: 2^16 / 1024 = 64 factors of two cover every duration. 0 stays free for "unknown".
        let steps = ((time.as_nanos() + 1) as f64).log2() * STEPS;
        entry.store((steps as u16).max(1), Ordering::Relaxed);
    }

    /// Whether a time was recorded.
    pub(super) fn has(&self, row: u64, stage: usize) -> bool {
        self.entry(row, stage).is_some_and(|entry| entry.load(Ordering::Relaxed) > 0)
    }

    /// The recorded time.
    pub(super) fn of(&self, row: u64, stage: usize) -> Option<Duration> {
        let steps = self.entry(row, stage)?.load(Ordering::Relaxed);
        // Planned orders depend on these times and must be the same on every machine, so this does not use the system's math
        // library.
        (steps > 0).then(|| Duration::from_nanos(libm::exp2(f64::from(steps) / STEPS) as u64))
    }

    /// All entries, row by row.
    pub(super) fn entries(&self) -> impl Iterator<Item = u16> {
        self.entries.iter().map(|entry| entry.load(Ordering::Relaxed))
    }

    /// Reads entries from bytes. `None` if their number differs.
    pub(super) fn fill(&self, bytes: &[u8]) -> Option<()> {
        let (numbers, rest) = bytes.as_chunks();
        if !rest.is_empty() || numbers.len() != self.entries.len() {
            return None;
        }
        for (entry, number) in self.entries.iter().zip(numbers) {
            entry.store(u16::from_le_bytes(*number), Ordering::Relaxed);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_within_a_thousandth_and_settle_on_the_mean() {
        let table = Table::for_samples(3, 2).unwrap();
        for time in [Duration::from_nanos(3), Duration::from_micros(17), Duration::from_secs(100)] {
            let table = Table::for_samples(3, 2).unwrap();
            table.record_time(2, 1, time);
            let back = table.of(2, 1).unwrap();
            assert!(back.abs_diff(time) <= time / 1000 + Duration::from_nanos(1), "{time:?} became {back:?}");
        }
        assert_eq!(table.of(1, 0), None);
        table.record_time(1, 0, Duration::from_millis(10));
        (0..20).for_each(|_| table.record_time(1, 0, Duration::from_millis(30)));
        let settled = table.of(1, 0).unwrap().as_secs_f64();
        assert!((settled - 0.030).abs() < 0.0005, "{settled}");
        assert_eq!(table.of(0, 1), None, "no other entry changed");
        table.record_time(3, 0, Duration::from_secs(1));
        assert_eq!(table.of(3, 0), None, "a row that is not there");
    }

    #[test]
    fn times_do_not_depend_on_the_arithmetic_of_the_system() {
        let table = Table::for_samples(1, 1).unwrap();
        for steps in 1..=u16::MAX {
            table.entries[0].store(steps, Ordering::Relaxed);
            let expected = libm::exp2(f64::from(steps) / STEPS) as u64;
            assert_eq!(table.of(0, 0), Some(Duration::from_nanos(expected)), "{steps} steps");
        }
    }

    #[test]
    fn a_table_that_would_be_too_large_is_not_made() {
        assert!(Table::for_samples(1 << 40, 5).is_none());
        assert!(Table::for_samples(u64::MAX, 5).is_none());
    }
}
