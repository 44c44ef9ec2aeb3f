//! A timeline of batches for tests.

use feedline_diagnose::doctor::{Life, TrainerLife};
use feedline_engine::metrics::{BatchLife, SampleLife};

/// Six batches of one sample each, 100 microseconds apart. Batch 0 is requested at time 0. Each takes 5 microseconds for the order,
/// 5 waiting, 80 preparing, 60 in the slot, 5 for the hand-over and 90 for the step.
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
