//! Models the cost of forms: bytes on the wire and CPU time of the server.

use std::collections::BTreeMap;

use feedline_data::cost::Fit;
use feedline_data::store::{Form, Trial};

/// The cost of one form by the stored size of a sample. Never below the least measured value.
#[derive(Clone, Debug)]
struct Model {
    bytes: Fit,
    nanos: Fit,
    least: Trial,
}

/// The models of all forms.
#[derive(Clone, Debug, Default)]
pub(super) struct Models(BTreeMap<Form, Model>);

/// The cost of a form for one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Price {
    /// Bytes on the wire.
    pub bytes: f64,
    /// CPU seconds of the server.
    pub seconds: f64,
}

impl Models {
    /// Adds a measurement of a sample with so many stored bytes.
    pub(super) fn add(&mut self, stored: u64, trial: Trial) {
        let new = || Model { bytes: Fit::default(), nanos: Fit::default(), least: trial };
        let model = self.0.entry(trial.form).or_insert_with(new);
        model.bytes.add(stored as f64, trial.bytes as f64);
        model.nanos.add(stored as f64, trial.nanoseconds as f64);
        model.least.bytes = model.least.bytes.min(trial.bytes);
        model.least.nanoseconds = model.least.nanoseconds.min(trial.nanoseconds);
    }

    /// The cost of a form for a sample, if it was ever tried.
    pub(super) fn price(&self, form: Form, stored: u64) -> Option<Price> {
        let Model { bytes, nanos, least } = self.0.get(&form)?;
        let size = stored as f64;
        // The raw form is the stored bytes.
        // The regression line may fall below zero for small samples, so the least measured value bounds it.
        let bytes = if form == Form::RAW { size } else { bytes.expect(size)?.max(least.bytes as f64) };
        Some(Price { bytes, seconds: nanos.expect(size)?.max(least.nanoseconds as f64) * 1e-9 })
    }

    /// Forms with measurements.
    pub(super) fn forms(&self) -> impl Iterator<Item = Form> {
        self.0.keys().copied()
    }
}
