//! `feedline top`: how the node of this machine is doing, anew each second.
//!
//! In: what the node says of itself, as JSON. Out: a table that is drawn over the last one; with `--once` or `--json` one look.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use feedline_core::plan::ByteSize;
use feedline_net::node::look;
use serde::Serialize;
use serde_json::Value;

use crate::arguments::TopArguments;
use crate::environment;
use crate::interrupt::{Interrupt, POLL};
use crate::output::Output;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);
/// Goes to the top left and clears what is below.
const REDRAW: &str = "\x1b[H\x1b[J";

/// One look at a node, and what has changed since the one before.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Look {
    stats: Value,
    #[serde(skip)]
    before: Option<(Value, f64)>,
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

impl Look {
    /// What something was, with the same name, at the look before.
    fn rate(&self, of: &str, key: (&str, &Value), field: &str, now: f64) -> f64 {
        let Some((before, seconds)) = &self.before else { return 0.0 };
        let same = list(before, of).iter().find(|entry| entry.get(key.0) == Some(key.1));
        same.map_or(0.0, |entry| (now - number(entry, field)).max(0.0) / seconds.max(1e-3))
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.stats;
        let (runs, jobs) = (list(stats, "/runs"), list(stats, "/jobs"));
        let bytes = |bytes: f64| ByteSize(bytes as u64).to_string();
        let live = |run: &Value| number(run, "/live_segments") * number(run, "/segment_bytes");
        writeln!(
            f,
            "node: {} runs, {} jobs ({:.0} ever), {} of {} in use, up {:.0} s",
            runs.len(),
            jobs.len(),
            number(stats, "/jobs_attached_total"),
            bytes(runs.iter().map(live).sum()),
            bytes(number(stats, "/memory_bytes")),
            number(stats, "/seconds"),
        )?;
        for run in runs {
            let (produced, leased) = (number(run, "/produced_samples"), number(run, "/leased_samples"));
            let key = ("key", &run["key"]);
            let rate = |field: &str, now| self.rate("/runs", key, field, now);
            let ops: Vec<&str> = list(run, "/ops").iter().filter_map(Value::as_str).collect();
            writeln!(
                f,
                "\n{} ({:.0} samples): {}",
                run["first_sample"].as_str().unwrap_or("?"),
                number(run, "/samples"),
                ops.join(", ")
            )?;
            writeln!(
                f,
                "  produced {:.0}/s, delivered {:.0}/s, each sample read {:.2}x; {:.0} of {:.0} segments live, {}; {:.0} threads",
                rate("/produced_samples", produced),
                rate("/leased_samples", leased),
                leased / produced.max(1.0),
                number(run, "/live_segments"),
                number(run, "/segments"),
                bytes(live(run)),
                number(run, "/engine/num_workers"),
            )?;
            let mut table = String::new();
            for job in jobs.iter().filter(|job| job["key"] == run["key"]) {
                let process = ("process", &job["process"]);
                let samples = self.rate("/jobs", process, "/samples", number(job, "/samples"));
                let waited = self.rate("/jobs", process, "/waited_seconds", number(job, "/waited_seconds"));
                writeln!(
                    table,
                    "  {:>9} {:>6.0} {:>12.0} {:>11.0} {:>8.0} %",
                    number(job, "/process"),
                    number(job, "/epoch"),
                    number(job, "/samples"),
                    samples,
                    100.0 * waited.min(1.0),
                )?;
            }
            if !table.is_empty() {
                write!(f, "    process  epoch      samples   samples/s   waiting\n{table}")?;
            }
        }
        Ok(())
    }
}

/// Looks until the user stops it.
pub fn top(typed: &TopArguments, output: Output, interrupt: &Interrupt<'_>) -> Result<()> {
    let socket = typed.socket.clone().unwrap_or_else(environment::node_socket);
    let stats = || -> Result<Value> {
        let text = look(&socket)?;
        serde_json::from_str(&text).context("the node speaks in riddles: it has another version")
    };
    let mut seen = (stats()?, Instant::now());
    let is_live = !typed.once && output == Output::Text && io::stdout().is_terminal();
    if output == Output::Json {
        return output.write(&Look { stats: seen.0, before: None });
    }
    loop {
        let deadline = Instant::now() + EVERY;
        while Instant::now() < deadline {
            interrupt.check()?;
            thread::sleep(POLL);
        }
        let now = (stats()?, Instant::now());
        let seconds = (now.1 - seen.1).as_secs_f64();
        let look = Look { stats: now.0.clone(), before: Some((seen.0, seconds)) };
        if !is_live {
            return output.write(&look);
        }
        let mut stdout = io::stdout().lock();
        write!(stdout, "{REDRAW}{look}")?;
        stdout.flush()?;
        seen = now;
    }
}
