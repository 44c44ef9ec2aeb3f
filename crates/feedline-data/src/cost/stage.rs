//! The cost of one stage: the loading of samples, or one op.

use std::time::Duration;

use feedline_memory::Mutex;

use super::fit::Fit;
use super::mean::Mean;
use crate::op::WorkHint;

/// The size of a sample, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Stored bytes.
    pub bytes: Option<u64>,
    /// Pixels or elements according to its headers.
    pub elements: Option<u64>,
}

impl Size {
    fn numbers(self) -> [Option<u64>; 2] {
        [self.bytes, self.elements]
    }
}

/// The cost of a stage by the kind of work.
#[derive(Debug, Default)]
pub(super) struct Stage([StageCost; 3]);

#[derive(Debug, Default)]
struct StageCost {
    mean: Mean,
    /// Models by bytes and by elements.
    by_size: Mutex<[Fit; 2]>,
}

impl Stage {
    /// The average for a kind of work.
    pub(super) fn mean(&self, work_hint: WorkHint) -> &Mean {
        &self.0[work_hint as usize].mean
    }

    /// Adds the cost for a sample of some size.
    pub(super) fn learn(&self, work_hint: WorkHint, size: Size, time: Duration) {
        let mut fits = self.0[work_hint as usize].by_size.lock();
        for (fit, number) in fits.iter_mut().zip(size.numbers()) {
            if let Some(number) = number {
                fit.add(number as f64, time.as_nanos() as f64);
            }
        }
    }

    /// The predicted cost for an unseen sample: by the size that explains more, otherwise the average. If only work with a search
    /// was measured, or only work without one, both are assumed to cost the same.
    pub(super) fn unseen(&self, work_hint: WorkHint, size: Size) -> Duration {
        let is_seen = |work_hint: WorkHint| self.mean(work_hint).parts().1 > 0;
        let work_hint = match work_hint {
            WorkHint::Search if !is_seen(WorkHint::Search) => WorkHint::Usual,
            WorkHint::Usual if !is_seen(WorkHint::Usual) && is_seen(WorkHint::Search) => WorkHint::Search,
            seen => seen,
        };
        let cost = &self.0[work_hint as usize];
        let fits = cost.by_size.lock();
        let models = fits.iter().zip(size.numbers()).filter_map(|(fit, number)| Some((fit, number?)));
        // A model that explains nothing has 0, and `predict` of it returns `None`.
        let best = models.max_by(|(a, _), (b, _)| a.explained().total_cmp(&b.explained()));
        let nanos = best.and_then(|(fit, number)| fit.predict(number as f64));
        nanos.map_or_else(|| cost.mean.get(), |nanos| Duration::from_nanos(nanos as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_size_that_explains_most_is_used() {
        let stage = Stage::default();
        // Compressed volumes: bytes explain little of the time, elements nearly all.
        for number in 0..64_u64 {
            let size = Size { bytes: Some(1000 + number * 7 % 13), elements: Some(number * 100) };
            stage.learn(WorkHint::Usual, size, MS * number as u32);
        }
        let size = Size { bytes: Some(1003), elements: Some(200 * 100) };
        let predicted = stage.unseen(WorkHint::Usual, size);
        assert!(predicted.abs_diff(200 * MS) < MS, "{predicted:?}");
        let no_header = Size { elements: None, ..size };
        assert!(stage.unseen(WorkHint::Usual, no_header) < 100 * MS, "nothing is made up");
    }

    #[test]
    fn searches_are_learned_separately_and_until_then_cost_the_same_as_other_work() {
        let stage = Stage::default();
        (0..10).for_each(|_| stage.mean(WorkHint::Usual).add(MS, 1));
        assert_eq!(stage.unseen(WorkHint::Search, Size::default()), MS);
        stage.mean(WorkHint::Search).add(900 * MS, 1);
        assert_eq!(stage.unseen(WorkHint::Search, Size::default()), 900 * MS);
        assert_eq!(stage.unseen(WorkHint::Usual, Size::default()), MS);
        assert_eq!(stage.unseen(WorkHint::Idle, Size::default()), Duration::ZERO);
        let searching = Stage::default();
        searching.mean(WorkHint::Search).add(900 * MS, 1);
        assert_eq!(searching.unseen(WorkHint::Usual, Size::default()), 900 * MS, "all that is known of it");
    }
}
