//! Measures how a job scales with consumers and with threads. Steps are simulated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use feedline_data::batch::Batch;
use feedline_data::plan::Workers;
use feedline_engine::loader::{Loader, Next};
use feedline_memory::Mutex;
use serde::Serialize;

use super::DoctorError;
use super::parts::{samples_of_a_batch, varied};
use super::watch::{Job, POLL, Trainer, watch};

/// Numbers of consumers.
const CONSUMERS: [usize; 4] = [1, 2, 4, 8];
/// The fraction of the time to ignore at the start.
const WARM_UP: f64 = 0.3;

/// Samples per second with several consumers.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ConsumersRow {
    pub consumers: usize,
    /// A multiple of what one consumer reaches without loading.
    pub linear: f64,
    /// Measured without loading: only steps.
    pub synthetic: f64,
    /// Measured with loading.
    pub real: f64,
}

/// The time of a batch with some number of threads.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct WorkersRow {
    pub num_workers: usize,
    pub step_ms: f64,
    /// Waiting time of the consumer.
    pub load_ms: f64,
    pub total_ms: f64,
    pub samples_per_second: f64,
}

/// A step that only takes time.
struct Sleeper<'a> {
    step: Duration,
    trainer: &'a mut dyn Trainer,
}

impl Trainer for Sleeper<'_> {
    fn receive(&mut self, _: Batch) -> Result<(), DoctorError> {
        Ok(())
    }

    fn step(&mut self) -> Result<(), DoctorError> {
        thread::sleep(self.step);
        Ok(())
    }

    fn check(&mut self) -> Result<(), DoctorError> {
        self.trainer.check()
    }
}

/// Runs the plan with 1, 2, 4 and more threads, up to four for each core.
pub(super) fn by_workers(
    job: Job<'_>,
    step_ms: f64,
    trainer: &mut dyn Trainer,
) -> Result<Vec<WorkersRow>, DoctorError> {
    let plan = job.plan;
    let most = (4 * Workers::Auto.count()).max(plan.config().num_workers.count());
    let mut rows = Vec::new();
    let counts = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count <= most);
    for num_workers in counts {
        let changed = varied(plan, plan.source(), plan.ops().to_vec(), |_, config| {
            config.num_workers = Workers::Count(num_workers);
        })?;
        let step = Duration::from_secs_f64(step_ms / 1e3);
        let watched = watch(Job { plan: &changed, ..job }, &mut Sleeper { step, trainer })?;
        rows.push(WorkersRow {
            num_workers,
            step_ms: watched.mean_ms(|batch| batch.step_ms),
            load_ms: watched.mean_ms(super::BatchTime::load_ms),
            total_ms: watched.mean_ms(super::BatchTime::total_ms),
            samples_per_second: watched.samples_per_second(),
        });
    }
    Ok(rows)
}

/// Feeds 1, 2, 4 and 8 consumers from one loader.
pub(super) fn by_consumers(
    job: Job<'_>,
    step_ms: f64,
    trainer: &mut dyn Trainer,
) -> Result<Vec<ConsumersRow>, DoctorError> {
    let Job { plan, machine, seconds } = job;
    let batch = samples_of_a_batch(plan);
    let mut rows: Vec<ConsumersRow> = Vec::new();
    for consumers in CONSUMERS {
        let loader = Loader::new(Arc::clone(plan), machine);
        let real = feed(Some(&loader), Feeding { consumers, step_ms, seconds }, trainer);
        loader.close();
        let real = real?;
        let synthetic = batch * feed(None, Feeding { consumers, step_ms, seconds: seconds / 2.0 }, trainer)?;
        // The first row has no row before it, so it is its own reference.
        let linear = consumers as f64 * rows.first().map_or(synthetic, |one| one.synthetic);
        rows.push(ConsumersRow { consumers, linear, synthetic, real });
    }
    Ok(rows)
}

/// Consumers that each take a batch, step, and take the next.
#[derive(Clone, Copy, Debug)]
struct Feeding {
    consumers: usize,
    step_ms: f64,
    seconds: f64,
}

/// Samples per second that consumers get from a loader. Without a loader, steps per second.
fn feed(loader: Option<&Loader>, feeding: Feeding, trainer: &mut dyn Trainer) -> Result<f64, DoctorError> {
    let Feeding { consumers, step_ms, seconds } = feeding;
    let (counted, is_over, is_warm) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let step = Duration::from_secs_f64(step_ms / 1e3);
    let step_once = |samples: u64| {
        thread::sleep(step);
        if is_warm.load(Ordering::Relaxed) {
            counted.fetch_add(samples, Ordering::Relaxed);
        }
    };
    let iteration = Mutex::new(loader.map(Loader::begin).transpose()?);
    let current = || *iteration.lock();
    let consume = || -> Result<(), DoctorError> {
        while !is_over.load(Ordering::Relaxed) {
            // Without a loader this measures the steps alone.
            let Some((loader, now)) = loader.zip(current()) else {
                step_once(1);
                continue;
            };
            match loader.next_within(now, POLL) {
                Ok(Next::Batch(batch)) => step_once(batch.len as u64),
                // Superseded: another consumer has begun the next epoch. This one continues with the new iteration.
                Ok(Next::NotYet) | Err(feedline_engine::error::Error::Superseded) => {}
                // The consumer that notices it first begins the next epoch.
                Ok(Next::End) => {
                    let mut iteration = iteration.lock();
                    // Otherwise another consumer has begun the next epoch already.
                    if *iteration == Some(now) {
                        *iteration = Some(loader.begin()?);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..consumers).map(|_| scope.spawn(consume)).collect();
        let stopped = wait(seconds * WARM_UP, trainer);
        // Relaxed suffices: a step that is counted a moment too early or too late does not matter.
        is_warm.store(true, Ordering::Relaxed);
        let start = Instant::now();
        let stopped = stopped.and_then(|()| wait(seconds * (1.0 - WARM_UP), trainer));
        let measured = start.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        let ends: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        // All threads are joined before an error is returned.
        stopped?;
        for end in ends {
            end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(counted.load(Ordering::Relaxed) as f64 / measured)
    })
}

/// Waits, unless the user wants to stop.
fn wait(seconds: f64, trainer: &mut dyn Trainer) -> Result<(), DoctorError> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        trainer.check()?;
        thread::sleep(POLL.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}
