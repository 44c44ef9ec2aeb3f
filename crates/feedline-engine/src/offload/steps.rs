//! Ranks the forms of a sample by what they save.
//!
//! In: the costs of the forms. Out: steps from the stored bytes to ever fewer bytes, the most efficient first. Efficiency is bytes
//! saved per CPU second of the server. Always true: each step saves bytes, and efficiencies decrease.

use feedline_data::plan::Policy;
use feedline_data::store::{Form, Packing};

use super::models::{Models, Price};

/// A step from one form to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FormStep {
    /// The form after the step.
    pub form: Form,
    /// The cost after the step.
    pub price: Price,
    /// Bytes saved per CPU second of the server.
    pub efficiency: f64,
}

/// Whether a policy may choose a form.
pub(super) fn is_candidate(policy: Policy, form: Form) -> bool {
    match policy {
        Policy::Auto => form.is_trimmed || form.cut.0 == 0,
        _ => !form.is_trimmed && form.packing == Packing::Plain,
    }
}

/// The steps for a sample with so many stored bytes, the most efficient first.
pub(super) fn steps(policy: Policy, models: &Models, stored: u64) -> Vec<FormStep> {
    let Some(raw) = models.price(Form::RAW, stored) else { return Vec::new() };
    let priced = |form| Some((form, models.price(form, stored)?));
    let forms = models.forms().filter(|&form| is_candidate(policy, form));
    let mut left: Vec<(Form, Price)> = forms.filter_map(priced).filter(|(_, price)| price.bytes < raw.bytes).collect();
    if policy == Policy::Sophon {
        // This policy considers only the smallest form.
        let smallest = left.into_iter().min_by(|(_, a), (_, b)| a.bytes.total_cmp(&b.bytes));
        let step = |(form, price)| FormStep { form, price, efficiency: efficiency(raw, price) };
        return smallest.map(step).into_iter().collect();
    }
    let (mut steps, mut now) = (Vec::new(), raw);
    while let Some((form, price)) = left
        .iter()
        .copied()
        .max_by(|(_, a), (_, b)| efficiency(now, *a).total_cmp(&efficiency(now, *b)).then(b.bytes.total_cmp(&a.bytes)))
    {
        steps.push(FormStep { form, price, efficiency: efficiency(now, price) });
        now = price;
        // Forms with more bytes than the current one are never a step forward. This also removes the form just taken.
        left.retain(|(_, price)| price.bytes < now.bytes);
    }
    steps
}

/// Bytes saved per additional CPU second. Infinite if no time is needed.
fn efficiency(from: Price, to: Price) -> f64 {
    let (saved, more) = (from.bytes - to.bytes, to.seconds - from.seconds);
    if more <= 0.0 { f64::INFINITY } else { saved / more }
}
