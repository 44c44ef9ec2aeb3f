//! Arguments of the commands that measure or check a plan.

use std::path::PathBuf;

use clap::Args;
use feedline_data::plan::Policy;

/// Arguments of `feedline run`.
#[derive(Args, Debug)]
#[command(after_help = "\
Nothing is done with the batches, so a stall share near 100 % is the loader at full speed.

Examples:
  feedline run plan.toml
  feedline run plan.toml --epochs 3 --num-workers 8
  feedline run plan.toml --batches 100 --json | jq .samples_per_second")]
pub(crate) struct RunArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// Epochs to run.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// Most batches to take of each epoch.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub batches: Option<u64>,
    /// Preparer threads, in place of the plan's.
    #[arg(long)]
    pub num_workers: Option<usize>,
}

/// Arguments of `feedline doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
Measures the step, reading and preparing each alone, says what the job will reach, and then what it does reach, all together.
The step is simulated by waiting; with a step of your own, call feedline.doctor(loader, step=...) in Python.

Examples:
  feedline doctor plan.toml --step-ms 80
  feedline doctor plan.toml --step-ms 80 --html doctor.html --trace life.json
  feedline doctor plan.toml --step-ms 80 --try best
  feedline doctor plan.toml --step-ms 80 --quick --seconds 5 --json | jq .bound")]
pub struct DoctorArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// How long the accelerator works on a batch.
    #[arg(long, default_value_t = 0.0)]
    pub step_ms: f64,
    /// How long the joint run is.
    #[arg(long, default_value_t = 30.0, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Leave out the tables over consumers, threads and formats.
    #[arg(long)]
    pub quick: bool,
    /// Try a remedy by its name (workers, cache, ...), the `best` of them, or `all`; predicted against measured.
    #[arg(long, value_name = "REMEDY", num_args = 0..=1, default_missing_value = "best")]
    pub r#try: Option<String>,
    /// A page with plots, the life of batches among them.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The life of batches as a trace for Perfetto (ui.perfetto.dev) or Chrome (about:tracing).
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// Arguments of `feedline shuffle`.
#[derive(Args, Debug)]
#[command(after_help = "\
Only the order is looked at, and the classes of samples where they have some: no data is read.

Examples:
  feedline shuffle plan.toml
  feedline shuffle plan.toml --html shuffle.html --svg shuffle.svg
  feedline shuffle plan.toml --json | jq .plan.labels.classes_per_batch")]
pub(crate) struct ShuffleArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// The epoch to look at, with the one after it.
    #[arg(long, default_value_t = 0)]
    pub epoch: u64,
    #[command(flatten)]
    pub drawn: DrawnFiles,
}

/// Files for the plots of a command.
#[derive(Args, Debug)]
pub(crate) struct DrawnFiles {
    /// A page with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The plots alone, as a picture.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Arguments of `feedline cost`.
#[derive(Args, Debug)]
#[command(after_help = "\
Runs one epoch, after one to learn from if nothing is known of the plan yet. Costs are kept in the cache folder
(FEEDLINE_CACHE, else ~/.cache/feedline) and let slow samples start early from the first epoch on.

Examples:
  feedline cost plan.toml
  feedline cost plan.toml --slowest 20 --json
  feedline cost plan.toml --sample case_00013/imaging.nii.gz --seeds 0,1")]
pub(crate) struct CostArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// How many of the slowest samples are named.
    #[arg(long, default_value_t = 10)]
    pub slowest: usize,
    /// The time of each op for one sample, by its name.
    #[arg(long)]
    pub sample: Option<String>,
    /// The seeds of its draws.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1], requires = "sample")]
    pub seeds: Vec<u64>,
}

/// Arguments of `feedline offload`.
#[derive(Args, Debug)]
#[command(after_help = "\
Runs the plan for some seconds without and with the storage server's help, and asks the server what single samples would
take in each form. The plan's source is on a storage server: root = \"feedline://host:7077/train\".

Examples:
  feedline offload plan.toml
  feedline offload plan.toml --step-ms 80 --policy sophon
  feedline offload plan.toml --html offload.html --svg offload.svg
  feedline offload plan.toml --json")]
pub(crate) struct OffloadArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// The policy to look at, in place of the plan's.
    #[arg(long, value_parser = policy, value_name = "POLICY")]
    pub policy: Option<Policy>,
    /// How long the accelerator works on a batch.
    #[arg(long, default_value_t = 0.0)]
    pub step_ms: f64,
    /// How long each of the two runs is.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// How many samples are looked at in all forms.
    #[arg(long, default_value_t = 64)]
    pub samples: u64,
    #[command(flatten)]
    pub drawn: DrawnFiles,
}

/// Arguments of `feedline verify`.
#[derive(Args, Debug)]
#[command(after_help = "\
Runs the first samples of each epoch in several configurations that must not differ (1, 2 and 5 workers, what is prepared
ahead, orders of delivery, stopped and resumed, fused and op by op, offloaded and local), and compares samples and bytes.
Numbers of samples are counted over whole epochs, up to two million. A bad sample is a finding, not a broken law.
Exits with 1 if a law is broken; the last line says which.

Examples:
  feedline verify plan.toml
  feedline verify plan.toml --samples 100000 --epochs 3
  feedline verify plan.toml --json | jq '.laws[] | select(.verdict == \"fail\") | .counterexample'")]
pub(crate) struct VerifyArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// Samples of each epoch to look at in each configuration, in whole batches, and at least four of them.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: u64,
    /// Epochs to look at.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1000))]
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
