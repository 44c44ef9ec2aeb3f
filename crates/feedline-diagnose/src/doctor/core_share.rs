//! Measures how steadily a job got the cores it needed.
//!
//! In: for each short window of a run, how long threads ran and how long they waited for a core. Out: the share of cores that they
//! got, as a range. On a shared machine figures hold only for the share at that time. The wider the range, the less reliable a
//! prediction.

use serde::Serialize;

/// Windows in which threads needed less than this fraction of a core are ignored.
const MIN_DEMAND: f64 = 0.1;
/// The share varies if its range is wider than this fraction of it.
const STEADY_RANGE: f64 = 0.1;
/// Percentiles that bound the range.
const LOW_PERCENTILE: f64 = 0.1;
const HIGH_PERCENTILE: f64 = 0.9;

/// The fraction of the time in which runnable threads did run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CoreShare {
    /// The 10th percentile over windows.
    pub low: f64,
    /// The mean over all windows.
    pub mean: f64,
    /// The 90th percentile over windows.
    pub high: f64,
}

/// One window of a run, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreWindow {
    /// Its length.
    pub seconds: f64,
    /// Total time on a core.
    pub ran: f64,
    /// Total time waiting for a core.
    pub queued: f64,
}

impl Default for CoreShare {
    fn default() -> Self {
        Self { low: 1.0, mean: 1.0, high: 1.0 }
    }
}

impl CoreShare {
    /// The share of threads with these totals, if there are no windows. It must fit these totals: with the share of another run, a
    /// job that needs little CPU would seem to wait far longer.
    pub(super) fn steady(ran: f64, queued: f64) -> Self {
        // Time on a core divided by the time in which a core was needed.
        let share = if ran > 0.0 { ran / (ran + queued.max(0.0)) } else { 1.0 };
        Self { low: share, mean: share, high: share }
    }

    /// The share over the windows of a run, if they contain enough.
    pub(super) fn of(windows: &[CoreWindow]) -> Option<Self> {
        let has_demand =
            |window: &&CoreWindow| window.ran > 0.0 && window.ran + window.queued > MIN_DEMAND * window.seconds;
        let used: Vec<&CoreWindow> = windows.iter().filter(has_demand).collect();
        let mut shares: Vec<f64> = used.iter().map(|window| window.ran / (window.ran + window.queued)).collect();
        shares.sort_by(f64::total_cmp);
        let (first, last) = (shares.first()?, shares.last()?);
        let at = |part: f64| shares.get((part * shares.len() as f64) as usize).copied();
        let (ran, queued) = used.iter().fold((0.0, 0.0), |sum, window| (sum.0 + window.ran, sum.1 + window.queued));
        // Weighted by time, unlike the percentiles, which count windows. So the mean may lie outside of them.
        let mean = ran / (ran + queued);
        let (low, high) = (at(LOW_PERCENTILE).unwrap_or(*first), at(HIGH_PERCENTILE).unwrap_or(*last));
        Some(Self { low: low.min(mean), mean, high: high.max(mean) })
    }

    /// The range that covers both.
    #[must_use]
    pub(super) fn joined(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), mean: self.mean, high: self.high.max(other.high) }
    }

    /// Whether it varied so much that measurements at different times are not comparable.
    pub(crate) fn varies(&self) -> bool {
        self.high > (1.0 + STEADY_RANGE) * self.low
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
