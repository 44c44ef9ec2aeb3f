//! The pages that every process has which says how it is doing.

use serde::Serialize;

use super::{Exposition, Page, Routes};

/// A process in numbers, as plain data and for monitoring. Nothing is worked out twice: who shows a sum or a ratio takes it
/// from here.
pub trait Numbers: Serialize {
    /// The same as Prometheus reads it.
    fn exposition(&self) -> Exposition;
}

impl Routes {
    /// `/stats`, `/metrics` and `/health` of a process that `read` gives in numbers.
    pub(crate) fn of_numbers<N: Numbers>(read: impl Fn() -> N + Clone + Send + Sync + 'static) -> Self {
        let metrics = read.clone();
        Self::default()
            .with("/health", || Page::text("serving\n"))
            .with("/metrics", move || Page::metrics(metrics().exposition().text()))
            .with("/stats", move || Page::of_data(&read()))
    }
}
