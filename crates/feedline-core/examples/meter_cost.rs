//! Processor time of a sample on the fastest pipeline: pictures of 32 x 32 pixels from memory, normalised.
//!
//! `cargo run --release -p feedline-core --example meter_cost` prints nanoseconds as JSON, without and with a timeline of every sample.
//! With `--features uncounted` nothing is counted: the difference is what counting costs.

use std::sync::Arc;
use std::time::Duration;

use feedline_core::{Document, Loader, Machine, Next, Plan, Registry};

const PLAN: &str = "batch_size = 256\n[source]\nkind = \"synthetic\"\nn = 51200\nshape = [32, 32, 3]\n\
                    [[ops]]\nop = \"Normalize\"\non = \"data\"\n";
const RUNS: usize = 3;
const EPOCHS: usize = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = Arc::new(Document::parse(PLAN)?.open(&Registry::core())?);
    let (mut plain, mut traced) = (f64::MAX, f64::MAX);
    for _ in 0..RUNS {
        plain = plain.min(nanoseconds_a_sample(&plan, false)?);
        traced = traced.min(nanoseconds_a_sample(&plan, true)?);
    }
    println!("{{\"plain\": {plain:.1}, \"timeline\": {traced:.1}}}");
    Ok(())
}

/// Processor time of the whole process for a sample.
fn nanoseconds_a_sample(plan: &Arc<Plan>, has_timeline: bool) -> Result<f64, feedline_core::Error> {
    let loader = Loader::new(Arc::clone(plan), &Machine::default());
    let (mut samples, mut start) = (0_u64, Duration::ZERO);
    for epoch in 0..=EPOCHS {
        if epoch == 1 {
            (samples, start) = (0, process_cpu_time());
        }
        if has_timeline {
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
