//! What people and programs get to see: the one place that writes to stdout and stderr.
//!
//! In: a report, which is data and can be written for people. Out: text or exactly one JSON document on stdout. Messages
//! go to stderr.

use std::fmt::{self, Display};
use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use feedline_data::failure::chain;
use serde::Serialize;

/// Writes a report in the form that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Output {
    /// The form that `--json` asks for.
    pub(crate) fn new(is_json: bool) -> Self {
        if is_json { Self::Json } else { Self::Text }
    }

    /// Writes the report of a command.
    pub(crate) fn write<R: Serialize + Display>(self, report: &R) -> Result<()> {
        let mut text = match self {
            Self::Text => report.to_string(),
            Self::Json => serde_json::to_string_pretty(report).context("cannot write the report as JSON")?,
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }
}

/// Says that a command failed and why: a line on stderr and, for programs, a document on stdout.
pub(crate) fn fail(output: Output, error: &anyhow::Error) {
    #[derive(Serialize)]
    struct Failure {
        error: String,
    }
    impl Display for Failure {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Ok(())
        }
    }
    let text = chain(&**error);
    say(&format!("error: {text}"));
    if output == Output::Json {
        // Where stdout is closed, too, the exit code says the rest.
        output.write(&Failure { error: text }).unwrap_or_default();
    }
}

/// Writes a line to stderr. Where that is closed, nobody listens, and the exit code says the rest.
pub(crate) fn say(line: &str) {
    writeln!(io::stderr().lock(), "{line}").unwrap_or_default();
}

/// Prints help, the version or what is wrong with the arguments; gives the exit code.
pub(crate) fn usage(usage: &clap::Error) -> i32 {
    match usage.print() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => 1,
        _ => usage.exit_code(),
    }
}

/// Whether nobody reads stdout any more.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
