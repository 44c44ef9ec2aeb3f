//! What the forms of samples take: bytes on the wire, time of the server's processor.

use std::collections::BTreeMap;

use feedline_data::cost::Fit;
use feedline_data::store::{Form, Trial};

/// What one form takes, by the stored bytes of a sample; never less than the least that was seen.
#[derive(Clone, Debug)]
struct Model {
    bytes: Fit,
    nanos: Fit,
    least: Trial,
}

/// What all forms take.
#[derive(Clone, Debug, Default)]
pub(super) struct Models(BTreeMap<Form, Model>);

/// What a form takes for one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Price {
    /// Bytes on the wire.
    pub bytes: f64,
    /// Seconds of the server's processor.
    pub seconds: f64,
}

impl Models {
    /// Books what a form took for a sample of so many stored bytes.
    pub(super) fn add(&mut self, stored: u64, trial: Trial) {
        let new = || Model { bytes: Fit::default(), nanos: Fit::default(), least: trial };
        let model = self.0.entry(trial.form).or_insert_with(new);
        model.bytes.add(stored as f64, trial.bytes as f64);
        model.nanos.add(stored as f64, trial.nanoseconds as f64);
        model.least.bytes = model.least.bytes.min(trial.bytes);
        model.least.nanoseconds = model.least.nanoseconds.min(trial.nanoseconds);
    }

    /// What a form takes for a sample, if it was ever tried.
    pub(super) fn price(&self, form: Form, stored: u64) -> Option<Price> {
        let Model { bytes, nanos, least } = self.0.get(&form)?;
        let size = stored as f64;
        // Stored bytes are sent as they are.
        let bytes = if form == Form::RAW { size } else { bytes.expect(size)?.max(least.bytes as f64) };
        Some(Price { bytes, seconds: nanos.expect(size)?.max(least.nanoseconds as f64) * 1e-9 })
    }

    /// Forms that were tried.
    pub(super) fn forms(&self) -> impl Iterator<Item = Form> {
        self.0.keys().copied()
    }
}
