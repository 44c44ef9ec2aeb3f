//! How steadily a job got the cores that it wanted while it was measured.
//!
//! In: for each short window of a run, how long threads ran and how long they queued for a core. Out: the share of cores that
//! they got, as a range. On a machine that others use too, figures hold only for the share of cores at that time; the wider
//! the range, the less a prediction is worth.

use serde::Serialize;

/// Windows in which threads wanted less than this part of a core say nothing.
const LEAST_WANTED: f64 = 0.1;
/// The share varies if its range is wider than this part of it.
const STEADY: f64 = 0.1;
/// Percentiles that bound the range.
const LOW: f64 = 0.1;
const HIGH: f64 = 0.9;

/// The part of the time in which threads that could run did run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CoreShare {
    /// In one window of ten it was less.
    pub low: f64,
    /// Over all windows.
    pub mean: f64,
    /// In one window of ten it was more.
    pub high: f64,
}

/// One window of a run, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreWindow {
    /// Its length.
    pub seconds: f64,
    /// Threads ran for so long, added up.
    pub ran: f64,
    /// They could have run for so much longer.
    pub queued: f64,
}

impl Default for CoreShare {
    fn default() -> Self {
        Self { low: 1.0, mean: 1.0, high: 1.0 }
    }
}

impl CoreShare {
    /// Of threads that ran and queued for so long in all, where no window says how that varied. It has to fit to these times: a job
    /// that needs little of the cores would else seem to queue far longer with the share of another run.
    pub(super) fn steady(ran: f64, queued: f64) -> Self {
        let share = if ran > 0.0 { ran / (ran + queued.max(0.0)) } else { 1.0 };
        Self { low: share, mean: share, high: share }
    }

    /// Of the windows of a run, if these say something.
    pub(super) fn of(windows: &[CoreWindow]) -> Option<Self> {
        let wanted =
            |window: &&CoreWindow| window.ran > 0.0 && window.ran + window.queued > LEAST_WANTED * window.seconds;
        let told: Vec<&CoreWindow> = windows.iter().filter(wanted).collect();
        let mut shares: Vec<f64> = told.iter().map(|window| window.ran / (window.ran + window.queued)).collect();
        shares.sort_by(f64::total_cmp);
        let (first, last) = (shares.first()?, shares.last()?);
        let at = |part: f64| shares.get((part * shares.len() as f64) as usize).copied();
        let (ran, queued) = told.iter().fold((0.0, 0.0), |sum, window| (sum.0 + window.ran, sum.1 + window.queued));
        let mean = ran / (ran + queued);
        let (low, high) = (at(LOW).unwrap_or(*first), at(HIGH).unwrap_or(*last));
        Some(Self { low: low.min(mean), mean, high: high.max(mean) })
    }

    /// The range that covers both.
    #[must_use]
    pub(super) fn joined(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), mean: self.mean, high: self.high.max(other.high) }
    }

    /// Whether it varied so much that figures of different moments differ by it.
    pub(crate) fn varies(&self) -> bool {
        self.high > (1.0 + STEADY) * self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(ran: f64, queued: f64) -> CoreWindow {
        CoreWindow { seconds: 0.2, ran, queued }
    }

    #[test]
    fn a_steady_share_has_no_error_and_a_changing_one_has_its_range() {
        let steady = CoreShare::of(&[window(0.1, 0.2); 20]).unwrap();
        assert!((steady.mean - 1.0 / 3.0).abs() < 1e-9);
        assert!(!steady.varies());
        let mut changing = vec![window(0.3, 0.0); 10];
        changing.extend([window(0.1, 0.2); 10]);
        let share = CoreShare::of(&changing).unwrap();
        assert!((share.low - 1.0 / 3.0).abs() < 1e-9 && (share.high - 1.0).abs() < 1e-9);
        assert!((share.mean - 2.0 / 3.0).abs() < 1e-9);
        assert!(share.varies());
        let wide = steady.joined(share);
        assert_eq!((wide.low, wide.mean, wide.high), (share.low, steady.mean, share.high));
    }

    #[test]
    fn without_windows_the_share_is_that_of_all_the_time() {
        let share = CoreShare::steady(0.04, 0.56);
        assert!((share.mean - 1.0 / 15.0).abs() < 1e-9 && !share.varies());
        assert_eq!(CoreShare::steady(0.0, 3.0), CoreShare::default());
    }

    #[test]
    fn windows_in_which_nobody_wanted_a_core_say_nothing() {
        assert_eq!(CoreShare::of(&[window(0.0001, 0.01); 5]), None);
        assert_eq!(CoreShare::of(&[window(0.0, 0.0)]), None);
        assert_eq!(CoreShare::of(&[]), None);
    }
}
