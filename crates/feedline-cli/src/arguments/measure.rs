//! Arguments of the commands that measure or check a plan.

use std::path::PathBuf;

use clap::Args;
use feedline_data::plan::Policy;

use super::{OUTPUT, RESOURCES};

/// Arguments of `feedline run`.
#[derive(Args, Debug)]
#[command(after_help = "\
The command only receives the batches, so a stall share near 100 % means that the loader runs at full speed.

Examples:
  feedline run plan.toml
  feedline run plan.toml --epochs 3 --num-workers 8
  feedline run plan.toml --batches 100 --json | jq .samples_per_second")]
pub(crate) struct RunArguments {
    /// The plan, a TOML file. Relative paths in it start at the current folder.
    pub plan: PathBuf,
    /// Number of epochs.
    #[arg(long, help_heading = "What to run", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// Stop each epoch after this many batches.
    #[arg(long, help_heading = "What to run", value_parser = clap::value_parser!(u64).range(1..))]
    pub batches: Option<u64>,
    /// Threads that prepare samples, instead of the plan's number.
    #[arg(long, help_heading = RESOURCES)]
    pub num_workers: Option<usize>,
}

/// Arguments of `feedline doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
The command measures the step, reading and preparing separately, and predicts the throughput. Then it runs all together and
compares. The step is simulated by waiting. To measure your own step, call feedline.doctor(loader, step=...) in Python.

Examples:
  feedline doctor plan.toml --step-ms 80
  feedline doctor plan.toml --step-ms 80 --html doctor.html --trace life.json
  feedline doctor plan.toml --step-ms 80 --try best
  feedline doctor plan.toml --step-ms 80 --quick --seconds 5 --json | jq .bound")]
pub struct DoctorArguments {
    /// The plan, a TOML file. Relative paths in it start at the current folder.
    pub plan: PathBuf,
    /// Milliseconds that the accelerator needs for a batch.
    #[arg(long, help_heading = "What to run", default_value_t = 0.0)]
    pub step_ms: f64,
    /// Length of the joint run, in seconds.
    #[arg(long, help_heading = "What to run", default_value_t = 30.0, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Skip the tables over consumers, threads and picture formats.
    #[arg(long, help_heading = "What to run")]
    pub quick: bool,
    /// Run the job with a remedy: one by name (workers, cache, ...), the `best`, or `all`. Compares prediction and measurement.
    #[arg(long, help_heading = "What to run", value_name = "REMEDY", num_args = 0..=1, default_missing_value = "best")]
    pub r#try: Option<String>,
    /// Write a page with plots and the timeline of batches.
    #[arg(long, help_heading = OUTPUT, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the timeline of batches for Perfetto (ui.perfetto.dev) or Chrome (about:tracing).
    #[arg(long, help_heading = OUTPUT, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// Arguments of `feedline shuffle`.
#[derive(Args, Debug)]
#[command(after_help = "\
The command only computes the order. It reads no data, but uses the classes of the samples if they have any.

Examples:
  feedline shuffle plan.toml
  feedline shuffle plan.toml --html shuffle.html --svg shuffle.svg
  feedline shuffle plan.toml --json | jq .plan.labels.classes_per_batch")]
pub(crate) struct ShuffleArguments {
    /// The plan, a TOML file. Relative paths in it start at the current folder.
    pub plan: PathBuf,
    /// First of the two epochs that are compared.
    #[arg(long, help_heading = "What to compare", default_value_t = 0)]
    pub epoch: u64,
    #[command(flatten)]
    pub drawn: DrawnFiles,
}

/// Files for the plots of a command.
#[derive(Args, Debug)]
pub(crate) struct DrawnFiles {
    /// Write a page with plots.
    #[arg(long, help_heading = OUTPUT, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the plots as a picture.
    #[arg(long, help_heading = OUTPUT, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Arguments of `feedline cost`.
#[derive(Args, Debug)]
#[command(after_help = "\
The command runs one epoch, and another one first if no costs of the plan are known. Costs are kept in the cache folder
(FEEDLINE_CACHE, else ~/.cache/feedline). Later runs use them to start slow samples early from the first epoch on.

Examples:
  feedline cost plan.toml
  feedline cost plan.toml --slowest 20 --json
  feedline cost plan.toml --sample case_00013/imaging.nii.gz --seeds 0,1")]
pub(crate) struct CostArguments {
    /// The plan, a TOML file. Relative paths in it start at the current folder.
    pub plan: PathBuf,
    /// Number of slow samples to name.
    #[arg(long, help_heading = OUTPUT, default_value_t = 10)]
    pub slowest: usize,
    /// Show the time of each op for one sample, given by its key.
    #[arg(long, help_heading = "One sample")]
    pub sample: Option<String>,
    /// Seeds of the sample's random draws.
    #[arg(long, help_heading = "One sample", value_delimiter = ',', default_values_t = [0, 1], requires = "sample")]
    pub seeds: Vec<u64>,
}

/// Arguments of `feedline offload`.
#[derive(Args, Debug)]
#[command(after_help = "\
The command runs the plan without and with the help of the storage server. It also asks the server for the size and cost of
single samples in each form. The source of the plan is on a storage server: root = \"feedline://host:7077/train\".

Examples:
  feedline offload plan.toml
  feedline offload plan.toml --step-ms 80 --policy sophon
  feedline offload plan.toml --html offload.html --svg offload.svg
  feedline offload plan.toml --json")]
pub(crate) struct OffloadArguments {
    /// The plan, a TOML file. Relative paths in it start at the current folder.
    pub plan: PathBuf,
    /// Policy to measure, instead of the plan's.
    #[arg(long, help_heading = "What to run", value_parser = policy, value_name = "POLICY")]
    pub policy: Option<Policy>,
    /// Milliseconds that the accelerator needs for a batch.
    #[arg(long, help_heading = "What to run", default_value_t = 0.0)]
    pub step_ms: f64,
    /// Length of each of the two runs, in seconds.
    #[arg(long, help_heading = "What to run", default_value_t = 10.0)]
    pub seconds: f64,
    /// Number of samples to measure in all forms.
    #[arg(long, help_heading = "What to run", default_value_t = 64)]
    pub samples: u64,
    #[command(flatten)]
    pub drawn: DrawnFiles,
}

/// Arguments of `feedline verify`.
#[derive(Args, Debug)]
#[command(after_help = "\
The command runs the first samples of each epoch in configurations whose streams must be equal, and compares the bytes:
1, 2 and 5 workers, other prefetch, other orders, stopped and resumed, fused and op by op, offloaded and local. It counts
the samples of whole epochs, up to two million. A bad sample is a finding, not a broken promise. The exit code is 1 if a
promise does not hold, and the last line names it.

Examples:
  feedline verify plan.toml
  feedline verify plan.toml --samples 100000 --epochs 3
  feedline verify plan.toml --json | jq '.laws[] | select(.verdict == \"fail\") | .counterexample'")]
pub(crate) struct VerifyArguments {
    /// The plan, a TOML file. Relative paths in it start at the current folder.
    pub plan: PathBuf,
    /// Samples of each epoch to compare, in whole batches, at least four batches.
    #[arg(long, help_heading = "What to check", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: u64,
    /// Number of epochs to compare.
    #[arg(long, help_heading = "What to check", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub epochs: u64,
}

fn policy(text: &str) -> Result<Policy, String> {
    let known = || format!("a policy is {}", Policy::ALL.map(|policy| policy.to_string()).join(", "));
    Policy::ALL.into_iter().find(|policy| policy.to_string() == text).ok_or_else(known)
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "write seconds, from 0.1 to 86400".to_owned())
}
