//! Turns measurements into a rule that gives each sample its form.
//!
//! In: stored sizes, models of the forms, speeds. Out: a [`Decision`]. Nothing here measures or keeps state.

use feedline_data::cost::{Resource, Times};
use feedline_data::plan::Policy;
use feedline_data::store::Form;
use feedline_order::SampleId;

use super::models::Models;
use super::rates::Rates;
use super::steps::{FormStep, is_candidate, steps};

/// The least gain, as a fraction of the time per sample, for which the server prepares a share of the samples.
const MIN_GAIN: f64 = 0.05;
/// Link seconds that one CPU second of the server must save under the policy `auto`.
const MIN_LINK_SECONDS: f64 = 3.0;
/// Shares are multiples of one in this many.
const SHARES: u64 = 10;

/// The input of a decision.
#[derive(Clone, Debug, Default)]
pub(super) struct Situation {
    /// Stored bytes of some samples that represent all.
    pub stored: Vec<u64>,
    pub models: Models,
    pub rates: Rates,
    /// Entry `k` is the busy time of this machine's threads per sample, in seconds, if the server runs the first `k` ops.
    pub local: Vec<f64>,
}

/// A rule that gives each sample its form.
#[derive(Clone, Debug, Default)]
pub(super) enum Rule {
    /// Stored bytes, unchanged.
    #[default]
    Raw,
    /// One form for a share of the samples, in tenths.
    Share { form: Form, tenths: u64 },
    /// For each sample, all steps of at least this efficiency, in bytes saved per CPU second of the server.
    Efficient { policy: Policy, models: Models, least: f64 },
}

/// A rule, and its predicted effect.
#[derive(Clone, Debug, Default)]
pub(super) struct Decision {
    pub rule: Rule,
    pub before: Times,
    pub after: Times,
}

impl Rule {
    /// The form of a sample. `stored` is its stored size in bytes, if known.
    pub(super) fn form_of(&self, id: SampleId, stored: Option<u64>) -> Form {
        match self {
            Self::Raw => Form::RAW,
            Self::Share { form, tenths } => {
                // Multiplicative hashing spreads neighbours, because samples with consecutive numbers may be alike.
                let tenth = id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                if tenth % SHARES < *tenths { *form } else { Form::RAW }
            }
            Self::Efficient { policy, models, least } => {
                let steps = stored.map(|stored| steps(*policy, models, stored)).unwrap_or_default();
                // Efficiencies decrease along the steps, so the last one above the limit is the best form.
                let taken = steps.into_iter().take_while(|step| step.efficiency >= *least);
                taken.last().map_or(Form::RAW, |step| step.form)
            }
        }
    }
}

impl Situation {
    fn local_seconds(&self, form: Form) -> f64 {
        self.local.get(form.cut.0).copied().unwrap_or_default()
    }

    /// Mean times per sample if `form_of` maps stored sizes to forms.
    fn times(&self, form_of: impl Fn(u64) -> Form) -> Times {
        let (mut bytes, mut seconds, mut local) = (0.0, 0.0, 0.0);
        for &stored in &self.stored {
            let form = form_of(stored);
            if let Some(price) = self.models.price(form, stored) {
                bytes += price.bytes;
                seconds += price.seconds;
            }
            local += self.local_seconds(form);
        }
        let count = self.stored.len().max(1) as f64;
        self.rates.times(bytes / count, seconds / count, local / count)
    }

    /// Decides by a policy.
    pub(super) fn decide(&self, policy: Policy) -> Decision {
        let before = self.times(|_| Form::RAW);
        match policy {
            Policy::FastFlow => self.share(before),
            Policy::Auto | Policy::Sophon => self.most_efficient(policy, before),
            Policy::None | Policy::All | Policy::Resize => Decision { rule: Rule::Raw, before, after: before },
        }
    }

    /// Takes the most efficient steps of all samples until the link is no longer the bottleneck.
    fn most_efficient(&self, policy: Policy, before: Times) -> Decision {
        // Each step with its change of bytes, server seconds and local seconds.
        let mut all: Vec<(FormStep, f64, f64, f64)> = Vec::new();
        for &stored in &self.stored {
            let Some(mut from) = self.models.price(Form::RAW, stored) else { continue };
            let mut form = Form::RAW;
            for step in steps(policy, &self.models, stored) {
                let local = self.local_seconds(step.form) - self.local_seconds(form);
                all.push((step, step.price.bytes - from.bytes, step.price.seconds - from.seconds, local));
                (from, form) = (step.price, step.form);
            }
        }
        // The greedy choice for a fractional knapsack: the best ratio of bytes saved to CPU time first.
        all.sort_by(|(a, ..), (b, ..)| b.efficiency.total_cmp(&a.efficiency));
        let (count, mut after, mut least) = (self.stored.len().max(1) as f64, before, f64::INFINITY);
        for (step, bytes, seconds, local) in all {
            // Steps that cost nothing are taken whatever the bottleneck is.
            if after.bound() != Resource::Network && step.efficiency.is_finite() {
                break;
            }
            // A step that saves little link time per CPU second is not taken: other clients need the server's CPU too.
            if policy == Policy::Auto && step.efficiency < MIN_LINK_SECONDS * self.rates.link {
                break;
            }
            // Times are linear in their arguments, so the change of a mean is the mean of the changes.
            let change = self.rates.times(bytes / count, seconds / count, local / count);
            after.network += change.network;
            after.storage += change.storage;
            after.prepare += change.prepare;
            least = step.efficiency;
        }
        let rule = Rule::Efficient { policy, models: self.models.clone(), least };
        Decision { rule, before, after }
    }

    /// Only if this machine's CPU is the bottleneck: lets the server prepare a share of the samples up to one cut, if that makes
    /// the job faster.
    fn share(&self, before: Times) -> Decision {
        let mut best = Decision { rule: Rule::Raw, before, after: before };
        if before.bound() != Resource::Prepare {
            return best;
        }
        for form in self.models.forms().filter(|&form| form.cut.0 > 0 && is_candidate(Policy::FastFlow, form)) {
            let all = self.times(|_| form);
            for tenths in 1..=SHARES {
                let part = tenths as f64 / SHARES as f64;
                // Linear, because each sample is either moved or not.
                let mixed = |raw: f64, moved: f64| raw + (moved - raw) * part;
                let after = Times {
                    step: before.step,
                    prepare: mixed(before.prepare, all.prepare),
                    network: mixed(before.network, all.network),
                    storage: mixed(before.storage, all.storage),
                    ..before
                };
                let has_gained = after.longest() < before.longest() * (1.0 - MIN_GAIN);
                if has_gained && after.longest() < best.after.longest() {
                    best = Decision { rule: Rule::Share { form, tenths }, before, after };
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::cut::Cut;
    use feedline_data::store::{Packing, Trial};

    const KB: u64 = 1000;
    /// Bytes of a crop of 224 x 224 pixels.
    const CROP: u64 = 150_528;

    fn at(cut: usize) -> Form {
        Form { cut: Cut(cut), is_trimmed: false, packing: Packing::Plain }
    }

    fn at_trimmed(cut: usize) -> Form {
        Form { is_trimmed: true, ..at(cut) }
    }

    const TRIMMED: Form = Form { cut: Cut(0), is_trimmed: true, packing: Packing::Plain };

    /// Pictures of 40 to 400 KB on 100 Mbit/s; a decoder (5 ms), a crop (1 ms, 150 528 bytes), a tensor (1 ms, four times that).
    fn situation() -> Situation {
        let mut models = Models::default();
        let stored: Vec<u64> = (1..=100).map(|number| 40 * KB + number * 3600).collect();
        for &bytes in &stored {
            let forms = [
                (Form::RAW, bytes, 50_000),
                (TRIMMED, bytes / 2, 150_000),
                (at(1), bytes * 10, 5_000_000),
                (at(2), CROP, 6_000_000),
                (at_trimmed(2), CROP, 4_000_000),
                (at(3), 4 * CROP, 7_000_000),
            ];
            for (form, sent, nanoseconds) in forms {
                models.add(bytes, Trial { form, bytes: sent, nanoseconds });
            }
        }
        let rates = Rates { step: 1e-4, link: 12.5e6, storage_cores: 2.0, cores: 8.0 };
        Situation { stored, models, rates, local: vec![7e-3, 2e-3, 1e-3, 0.0] }
    }

    fn forms(situation: &Situation, policy: Policy) -> Vec<Form> {
        let decision = situation.decide(policy);
        let form = |(number, &stored): (u64, &u64)| decision.rule.form_of(SampleId(number), Some(stored));
        (0..).zip(&situation.stored).map(form).collect()
    }

    fn count(forms: &[Form], form: Form) -> usize {
        forms.iter().filter(|found| **found == form).count()
    }

    #[test]
    fn sophon_moves_what_shrinks_and_nothing_else_on_a_slow_link() {
        let situation = situation();
        assert_eq!(situation.decide(Policy::Sophon).before.bound(), Resource::Network);
        for (form, stored) in forms(&situation, Policy::Sophon).into_iter().zip(&situation.stored) {
            assert_eq!(form, if *stored > CROP { at(2) } else { Form::RAW }, "{stored} bytes");
        }
        let unknown = situation.decide(Policy::Sophon).rule.form_of(SampleId(0), None);
        assert_eq!(unknown, Form::RAW, "nothing is known of the sample");
    }

    #[test]
    fn nothing_moves_where_the_link_is_not_what_bounds_the_job() {
        let mut wide = situation();
        wide.rates.link = 1e10;
        for policy in [Policy::Sophon, Policy::Auto] {
            assert_eq!(count(&forms(&wide, policy), Form::RAW), 100, "{policy}");
        }
        let mut slow_step = situation();
        slow_step.rates.step = 1.0;
        assert_eq!(slow_step.decide(Policy::Auto).before.bound(), Resource::Step);
        assert_eq!(count(&forms(&slow_step, Policy::Auto), Form::RAW), 100);
    }

    #[test]
    fn only_as_many_samples_move_as_the_link_needs_and_the_best_of_them() {
        let mut situation = situation();
        // Without offloading a sample takes 17.7 ms on the link. A step of 16 ms is reached if a few large samples become smaller.
        situation.rates.step = 16e-3;
        let forms = forms(&situation, Policy::Sophon);
        let moved = count(&forms, at(2));
        assert!((1..40).contains(&moved), "{moved} samples");
        assert!(forms.iter().rev().take(moved).all(|form| *form == at(2)), "the largest gain most");
        let after = situation.decide(Policy::Sophon).after;
        assert!(after.network <= 16e-3 && after.network > 15e-3, "{after:?}");
    }

    #[test]
    fn trimming_comes_first_because_it_saves_more_for_less() {
        let mut situation = situation();
        let all = forms(&situation, Policy::Auto);
        assert_eq!(count(&all, TRIMMED), 100, "a crop saves less of the link's time than it takes of the server's");
        situation.rates.link = 1e6;
        let crops = count(&forms(&situation, Policy::Auto), at_trimmed(2));
        assert!((10..90).contains(&crops), "on a slower one {crops} crops are worth it");
        situation.rates.link = 12.5e6;
        situation.rates.storage_cores = 0.1;
        assert_eq!(count(&forms(&situation, Policy::Auto), TRIMMED), 100, "a weak server has no time for more");
        situation.rates.storage_cores = 1e-6;
        assert_eq!(count(&forms(&situation, Policy::Auto), Form::RAW), 100, "nor for anything here");
    }

    #[test]
    fn fastflow_moves_all_samples_alike_and_only_if_the_whole_job_is_faster() {
        let mut situation = situation();
        assert_eq!(count(&forms(&situation, Policy::FastFlow), Form::RAW), 100, "the link bounds the job");
        // A starved trainer and a fast link.
        (situation.rates.link, situation.rates.cores, situation.rates.storage_cores) = (1e10, 1.0, 16.0);
        let decision = situation.decide(Policy::FastFlow);
        assert_eq!(decision.before.bound(), Resource::Prepare);
        let moved = 100 - count(&forms(&situation, Policy::FastFlow), Form::RAW);
        assert!(moved > 80, "{moved} samples");
        assert!(decision.after.longest() < 0.5 * decision.before.longest());
        situation.rates.storage_cores = 0.01;
        assert_eq!(count(&forms(&situation, Policy::FastFlow), Form::RAW), 100, "the server has no time");
    }

    #[test]
    fn what_costs_the_server_nothing_is_taken_whatever_bounds_the_job() {
        let mut situation = situation();
        situation.rates.link = 1e10;
        for &bytes in &situation.stored {
            for _ in 0..100 {
                situation.models.add(bytes, Trial { form: TRIMMED, bytes: bytes / 2, nanoseconds: 10_000 });
            }
        }
        assert_eq!(count(&forms(&situation, Policy::Auto), TRIMMED), 100);
    }
}
