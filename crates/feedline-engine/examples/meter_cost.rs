//! The fastest pipeline: pictures of 32 x 32 pixels from memory, normalised; to see what counting costs.
//!
//! `cargo run --release -p feedline-engine --features switch-counting --example meter_cost -- counted 4` prints nanoseconds of the processor for
//! a sample, over four epochs; with `uncounted` nothing is counted, with `timeline` the life of every sample is kept too.

use std::sync::Arc;
use std::time::Duration;

use feedline_data::plan::{Document, Plan, Registry};
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;
use feedline_engine::metrics::switch;

const PLAN: &str = "batch_size = 256\n[source]\nkind = \"synthetic\"\nn = 51200\nshape = [32, 32, 3]\n\
                    [[ops]]\nop = \"Normalize\"\non = \"data\"\n";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = Arc::new(Document::parse(PLAN)?.open(&Registry::core())?);
    let what = std::env::args().nth(1).unwrap_or_default();
    switch::set(what != "uncounted");
    let epochs = std::env::args().nth(2).map_or(Ok(4), |text| text.parse())?;
    println!("{:.1}", nanoseconds_a_sample(&plan, what == "timeline", epochs)?);
    Ok(())
}

/// Processor time of the whole process for a sample.
fn nanoseconds_a_sample(
    plan: &Arc<Plan>,
    has_timeline: bool,
    epochs: usize,
) -> Result<f64, feedline_engine::error::Error> {
    let loader = Loader::new(Arc::clone(plan), &Machine::default());
    let (mut samples, mut start) = (0_u64, Duration::ZERO);
    for epoch in 0..=epochs {
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
