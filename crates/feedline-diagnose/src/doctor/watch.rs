//! A plan that runs, with a trainer, for some seconds: what each batch took, and what the engine did meanwhile.

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

/// The longest wait between two looks at whether the user wants to stop.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// Interval at which the share of cores is sampled.
const CORE_WINDOW: Duration = Duration::from_millis(200);
/// The part of a run at its beginning that does not count.
const WARM_UP: f64 = 0.25;
/// Batches that do not count at the beginning, where there are many more.
const WARM_UP_BATCHES: usize = 4;

/// A plan that runs somewhere for some time.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// What it runs.
    pub plan: &'a Arc<Plan>,
    /// Where.
    pub machine: &'a Machine,
    /// For how long.
    pub seconds: f64,
}

/// What takes batches: a training loop, or something that takes as long.
pub trait Trainer {
    /// Takes a batch, and makes of it what it works with.
    fn receive(&mut self, batch: Batch) -> Result<(), DoctorError>;

    /// Works on the batch that was received last.
    fn step(&mut self) -> Result<(), DoctorError>;

    /// Hears how many samples of all are packed, where a trial does that.
    fn packed(&mut self, _samples: u64, _of: u64) {}

    /// An error if the user wants to stop. Asked at least ten times a second but for during a step.
    fn check(&mut self) -> Result<(), DoctorError> {
        Ok(())
    }
}

/// A trainer that does nothing.
struct Nobody<'a>(&'a mut dyn Trainer);

impl Trainer for Nobody<'_> {
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

/// What a run was like, its beginning left out.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub log: Vec<BatchTime>,
    pub seconds: f64,
    pub samples: u64,
    /// The engine before and after, and the seconds between them: a little longer, where whole epochs count.
    pub before: Snapshot,
    pub after: Snapshot,
    pub span: f64,
    /// Seconds until the first batch.
    pub first_batch: f64,
    /// A stretch of its batches.
    pub life: Life,
    /// The share of cores that its threads got, where that is known.
    pub core_share: Option<CoreShare>,
}

/// Samples the time of threads on cores and in the queue for one, a few times a second.
struct CoreSampler {
    last: (Instant, f64, f64),
    windows: Vec<CoreWindow>,
}

impl CoreSampler {
    fn new(snapshot: &Snapshot) -> Self {
        Self { last: (Instant::now(), snapshot.core_seconds, snapshot.core_wait_seconds), windows: Vec::new() }
    }

    /// Looks again, if the last look was a while ago.
    fn look(&mut self, loader: &Loader) {
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

    /// The mean milliseconds of a batch.
    pub(super) fn mean_ms(&self, of: impl Fn(&BatchTime) -> f64) -> f64 {
        self.log.iter().map(of).sum::<f64>() / self.log.len().max(1) as f64
    }

    /// Seconds of preparer threads between the snapshots, whatever they did.
    pub(super) fn thread_seconds(&self) -> f64 {
        self.span * self.after.num_workers as f64
    }

    /// The part of it in which they had nothing to do.
    pub(super) fn idle_share(&self) -> f64 {
        let idle = self.after.idle_seconds - self.before.idle_seconds;
        if self.thread_seconds() > 0.0 { (idle / self.thread_seconds()).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Milliseconds of a thread for a sample on a core, and in the queue for one, where the system says it.
    pub(super) fn thread_time(&self, all: f64) -> Option<ThreadTime> {
        let samples = (self.after.samples - self.before.samples).max(1) as f64;
        let ms = |of: fn(&Snapshot) -> f64| 1e3 * (of(&self.after) - of(&self.before)).max(0.0) / samples;
        let (cpu, core_wait) = (ms(|snapshot| snapshot.core_seconds), ms(|snapshot| snapshot.core_wait_seconds));
        (cpu > 0.0).then_some(ThreadTime { all, cpu, core_wait })
    }

    /// Seconds of a thread for a sample, without those in which it had nothing to do.
    pub(super) fn thread_seconds_a_sample(&self) -> f64 {
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

/// The same without a trainer: as fast as it can.
pub(super) fn watch_alone(job: Job<'_>, trainer: &mut dyn Trainer) -> Result<Watched, DoctorError> {
    watch(job, &mut Nobody(trainer))
}

/// Runs a loader with a trainer for some seconds, from the epoch on that is next.
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
            let elapsed = start.elapsed().as_secs_f64();
            if all.is_empty() {
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
                cores.look(loader);
            }
            if elapsed >= seconds {
                break 'epochs;
            }
        }
    }
    let after = loader.snapshot();
    let life = recorder.map(LifeRecorder::end).unwrap_or_default();
    // A run of a few batches counts as a whole, but for the first.
    let is_enough = |counted: &(usize, f64, Snapshot)| all.len() - counted.0 >= WARM_UP_BATCHES;
    let (skipped, since, before) = counted.filter(is_enough).unwrap_or_else(|| {
        let (elapsed, _) = all[0];
        (
            1.min(all.len() - 1),
            if all.len() > 1 { elapsed } else { 0.0 },
            first_snapshot.unwrap_or_else(|| after.clone()),
        )
    });
    let span = all[all.len() - 1].0 - since;
    let counted = whole_epochs(&all, skipped);
    let began = if counted.start == skipped { since } else { all[counted.start - 1].0 };
    let seconds = all[counted.end - 1].0 - began;
    let samples = all[counted].iter().map(|(_, batch)| batch.samples).sum();
    let log = all[skipped..].iter().map(|(_, time)| *time).collect();
    let core_share = cores.and_then(|cores| CoreShare::of(&cores.windows));
    Ok(Watched { log, seconds, samples, before, after, span, first_batch, life, core_share })
}

/// The whole epochs behind those that are skipped, if there are some: a slow sample comes once in each.
fn whole_epochs(all: &[(f64, BatchTime)], skipped: usize) -> Range<usize> {
    let is_first = |number: &usize| all[number - 1].1.epoch != all[*number].1.epoch;
    let mut firsts = (skipped.max(1)..all.len()).filter(is_first);
    match (firsts.next(), firsts.next_back()) {
        (Some(first), Some(last)) => first..last,
        _ => skipped..all.len(),
    }
}

/// The next batch of an iteration, when it was asked for, and when it was ready.
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
