//! The life of a stretch of batches, from the order to the step.

use std::time::Instant;

use serde::Serialize;

use crate::metrics::{BatchLife, SampleLife, Timeline};
use crate::order::SampleId;
use crate::sink::Loader;

/// Samples of a stretch at most, and batches that it is about.
const MOST_SAMPLES: usize = 4096;
const BATCHES: usize = 24;

/// What the trainer did with one batch, in microseconds since the stretch began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrainerLife {
    /// The epoch of the batch.
    pub epoch: u64,
    /// When it was asked for.
    pub asked: f64,
    /// When it was ready.
    pub ready: f64,
    /// When the trainer had it.
    pub received: f64,
    /// When the work on it was done.
    pub done: f64,
}

/// A stretch of batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Life {
    /// The names of a sample's stages: `read`, each op, `slot`.
    pub stages: Vec<String>,
    /// Samples.
    pub samples: Vec<SampleLife>,
    /// Their names, in the same order.
    pub keys: Vec<String>,
    /// Batches, as they were delivered.
    pub batches: Vec<BatchLife>,
    /// And as the trainer had them.
    pub trainer: Vec<TrainerLife>,
}

/// Keeps the life of a stretch while a loader runs.
pub(super) struct Stretching<'a> {
    loader: &'a Loader,
    began: Instant,
    trainer: Vec<TrainerLife>,
}

impl<'a> Stretching<'a> {
    /// Begins.
    pub fn new(loader: &'a Loader) -> Self {
        let batch = loader.plan().settings().batch_size;
        let began = loader.start_timeline((BATCHES * batch).min(MOST_SAMPLES));
        Self { loader, began, trainer: Vec::new() }
    }

    /// Books what the trainer did with a batch.
    pub fn add(&mut self, epoch: u64, [asked, ready, received, done]: [Instant; 4]) {
        let at = |time: Instant| time.saturating_duration_since(self.began).as_secs_f64() * 1e6;
        if self.trainer.len() < BATCHES {
            let [asked, ready, received, done] = [asked, ready, received, done].map(at);
            self.trainer.push(TrainerLife { epoch, asked, ready, received, done });
        }
    }

    /// Ends.
    pub fn end(self) -> Life {
        let plan = self.loader.plan();
        let Timeline { samples, batches } = self.loader.stop_timeline().unwrap_or_default();
        let ops = plan.ops().iter().map(|op| op.name().to_string());
        let stages = std::iter::once("read".to_owned()).chain(ops).chain(std::iter::once("slot".to_owned()));
        let keys = samples.iter().map(|sample| plan.source().key(SampleId(sample.id)).into_owned()).collect();
        Life { stages: stages.collect(), samples, keys, batches, trainer: self.trainer }
    }
}
