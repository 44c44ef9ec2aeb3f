//! A life of batches to draw in tests.

use feedline_diagnose::doctor::{Life, TrainerLife};
use feedline_engine::metrics::{BatchLife, SampleLife};

/// Six batches of one sample each, a hundred microseconds apart; batch 0 was asked for at 0. Of each, 5 microseconds are spent on the
/// order, 5 on waiting, 80 on preparing, 60 in the slot, 5 on the way and 90 on the step.
pub(super) fn life() -> Life {
    let sample = |number: u32| {
        let at = 100.0 * f64::from(number);
        let stages = vec![(at + 10.0, at + 20.0), (at + 20.0, at + 85.0), (at + 85.0, at + 90.0)];
        SampleLife { batch: number.into(), slot: 0, id: number.into(), thread: 0, asked: at, stages }
    };
    let batch = |number: u32| {
        let at = 100.0 * f64::from(number);
        BatchLife {
            batch: number.into(),
            epoch: 0,
            number: number.into(),
            samples: 1,
            order: (at, at + 5.0),
            complete: at + 90.0,
            delivered: at + 150.0,
        }
    };
    let trainer = |number: u32| {
        let at = 100.0 * f64::from(number);
        let [asked, ready, received, done] = [at + 145.0, at + 150.0, at + 155.0, at + 245.0];
        TrainerLife { epoch: 0, number: number.into(), asked, ready, received, done }
    };
    Life {
        stages: ["read", "Resize", "slot"].map(str::to_owned).to_vec(),
        samples: (0..6).map(sample).collect(),
        keys: (0..6).map(|number| format!("sample {number}")).collect(),
        batches: (0..6).map(batch).collect(),
        trainer: (0..6).map(trainer).collect(),
    }
}
