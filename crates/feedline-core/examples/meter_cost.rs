//! What counting costs on the fastest pipeline: pictures of 32 x 32 pixels from memory, normalised.
//!
//! `cargo run --release -p feedline-core --example meter_cost` prints JSON: processor time of a sample, the part of it that goes to the
//! meters that are always on (measured alone, by as many threads at once), and what a timeline of every sample adds.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use feedline_core::metrics::{Metrics, thread_cpu_time};
use feedline_core::{Document, Loader, Machine, Next, Plan, Registry};

const PLAN: &str = "batch_size = 256\nnum_workers = 2\n[source]\nkind = \"synthetic\"\nn = 51200\nshape = [32, 32, 3]\n\
                    [[ops]]\nop = \"Normalize\"\n";
const THREADS: usize = 2;
const RUNS: usize = 7;
const EPOCHS: usize = 4;
const CALLS: u32 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = Arc::new(Document::parse(PLAN)?.open(&Registry::core())?);
    let (mut plain, mut traced) = (f64::MAX, f64::MAX);
    for _ in 0..RUNS {
        plain = plain.min(nanoseconds_a_sample(&plan, false)?);
        traced = traced.min(nanoseconds_a_sample(&plan, true)?);
    }
    let meters = meters(&plan);
    println!(
        "{{\"sample_ns\": {plain:.1}, \"meters_ns\": {meters:.1}, \"meters_share\": {:.4}, \"timeline_share\": {:.4}}}",
        meters / plain,
        traced / plain - 1.0
    );
    Ok(())
}

/// Processor time of the whole process for a sample.
fn nanoseconds_a_sample(plan: &Arc<Plan>, is_traced: bool) -> Result<f64, feedline_core::Error> {
    let loader = Loader::new(Arc::clone(plan), &Machine::default());
    let (mut samples, mut start) = (0_u64, Duration::ZERO);
    for epoch in 0..=EPOCHS {
        if epoch == 1 {
            (samples, start) = (0, process_cpu_time());
        }
        if is_traced {
            loader.start_timeline(usize::MAX);
        }
        let iteration = loader.begin()?;
        loop {
            match loader.next_within(iteration, Duration::from_secs(1))? {
                Next::Batch(batch) => samples += batch.len as u64,
                Next::End => break,
                Next::NotYet => {}
            }
        }
    }
    let spent = process_cpu_time().saturating_sub(start);
    loader.close();
    Ok(spent.as_nanos() as f64 / samples as f64)
}

/// Processor time of the threads of this process.
fn process_cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_task = |entry: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
        stat.split(' ').next().and_then(|text| text.parse::<u64>().ok()).unwrap_or_default()
    };
    Duration::from_nanos(tasks.map(of_task).sum())
}

/// Nanoseconds of a thread for what is counted of a sample, while others count too.
fn meters(plan: &Plan) -> f64 {
    let metrics = Metrics::new(plan);
    let mut least = f64::MAX;
    for _ in 0..RUNS {
        let spent: Vec<Duration> = thread::scope(|scope| {
            let count = || {
                let start = thread_cpu_time();
                for call in 0..CALLS {
                    metrics.ops[0].add(Duration::from_nanos(u64::from(call & 1023)), None, 3072);
                }
                thread_cpu_time().saturating_sub(start)
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it only counts")).collect()
        });
        let mean = spent.iter().map(Duration::as_nanos).sum::<u128>() as f64 / f64::from(CALLS) / THREADS as f64;
        least = least.min(mean);
    }
    least
}
