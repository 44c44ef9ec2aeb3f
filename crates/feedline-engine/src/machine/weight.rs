//! The weight of a job where the cores do not suffice for all jobs.

use serde::{Deserialize, Serialize};

/// How much of the cores a run gets beside others, in thousandths. A run with twice the weight gets twice as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CoreWeight(u32);

impl CoreWeight {
    /// The weight of a job that does not ask for another one.
    pub const ONE: Self = Self(1000);
    const MIN: u32 = 1;
    const MAX: u32 = 1_000_000;

    /// A weight between 0.001 and 1000. `None` for other numbers.
    pub fn new(weight: f64) -> Option<Self> {
        let thousandths = (weight * 1000.0).round();
        let is_possible = thousandths >= f64::from(Self::MIN) && thousandths <= f64::from(Self::MAX);
        is_possible.then_some(Self(thousandths as u32))
    }

    /// The nearest valid weight, for a number that came over a socket.
    pub(super) fn thousandths(self) -> u32 {
        self.0.clamp(Self::MIN, Self::MAX)
    }
}

impl Default for CoreWeight {
    fn default() -> Self {
        Self::ONE
    }
}
