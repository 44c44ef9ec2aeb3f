//! Explains a decision in words and numbers.

use std::collections::BTreeMap;

use feedline_data::cost::{Resource, Times};
use feedline_data::plan::Policy;
use feedline_data::store::{Form, Packing, ServerCost};
use feedline_order::SampleId;
use serde::Serialize;

use super::decide::{Decision, Situation};

/// What a storage server does for a run, and why.
#[derive(Clone, Debug, Serialize)]
pub struct OffloadReport {
    /// The user's policy.
    pub policy: Policy,
    /// The bottleneck without offloading.
    pub bound_before: Resource,
    /// The bottleneck with the decision.
    pub bound_after: Resource,
    /// Seconds per sample by resource, without offloading.
    pub times_before: Times,
    /// Seconds per sample by resource, with the decision.
    pub times_after: Times,
    /// Predicted samples per second.
    pub throughput: Throughput,
    /// Number of samples with a known size. The shares refer to these.
    pub samples: usize,
    /// The share of samples that are not sent as stored.
    pub benefit_share: f64,
    /// Average bytes of a sample as stored.
    pub stored_bytes: f64,
    /// Average bytes of a sample as sent.
    pub sent_bytes: f64,
    /// CPU seconds of the server per sample.
    pub storage_seconds: f64,
    /// The forms in use.
    pub candidates: Vec<Candidate>,
    /// Samples that were tried in all forms.
    pub points: Vec<SamplePoint>,
}

/// Samples per second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Throughput {
    /// Without offloading.
    pub before: f64,
    /// With the decision.
    pub after: f64,
}

/// A form that samples are sent in.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// The share of samples in this form.
    pub share: f64,
    /// Their average bytes as stored.
    pub stored_bytes: f64,
    /// Their average bytes as sent.
    pub sent_bytes: f64,
    /// CPU seconds of the server per sample.
    pub storage_seconds: f64,
}

/// One sample in all forms.
#[derive(Clone, Debug, Serialize)]
pub struct SamplePoint {
    /// The sample.
    pub key: String,
    /// Bytes as stored.
    pub stored_bytes: u64,
    /// Bytes after trimming, if it can be trimmed.
    pub trimmed_bytes: Option<u64>,
    /// Bytes after each op.
    pub op_bytes: Vec<u64>,
    /// CPU seconds of the server up to each op.
    pub op_seconds: Vec<f64>,
}

impl SamplePoint {
    /// Builds a point from the trials of a server.
    pub fn new(key: &str, spent: &ServerCost) -> Self {
        let plain = |is_trimmed: bool| {
            let trials = spent.trials.iter().filter(move |trial| trial.form.packing == Packing::Plain);
            trials.filter(move |trial| trial.form.is_trimmed == is_trimmed)
        };
        let after_ops = || plain(false).filter(|trial| trial.form.cut.0 > 0);
        Self {
            key: key.to_owned(),
            stored_bytes: spent.stored_bytes,
            trimmed_bytes: plain(true).find(|trial| trial.form.cut.0 == 0).map(|trial| trial.bytes),
            op_bytes: after_ops().map(|trial| trial.bytes).collect(),
            op_seconds: after_ops().map(|trial| trial.nanoseconds as f64 * 1e-9).collect(),
        }
    }
}

impl OffloadReport {
    pub(super) fn new(
        policy: Policy,
        decision: &Decision,
        situation: &Situation,
        form_of: impl Fn(SampleId, u64) -> Form,
        name_of: impl Fn(Form) -> String,
        points: Vec<SamplePoint>,
    ) -> Self {
        let mut by_form: BTreeMap<Form, [f64; 4]> = BTreeMap::new();
        for (number, &stored) in (0..).zip(&situation.stored) {
            let form = form_of(SampleId(number), stored);
            let price = situation.models.price(form, stored);
            let sums = by_form.entry(form).or_default();
            let (bytes, seconds) = price.map_or((stored as f64, 0.0), |price| (price.bytes, price.seconds));
            // Samples, stored bytes, sent bytes, seconds.
            for (sum, value) in sums.iter_mut().zip([1.0, stored as f64, bytes, seconds]) {
                *sum += value;
            }
        }
        let count = situation.stored.len().max(1) as f64;
        let total = |which: usize| by_form.values().map(|sums| sums[which]).sum::<f64>() / count;
        let raw = by_form.get(&Form::RAW).map_or(0.0, |sums| sums[0]);
        let candidate = |(form, [samples, stored, sent, seconds]): (&Form, &[f64; 4])| Candidate {
            name: name_of(*form),
            share: samples / count,
            stored_bytes: stored / samples,
            sent_bytes: sent / samples,
            storage_seconds: seconds / samples,
        };
        // Before the first measurement the times are 0.
        let a_second = |times: &Times| if times.longest() > 0.0 { times.samples_per_second() } else { 0.0 };
        let Decision { before, after, .. } = decision;
        Self {
            policy,
            bound_before: before.bound(),
            bound_after: after.bound(),
            times_before: *before,
            times_after: *after,
            throughput: Throughput { before: a_second(before), after: a_second(after) },
            samples: situation.stored.len(),
            benefit_share: if situation.stored.is_empty() { 0.0 } else { 1.0 - raw / count },
            stored_bytes: total(1),
            sent_bytes: total(2),
            storage_seconds: total(3),
            candidates: by_form.iter().map(candidate).collect(),
            points,
        }
    }
}
