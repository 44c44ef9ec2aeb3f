//! `feedline top`: shows the metrics of this machine's node, updated every second.
//!
//! In: the metrics of the node, as JSON. Out: a table that is redrawn, or a single report with `--once` or `--json`.

mod history;

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use feedline_data::plan::ByteSize;
use feedline_engine::metrics::Phase;
use feedline_net::node::fetch_stats;
use serde::{Serialize, Serializer};
use serde_json::Value;

use self::history::{History, list, number};
use crate::arguments::TopArguments;
use crate::environment;
use crate::interrupt::{Interrupt, POLL};
use crate::output::Output;

/// Interval between two updates.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);
/// ANSI escape sequence: moves the cursor to the top left and clears the screen below it.
const REDRAW: &str = "\x1b[H\x1b[J";

/// The metrics of a node. As JSON, only the newest.
struct TopReport(History);

impl Serialize for TopReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.newest().serialize(serializer)
    }
}

fn bytes(value: &Value, path: &str) -> ByteSize {
    ByteSize(number(value, path) as u64)
}

impl TopReport {
    /// Writes the metrics of a run and of its jobs.
    fn write_run(&self, f: &mut fmt::Formatter<'_>, run: &Value) -> fmt::Result {
        let rate = |field: &str| self.0.rate("/runs", "key", run, field);
        let ops: Vec<&str> = list(run, "/ops").iter().filter_map(Value::as_str).collect();
        writeln!(
            f,
            "\n{} ({:.0} samples): {}",
            run["folder"].as_str().unwrap_or("?"),
            number(run, "/samples"),
            ops.join(", ")
        )?;
        writeln!(
            f,
            "  produced {:.0}/s, delivered {:.0}/s, each sample read {:.2}x; {:.0} live segments, {}; {:.0} threads",
            rate("/produced_samples"),
            rate("/leased_samples"),
            number(run, "/leased_per_produced"),
            number(run, "/live_segments"),
            bytes(run, "/live_bytes"),
            number(run, "/engine/num_workers"),
        )?;
        let jobs = number(run, "/jobs").max(1.0);
        let stall = |cause: Phase| {
            let path = format!("/engine/stall_seconds/{}", cause.name());
            // Waiting times are summed over jobs, which wait at the same time.
            // Seconds of waiting per second, for one job.
            let share = (rate(&path) / jobs).min(1.0);
            format!("{} {:.0} % ({:.1} s)", cause.name(), 100.0 * share, number(run, &path))
        };
        writeln!(f, "  jobs wait for: {}", Phase::ALL.map(stall).join(", "))?;
        self.write_jobs(f, run)
    }

    fn write_jobs(&self, f: &mut fmt::Formatter<'_>, run: &Value) -> fmt::Result {
        let mut table = String::new();
        for job in list(self.0.newest(), "/jobs").iter().filter(|job| job["key"] == run["key"]) {
            let rate = |field: &str| self.0.rate("/jobs", "job", job, field);
            writeln!(
                table,
                "  {:>9} {:>6.0} {:>12.0} {:>11.0} {:>8.0} %",
                number(job, "/process"),
                number(job, "/epoch"),
                number(job, "/samples"),
                rate("/samples"),
                100.0 * rate("/waited_seconds").min(1.0),
            )?;
        }
        if table.is_empty() {
            return Ok(());
        }
        write!(f, "    process  epoch      samples   samples/s   waiting\n{table}")
    }
}

impl fmt::Display for TopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.0.newest();
        let runs = list(stats, "/runs");
        writeln!(
            f,
            "node: {} runs, {} jobs ({:.0} ever), {} of {} in use, up {:.0} s",
            runs.len(),
            list(stats, "/jobs").len(),
            number(stats, "/jobs_attached_total"),
            bytes(stats, "/live_bytes"),
            bytes(stats, "/memory_bytes"),
            number(stats, "/seconds"),
        )?;
        runs.iter().try_for_each(|run| self.write_run(f, run))
    }
}

/// Shows the metrics until the user stops it.
pub(crate) fn top(typed: &TopArguments, output: Output, interrupt: &Interrupt<'_>) -> Result<()> {
    let socket = typed.socket.clone().unwrap_or_else(environment::node_socket);
    let stats = || -> Result<Value> {
        let text = fetch_stats(&socket)?;
        serde_json::from_str(&text).context("the node sent invalid metrics; it may have another version")
    };
    let mut report = TopReport(History::new(stats()?));
    let is_live = !typed.once && output == Output::Text && io::stdout().is_terminal();
    // JSON needs no rates, so it does not wait for a second measurement.
    if output == Output::Json {
        return output.write(&report);
    }
    loop {
        let deadline = Instant::now() + UPDATE_INTERVAL;
        while Instant::now() < deadline {
            interrupt.check()?;
            thread::sleep(POLL);
        }
        report.0.add(stats()?);
        if !is_live {
            return output.write(&report);
        }
        let mut stdout = io::stdout().lock();
        write!(stdout, "{REDRAW}{report}")?;
        stdout.flush()?;
    }
}
