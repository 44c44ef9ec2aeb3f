//! The timeline of some batches, from their order to the training step.
//!
//! In: the engine's timeline, and the times of the trainer. Out: a [`Life`]. [`Life::rows`] are the stages of each batch,
//! [`Life::waits`] the waits of a sample. Pages, traces and texts only draw these.

use std::collections::HashSet;
use std::time::Instant;

use feedline_engine::loader::Loader;
use feedline_engine::metrics::{BatchLife, SampleLife, TimeRange, Timeline};
use feedline_order::SampleId;
use serde::{Serialize, Serializer};

/// Upper limit of samples, and of batches.
const MAX_SAMPLES: usize = 4096;
const MAX_BATCHES: usize = 24;
/// Least number of batches, whatever their size.
const MIN_BATCHES: usize = 4;

/// The trainer's times for one batch, in microseconds since the timeline began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrainerLife {
    /// The epoch of the batch.
    pub epoch: u64,
    /// Its number there.
    pub number: u64,
    /// When it was requested.
    pub asked: f64,
    /// When it was ready.
    pub ready: f64,
    /// When the trainer received it.
    pub received: f64,
    /// When the step ended.
    pub done: f64,
}

/// The timeline of some batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Life {
    /// The names of a sample's stages: `read`, each op, `slot`.
    pub stages: Vec<String>,
    /// Samples.
    pub samples: Vec<SampleLife>,
    /// Their names, in the same order.
    pub keys: Vec<String>,
    /// Their batches in the engine.
    pub batches: Vec<BatchLife>,
    /// Their batches at the trainer.
    pub trainer: Vec<TrainerLife>,
}

/// A stage of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchStage {
    /// Its samples are determined.
    Order,
    /// None of its samples has started.
    Begin,
    /// From the start of the first sample until the last is in its slot.
    Prepare,
    /// It is complete, but an earlier batch is not.
    Turn,
    /// It is handed from the loader to the trainer.
    HandOver,
    /// The training step.
    Step,
}

impl BatchStage {
    /// All, in order.
    pub const ALL: [Self; 6] = [Self::Order, Self::Begin, Self::Prepare, Self::Turn, Self::HandOver, Self::Step];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Begin => "wait to begin",
            Self::Prepare => "prepare",
            Self::Turn => "wait for its turn",
            Self::HandOver => "hand-over",
            Self::Step => "step",
        }
    }
}

impl Serialize for BatchStage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A stage of a batch, in microseconds since the timeline began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BatchSpan {
    /// What was done.
    pub stage: BatchStage,
    /// From when.
    pub from: f64,
    /// To when.
    pub to: f64,
}

/// The stages of one batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchRow {
    /// Its epoch.
    pub epoch: u64,
    /// Its number there.
    pub number: u64,
    /// Its stages with any duration, in order. If a sample started early, `prepare` begins before `order`.
    pub spans: Vec<BatchSpan>,
}

impl Life {
    /// The stages of each batch, in the order of delivery. Batches that began before the timeline or ended after it are left out,
    /// because not all of their samples were recorded.
    pub fn rows(&self) -> Vec<BatchRow> {
        self.batches.iter().filter_map(|batch| self.row(batch)).collect()
    }

    fn row(&self, batch: &BatchLife) -> Option<BatchRow> {
        let samples = self.samples.iter().filter(|sample| sample.batch == batch.batch);
        let begun: Vec<f64> = samples.filter_map(|sample| sample.stages.first()).map(|stage| stage.0).collect();
        if begun.len() < batch.samples {
            return None;
        }
        // The engine prepares samples in any order, so the first one to start is not the first in the list.
        let begun = begun.into_iter().reduce(f64::min)?;
        let place = (batch.epoch, batch.number);
        let trainer = self.trainer.iter().find(|trainer| (trainer.epoch, trainer.number) == place);
        let taken = trainer.map_or(batch.delivered, |trainer| trainer.ready);
        let mut stages: Vec<(BatchStage, TimeRange)> = vec![
            (BatchStage::Order, batch.order),
            (BatchStage::Begin, (batch.order.1, begun)),
            (BatchStage::Prepare, (begun, batch.complete)),
            (BatchStage::Turn, (batch.complete, taken)),
        ];
        if let Some(trainer) = trainer {
            stages.push((BatchStage::HandOver, (trainer.ready, trainer.received)));
            stages.push((BatchStage::Step, (trainer.received, trainer.done)));
        }
        let spans = stages.into_iter().filter(|(_, (from, to))| to > from);
        let spans = spans.map(|(stage, (from, to))| BatchSpan { stage, from, to }).collect();
        Some(BatchRow { epoch: batch.epoch, number: batch.number, spans })
    }

    /// How long a sample waited before it started, and how long it was in its slot before delivery, if recorded. In microseconds.
    pub fn waits(&self, sample: &SampleLife) -> (f64, Option<f64>) {
        let begun = sample.stages.first().map_or(sample.asked, |stage| stage.0);
        let delivered = self.batches.iter().find(|batch| batch.batch == sample.batch).map(|batch| batch.delivered);
        let in_slot = delivered.zip(sample.stages.last()).map(|(delivered, (_, ready))| (delivered - ready).max(0.0));
        ((begun - sample.asked).max(0.0), in_slot)
    }
}

/// Records the timeline while a loader runs.
pub(super) struct LifeRecorder<'a> {
    loader: &'a Loader,
    began: Instant,
    trainer: Vec<TrainerLife>,
}

impl<'a> LifeRecorder<'a> {
    /// Starts recording.
    pub(super) fn new(loader: &'a Loader) -> Self {
        let batch = loader.plan().settings().batch_size;
        // 24 batches, but at most 4096 samples, except that 4 batches are always recorded.
        let began = loader.start_timeline((MAX_BATCHES * batch).min(MAX_SAMPLES.max(MIN_BATCHES * batch)));
        Self { loader, began, trainer: Vec::new() }
    }

    /// Records the trainer's times for a batch.
    pub(super) fn add(&mut self, (epoch, number): (u64, u64), times: [Instant; 4]) {
        if self.trainer.len() < MAX_SAMPLES {
            let at = |time: Instant| time.saturating_duration_since(self.began).as_secs_f64() * 1e6;
            let [asked, ready, received, done] = times.map(at);
            self.trainer.push(TrainerLife { epoch, number, asked, ready, received, done });
        }
    }

    /// Stops recording.
    pub(super) fn end(self) -> Life {
        let plan = self.loader.plan();
        let Timeline { samples, mut batches } = self.loader.stop_timeline().unwrap_or_default();
        let ops = plan.ops().iter().map(|op| op.name().to_string());
        let stages = std::iter::once("read".to_owned()).chain(ops).chain(std::iter::once("slot".to_owned()));
        let keys = samples.iter().map(|sample| plan.source().key(SampleId(sample.id)).into_owned()).collect();
        let known: HashSet<u64> = samples.iter().map(|sample| sample.batch).collect();
        batches.retain(|batch| known.contains(&batch.batch));
        // With many open batches, samples of much later batches were recorded too.
        let recorded: HashSet<(u64, u64)> = batches.iter().map(|batch| (batch.epoch, batch.number)).collect();
        let trainer = self.trainer.into_iter().enumerate();
        // The first batches of the trainer are kept even without samples: these were prepared before the recording.
        let trainer =
            trainer.filter(|(turn, life)| *turn < MAX_BATCHES || recorded.contains(&(life.epoch, life.number)));
        let trainer = trainer.map(|(_, life)| life).collect();
        Life { stages: stages.collect(), samples, keys, batches, trainer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(batch: u64, slot: usize, begun: f64, ready: f64) -> SampleLife {
        SampleLife {
            batch,
            slot,
            id: 0,
            thread: 0,
            asked: 12.0,
            stages: vec![(begun, begun + 1.0), (begun + 1.0, ready)],
        }
    }

    fn life() -> Life {
        let batch = |batch, delivered| BatchLife {
            batch,
            epoch: 2,
            number: batch + 3,
            samples: 2,
            order: (10.0, 12.0),
            complete: 50.0,
            delivered,
        };
        let trainer = TrainerLife { epoch: 2, number: 10, asked: 55.0, ready: 60.0, received: 62.0, done: 90.0 };
        let samples = vec![sample(7, 0, 20.0, 40.0), sample(7, 1, 15.0, 50.0), sample(8, 0, 16.0, 41.0)];
        Life { samples, batches: vec![batch(7, 61.0), batch(8, 70.0)], trainer: vec![trainer], ..Life::default() }
    }

    fn spans(life: &Life) -> Vec<(&'static str, f64, f64)> {
        life.rows()[0].spans.iter().map(|span| (span.stage.name(), span.from, span.to)).collect()
    }

    #[test]
    fn a_batch_goes_from_its_order_to_its_step_without_a_gap() {
        let life = life();
        let rows = life.rows();
        assert_eq!((rows.len(), rows[0].epoch, rows[0].number), (1, 2, 10), "batch 8 lacks a sample");
        let spans = spans(&life);
        assert_eq!(spans.iter().map(|span| span.0).collect::<Vec<_>>(), BatchStage::ALL.map(BatchStage::name));
        assert!(spans.array_windows().all(|[before, after]| (before.2 - after.1).abs() < 1e-9), "{spans:?}");
        assert_eq!((spans[0].1, spans[2], spans[5].2), (10.0, ("prepare", 15.0, 50.0), 90.0));
    }

    #[test]
    fn a_batch_that_the_trainer_is_not_known_to_have_ends_with_its_delivery() {
        let life = Life { trainer: Vec::new(), ..life() };
        assert_eq!(spans(&life).last(), Some(&("wait for its turn", 50.0, 61.0)));
    }

    #[test]
    fn a_sample_begun_before_its_batch_was_opened_leaves_no_wait() {
        let mut life = life();
        life.samples[1] = sample(7, 1, 5.0, 50.0);
        assert_eq!(spans(&life)[1], ("prepare", 5.0, 50.0));
        assert_eq!(life.waits(&life.samples[1]), (0.0, Some(11.0)));
    }

    #[test]
    fn a_sample_waits_before_it_is_begun_and_then_for_its_batch() {
        let life = life();
        assert_eq!(life.waits(&life.samples[0]), (8.0, Some(21.0)));
        assert_eq!(life.waits(&sample(9, 0, 20.0, 40.0)), (8.0, None), "batch 9 was not delivered");
    }
}
