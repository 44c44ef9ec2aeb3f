//! The arguments of the doctor as typed, with their help.

use std::path::PathBuf;

use clap::Args;

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

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "write seconds, from 0.1 to 86400".to_owned())
}
