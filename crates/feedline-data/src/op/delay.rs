//! An op that only takes time: for tests and benchmarks, and to try the effect of an expensive op.

use std::time::{Duration, Instant};

use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::{On, Op, OpError};
use crate::batch::{FieldTypes, Sample};
use crate::cpu_time::thread_cpu_time;
use crate::memory::{Cancel, Workspace};
use crate::op::CheckError;

/// Interval between two checks for cancellation.
const CANCEL_POLL: Duration = Duration::from_millis(50);
/// Rounds of arithmetic between two reads of the clock.
const SPINS: u32 = 2000;
const MAX_MS: f64 = 3_600_000.0;

/// Takes the time in its list for each sample. The scheduler does not see the list and has to learn the costs.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delay {
    /// Milliseconds by sample number. The list repeats after its end.
    costs_ms: Vec<f64>,
    #[serde(default)]
    kind: DelayKind,
    /// The probability that it takes any time.
    #[serde_inline_default(1.0)]
    p: f64,
    #[serde(skip, default = "nothing")]
    on: On,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum DelayKind {
    /// Sleeps, like an op that waits for a store or a device.
    #[default]
    Sleep,
    /// Uses CPU time of the thread.
    Cpu,
}

fn nothing() -> On {
    On::from(Vec::new())
}

impl Op for Delay {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, _: &mut FieldTypes) -> Result<(), CheckError> {
        CheckError::probability(self.p)?;
        let is_sound = |cost: &f64| (0.0..=MAX_MS).contains(cost);
        if self.costs_ms.is_empty() || !self.costs_ms.iter().all(is_sound) {
            return Err(CheckError::Parameter("costs_ms is a list of milliseconds from 0 to an hour".to_owned()));
        }
        Ok(())
    }

    fn runs_anywhere(&self) -> bool {
        false
    }

    fn is_random(&self) -> bool {
        self.p > 0.0 && self.p < 1.0
    }

    fn fires(&self, draw: &Draw) -> bool {
        draw.happens(0, self.p)
    }

    fn apply(&self, _: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        if !self.fires(draw) {
            return Ok(());
        }
        let cost = self.costs_ms[(draw.id().0 % self.costs_ms.len() as u64) as usize];
        let time = Duration::from_secs_f64(cost / 1e3);
        match self.kind {
            DelayKind::Sleep => sleep(time, workspace.cancel()),
            DelayKind::Cpu => spin(time, workspace.cancel()),
        }
    }
}

fn sleep(time: Duration, cancel: &Cancel) -> Result<(), OpError> {
    let end = Instant::now() + time;
    loop {
        cancel.check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        // In short turns, so that cancellation ends a long sleep.
        std::thread::sleep(left.min(CANCEL_POLL));
    }
}

fn spin(time: Duration, cancel: &Cancel) -> Result<(), OpError> {
    // CPU time, not wall time: the op costs the same on a busy machine.
    let end = thread_cpu_time() + time;
    let mut number = 1_u64;
    while thread_cpu_time() < end {
        cancel.check()?;
        for _ in 0..SPINS {
            // A step of Knuth's linear congruential generator. `black_box` keeps the compiler from removing the loop.
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    Ok(())
}
