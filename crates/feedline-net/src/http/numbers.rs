//! The pages that every process serves.

use serde::Serialize;

use super::{Exposition, Page, Routes};

/// The metrics of a process, as plain data and for monitoring. Sums and ratios are computed here once; all views take them from
/// here.
pub trait Numbers: Serialize {
    /// The metrics in Prometheus' form.
    fn exposition(&self) -> Exposition;
}

impl Routes {
    /// The routes `/stats`, `/metrics` and `/health`. `read` returns the numbers.
    pub(crate) fn of_numbers<N: Numbers>(read: impl Fn() -> N + Clone + Send + Sync + 'static) -> Self {
        let metrics = read.clone();
        Self::default()
            // Answers as long as the process accepts connections. It computes nothing.
            .with("/health", || Page::text("serving\n"))
            .with("/metrics", move || Page::metrics(metrics().exposition().text()))
            .with("/stats", move || Page::of_data(&read()))
    }
}
