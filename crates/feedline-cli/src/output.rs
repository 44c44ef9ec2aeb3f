//! Writes to stdout and stderr. No other file does.
//!
//! In: a report that implements `Serialize` and `Display`. Out: text, or exactly one JSON document, on stdout. Messages go to
//! stderr.

use std::fmt::{self, Display};
use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use feedline_data::failure::chain;
use serde::Serialize;

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Output {
    /// JSON if `--json` was given.
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
        // Written at once and flushed, so that a closed pipe is noticed here and not at the exit of the process.
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }
}

/// Reports the error of a command: a line on stderr and, with `--json`, a document on stdout.
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
        // If stdout is closed too, only the exit code is left.
        output.write(&Failure { error: text }).unwrap_or_default();
    }
}

/// Writes a line to stderr. A closed stderr is no error.
pub(crate) fn say(line: &str) {
    writeln!(io::stderr().lock(), "{line}").unwrap_or_default();
}

/// Prints help, the version, or the error in the arguments. Returns the exit code.
pub(crate) fn usage(usage: &clap::Error) -> i32 {
    match usage.print() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => 1,
        _ => usage.exit_code(),
    }
}

/// Whether the reader of stdout has closed the pipe.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
