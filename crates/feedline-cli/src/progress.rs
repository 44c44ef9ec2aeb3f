//! Progress bars on stderr, only if it is a terminal.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar, removed when dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar over `len` items, which are called `what`.
    pub(crate) fn new(what: &'static str, len: u64) -> Self {
        // A hidden bar draws nothing, so that log files and pipes stay clean.
        let target =
            if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{prefix} [{bar:12}] {pos}/{len} {eta} left {wide_msg}")
            .expect("the template is valid: see the test")
            .progress_chars("=> ");
        Self(ProgressBar::with_draw_target(Some(len), target).with_style(style).with_prefix(what))
    }

    /// Adds one finished item.
    pub(crate) fn advance(&self) {
        self.0.inc(1);
    }

    /// Sets the number of items.
    pub(crate) fn of(&self, len: u64) {
        self.0.set_length(len);
    }

    /// Sets the number of finished items.
    pub(crate) fn reach(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Shows a text after the bar. `text` is called only if the bar is visible.
    pub(crate) fn show(&self, text: impl FnOnce() -> String) {
        if !self.0.is_hidden() {
            self.0.set_message(text());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_nobody_sees_asks_for_no_text() {
        let progress = Progress::new("pictures", 3);
        progress.advance();
        if !io::stderr().is_terminal() {
            progress.show(|| panic!("nobody sees this"));
        }
    }
}
