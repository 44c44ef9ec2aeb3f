//! A sample that failed, and errors as one line of text.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use feedline_order::{Epoch, Position, SampleId};

/// A sample that could not be prepared. It is a value: counted, and handled by a policy (law 6).
#[derive(Clone, Debug)]
pub struct SampleFailure {
    /// Its id.
    pub id: SampleId,
    /// Its name.
    pub key: String,
    /// Where its bytes are stored.
    pub path: Option<String>,
    /// The byte range in that file, if it is only a part.
    pub range: Option<Range<u64>>,
    /// The epoch.
    pub epoch: Epoch,
    /// The position in the epoch.
    pub position: Position,
    /// The op that failed. `None` if loading failed.
    pub op: Option<Arc<str>>,
    /// The cause.
    pub cause: Arc<dyn StdError + Send + Sync>,
}

impl fmt::Display for SampleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sample {} ({:?}", self.id.0, self.key)?;
        if let Some(path) = &self.path {
            write!(f, ", {path:?}")?;
        }
        if let Some(range) = &self.range {
            write!(f, ", bytes {range:?}")?;
        }
        // Loading is not an op, so a failure without one happened there.
        match &self.op {
            Some(op) => write!(f, ") could not be prepared by {op}"),
            None => f.write_str(") could not be loaded"),
        }
    }
}

impl StdError for SampleFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.cause)
    }
}

/// An error and its causes in one line.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = flat(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = flat(error);
        // Transparent errors repeat the text of their source.
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// The text of an error without the excerpts that parsers put on separate lines.
fn flat(error: &(dyn StdError + 'static)) -> String {
    let text = error.to_string();
    // A TOML parser prints excerpts such as `3 | batch_size = x` and `  |     ^`: a line number and a bar.
    let is_excerpt = |line: &str| line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().starts_with('|');
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_excerpt(line)).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_with_an_excerpt_becomes_one_line_that_keeps_the_problem() {
        let error = toml::from_str::<toml::Table>("a = 1\nb = oops\n").unwrap_err();
        let line = chain(&error);
        assert!(line.contains("line 2"), "{line}");
        assert!(!line.contains(['\n', '|', '^']), "{line}");
        assert!(line.len() > "TOML parse error at line 2, column 5".len() + 3, "{line}");
    }
}
