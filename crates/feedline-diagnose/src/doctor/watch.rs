//! Runs a plan with a trainer for some seconds, and records the times of each batch and the counters of the engine.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::Batch;
use feedline_data::plan::Plan;
use feedline_engine::loader::{Iteration, Loader, Next};
use feedline_engine::machine::Machine;
use feedline_engine::metrics::Snapshot;

use super::core_share::{CoreShare, CoreWindow};
use super::cores::ThreadTime;
use super::life::{Life, LifeRecorder};
use super::{BatchTime, DoctorError};

/// Interval between two checks whether the user wants to stop.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// Interval at which the share of cores is sampled.
const CORE_WINDOW: Duration = Duration::from_millis(200);
/// Fraction of a run that is ignored at its start.
const WARM_UP: f64 = 0.25;
/// Batches that are ignored at the start, if there are enough others.
const WARM_UP_BATCHES: usize = 4;

/// A plan to run on a machine for some time.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The plan.
    pub plan: &'a Arc<Plan>,
    /// The machine to run it on.
    pub machine: &'a Machine,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Consumes batches: a training loop, or a simulation that takes as long.
pub trait Trainer {
    /// Receives a batch and converts it to the form that the step uses.
    fn receive(&mut self, batch: Batch) -> Result<(), DoctorError>;

    /// Runs the training step on the batch that was received last.
    fn step(&mut self) -> Result<(), DoctorError>;

    /// Receives the progress of packing: the number of packed samples, and of all. Only for trials that pack.
    fn packed(&mut self, _samples: u64, _of: u64) {}

    /// Fails if the user wants to stop. Called at least ten times per second, except during a step.
    fn check(&mut self) -> Result<(), DoctorError> {
        Ok(())
    }
}

/// A trainer that does nothing. It only forwards the request to stop.
struct NoTrainer<'a>(&'a mut dyn Trainer);

impl Trainer for NoTrainer<'_> {
    fn receive(&mut self, _: Batch) -> Result<(), DoctorError> {
        Ok(())
    }

    fn step(&mut self) -> Result<(), DoctorError> {
        Ok(())
    }

    fn check(&mut self) -> Result<(), DoctorError> {
        self.0.check()
    }
}

/// The measurements of a run, without its start.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub log: Vec<BatchTime>,
    pub seconds: f64,
    pub samples: u64,
    /// Snapshots of the engine at the start and the end of the measurement, and the seconds between them. With whole epochs, this
    /// is a little longer than `seconds`.
    pub before: Snapshot,
    pub after: Snapshot,
    pub span: f64,
    /// Seconds until the first batch.
    pub first_batch: f64,
    /// The timeline of some of its batches.
    pub life: Life,
    /// The share of cores that its threads got, if known.
    pub core_share: Option<CoreShare>,
}

/// Samples the time of threads on a core and waiting for one, a few times per second.
struct CoreSampler {
    last: (Instant, f64, f64),
    windows: Vec<CoreWindow>,
}

impl CoreSampler {
    fn new(snapshot: &Snapshot) -> Self {
        Self { last: (Instant::now(), snapshot.core_seconds, snapshot.core_wait_seconds), windows: Vec::new() }
    }

    /// Adds a window, if the last sample is at least [`CORE_WINDOW`] old.
    fn sample(&mut self, loader: &Loader) {
        let (at, ran, queued) = self.last;
        if at.elapsed() < CORE_WINDOW {
            return;
        }
        let snapshot = loader.snapshot();
        self.last = (Instant::now(), snapshot.core_seconds, snapshot.core_wait_seconds);
        self.windows.push(CoreWindow {
            seconds: (self.last.0 - at).as_secs_f64(),
            ran: (self.last.1 - ran).max(0.0),
            queued: (self.last.2 - queued).max(0.0),
        });
    }
}

impl Watched {
    pub(super) fn samples_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.samples as f64 / self.seconds } else { 0.0 }
    }

    /// The mean over all batches, in milliseconds.
    pub(super) fn mean_ms(&self, of: impl Fn(&BatchTime) -> f64) -> f64 {
        self.log.iter().map(of).sum::<f64>() / self.log.len().max(1) as f64
    }

    /// Seconds of all preparer threads between the snapshots, including idle time.
    pub(super) fn thread_seconds(&self) -> f64 {
        self.span * self.after.num_workers as f64
    }

    /// The fraction of it in which they were idle.
    pub(super) fn idle_share(&self) -> f64 {
        let idle = self.after.idle_seconds - self.before.idle_seconds;
        if self.thread_seconds() > 0.0 { (idle / self.thread_seconds()).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Milliseconds of a thread per sample on a core and waiting for one. `None` if the system does not report it.
    pub(super) fn thread_time(&self, all: f64) -> Option<ThreadTime> {
        let samples = (self.after.samples - self.before.samples).max(1) as f64;
        let ms = |of: fn(&Snapshot) -> f64| 1e3 * (of(&self.after) - of(&self.before)).max(0.0) / samples;
        let (cpu, core_wait) = (ms(|snapshot| snapshot.core_seconds), ms(|snapshot| snapshot.core_wait_seconds));
        (cpu > 0.0).then_some(ThreadTime { all, cpu, core_wait })
    }

    /// Seconds of a thread per sample, without idle time.
    pub(super) fn thread_seconds_a_sample(&self) -> f64 {
        // Threads that worked on average, divided by samples per second.
        let threads = self.after.num_workers as f64 * (1.0 - self.idle_share());
        threads / self.samples_per_second().max(f64::MIN_POSITIVE)
    }
}

/// Runs a job with a trainer.
pub(super) fn watch(job: Job<'_>, trainer: &mut dyn Trainer) -> Result<Watched, DoctorError> {
    let loader = Loader::new(Arc::clone(job.plan), job.machine);
    let watched = watch_loader(&loader, job.seconds, trainer);
    loader.close();
    watched
}

/// Runs a job without a trainer, as fast as possible.
pub(super) fn watch_alone(job: Job<'_>, trainer: &mut dyn Trainer) -> Result<Watched, DoctorError> {
    watch(job, &mut NoTrainer(trainer))
}

/// Runs a loader with a trainer for some seconds, starting with its next epoch.
pub(super) fn watch_loader(loader: &Loader, seconds: f64, trainer: &mut dyn Trainer) -> Result<Watched, DoctorError> {
    if loader.plan().batches_per_epoch() == 0 {
        return Err(DoctorError::NoBatches);
    }
    let start = Instant::now();
    let mut all: Vec<(f64, BatchTime)> = Vec::new();
    let (mut counted, mut first_batch, mut recorder, mut first_snapshot) = (None, 0.0, None, None);
    let mut cores: Option<CoreSampler> = None;
    'epochs: loop {
        let epoch = loader.upcoming_epoch().0;
        let iteration = loader.begin()?;
        while let Some((batch, asked, ready)) = next(loader, iteration, trainer)? {
            let (samples, number) = (batch.len as u64, batch.number);
            trainer.receive(batch)?;
            let received = Instant::now();
            trainer.step()?;
            let done = Instant::now();
            let ms = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
            let (wait_ms, hand_over_ms, step_ms) = (ms(asked, ready), ms(ready, received), ms(received, done));
            let time = BatchTime { epoch, wait_ms, hand_over_ms, step_ms, samples };
            if let Some(recorder) = &mut recorder {
                LifeRecorder::add(recorder, (epoch, number), [asked, ready, received, done]);
            }
            // The clock is read after the step, so the last batch counts as a whole.
            let elapsed = start.elapsed().as_secs_f64();
            if all.is_empty() {
                // For very short runs, which have no other snapshot to compare with.
                first_snapshot = Some(loader.snapshot());
                first_batch = elapsed - time.step_ms / 1e3;
            }
            all.push((elapsed, time));
            let is_warm = all.len() > WARM_UP_BATCHES && elapsed > WARM_UP * seconds;
            if counted.is_none() && is_warm {
                let snapshot = loader.snapshot();
                cores = Some(CoreSampler::new(&snapshot));
                counted = Some((all.len(), elapsed, snapshot));
                recorder = Some(LifeRecorder::new(loader));
            }
            if let Some(cores) = &mut cores {
                cores.sample(loader);
            }
            if elapsed >= seconds {
                break 'epochs;
            }
        }
    }
    let after = loader.snapshot();
    let life = recorder.map(LifeRecorder::end).unwrap_or_default();
    // If too few batches are left after the warm-up, all but the first count.
    let is_enough = |counted: &(usize, f64, Snapshot)| all.len() - counted.0 >= WARM_UP_BATCHES;
    let (skipped, since, before) = counted.filter(is_enough).unwrap_or_else(|| {
        let (elapsed, _) = all[0];
        (
            1.min(all.len() - 1),
            if all.len() > 1 { elapsed } else { 0.0 },
            first_snapshot.unwrap_or_else(|| after.clone()),
        )
    });
    // The counters of the snapshots cover this time, also if fewer batches count.
    let span = all[all.len() - 1].0 - since;
    let counted = whole_epochs(&all, skipped);
    // The measurement starts when the batch before the first counted one was done.
    let began = if counted.start == skipped { since } else { all[counted.start - 1].0 };
    let seconds = all[counted.end - 1].0 - began;
    let samples = all[counted].iter().map(|(_, batch)| batch.samples).sum();
    let log = all[skipped..].iter().map(|(_, time)| *time).collect();
    let core_share = cores.and_then(|cores| CoreShare::of(&cores.windows));
    Ok(Watched { log, seconds, samples, before, after, span, first_batch, life, core_share })
}

/// The whole epochs after the skipped batches, if there are any. Each slow sample comes once per epoch, so parts of epochs would
/// distort the mean.
fn whole_epochs(all: &[(f64, BatchTime)], skipped: usize) -> Range<usize> {
    let is_first = |number: &usize| all[number - 1].1.epoch != all[*number].1.epoch;
    let mut firsts = (skipped.max(1)..all.len()).filter(is_first);
    match (firsts.next(), firsts.next_back()) {
        // From the first start of an epoch to the last one, so only complete epochs.
        (Some(first), Some(last)) => first..last,
        _ => skipped..all.len(),
    }
}

/// The next batch of an iteration, with the times at which it was requested and ready.
pub(super) fn next(
    loader: &Loader,
    iteration: Iteration,
    trainer: &mut dyn Trainer,
) -> Result<Option<(Batch, Instant, Instant)>, DoctorError> {
    let asked = Instant::now();
    loop {
        trainer.check()?;
        if !loader.wait_within(iteration, POLL)? {
            continue;
        }
        // Waiting and taking are separate calls, so that the hand-over can be timed alone.
        let ready = Instant::now();
        match loader.take(iteration)? {
            Next::Batch(batch) => return Ok(Some((*batch, asked, ready))),
            Next::End => return Ok(None),
            Next::NotYet => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_epochs_count_where_there_are_some() {
        let batch = |number: usize| (number as f64, BatchTime { epoch: number as u64 / 4, ..BatchTime::default() });
        let all: Vec<_> = (0..18).map(batch).collect();
        assert_eq!(whole_epochs(&all, 2), 4..16);
        assert_eq!(whole_epochs(&all, 13), 13..18, "no epoch is whole");
        assert_eq!(whole_epochs(&all[..5], 0), 0..5);
    }
}
