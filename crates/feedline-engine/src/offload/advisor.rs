//! Collects measurements of a running plan, and chooses the form of each sample.
//!
//! Stored sizes are kept per sample, and the cost of a form is modelled from them. Decisions are revised as measurements come in,
//! so they follow a bottleneck that moves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use feedline_data::plan::{Plan, Policy};
use feedline_data::store::{Form, Packing, Prefix, ServerCost, Trial};
use feedline_memory::{Mutex, RwLock};
use feedline_order::SampleRequest;

use super::decide::{Decision, Situation};
use super::models::Models;
use super::rates::Rates;
use super::report::{OffloadReport, SamplePoint};
use crate::metrics::{Metrics, OpTotals};

/// Number of samples to try in all forms before the first decision.
const FIRST_TRIALS: u64 = 8;
/// Of a small source only one sample in this many is tried before the first decision.
const TRIED_SHARE: u64 = 4;
/// Later, one sample in this many is tried.
const TRIALS_EVERY: u64 = 4096;
/// Shortest interval between two decisions.
const DECIDE_EVERY: Duration = Duration::from_millis(250);
/// Number of samples that the consumer must take between two decisions. Of a small source a quarter suffices.
const MIN_SAMPLES: u64 = 32;
/// About how many samples represent the whole source when a decision is made.
const SAMPLED: u64 = 2048;
/// Upper limit of trials to keep for reports.
const KEPT_POINTS: usize = 4096;
/// In a source with more samples than this, stored sizes are not kept.
const MAX_SIZES: u64 = 1 << 28;
/// Assumed size of a sample before the first has arrived.
const UNKNOWN_BYTES: u64 = 128 << 10;

/// Chooses forms for one run.
#[derive(Debug)]
pub(crate) struct Advisor {
    plan: Arc<Plan>,
    policy: Policy,
    /// The forms that the server can prepare, with their names for reports.
    names: BTreeMap<Form, String>,
    /// The form of a policy that needs no measurements.
    fixed: Form,
    /// Stored bytes by ordinal. 0 means unknown.
    stored: OnceLock<Box<[AtomicU32]>>,
    /// Number of calls of `wants_trials`.
    asked: AtomicU64,
    measured: Mutex<Measured>,
    decision: RwLock<Arc<Decision>>,
}

#[derive(Debug, Default)]
struct Measured {
    models: Models,
    /// Trials that were answered or failed.
    trials: u64,
    points: Vec<SamplePoint>,
    storage_cores: f64,
    /// The speed of the link as the server measures it.
    link: Option<f64>,
    /// Sum of the stored bytes of all answers and trials, and their number. The quotient is the mean size of a sample.
    bytes: u64,
    samples: u64,
    rates: Rates,
    /// See [`Situation::local`].
    local: Vec<f64>,
    /// The counters at the start of the current interval.
    window: Option<StallWindow>,
}

/// How much the consumer had received and how long it had waited by the time `at`.
#[derive(Clone, Copy, Debug)]
struct StallWindow {
    at: Instant,
    samples: u64,
    stalled: Duration,
}

impl Measured {
    fn note_server(&mut self, spent: &ServerCost) {
        self.storage_cores = spent.cores.into();
        self.link = spent.bytes_per_second.or(self.link);
    }
}

impl Advisor {
    /// An advisor without measurements.
    pub(crate) fn new(plan: &Arc<Plan>, prefix: &Prefix) -> Self {
        let policy = plan.config().offload;
        let last = prefix.forms.iter().map(|form| form.cut).max().unwrap_or_default();
        let at = |cut| Form { cut, is_trimmed: false, packing: Packing::Plain };
        let fixed = match policy {
            Policy::All => at(last),
            Policy::Resize => plan.fixed_cut().filter(|cut| *cut <= last).map_or(Form::RAW, at),
            _ => Form::RAW,
        };
        Self {
            plan: Arc::clone(plan),
            policy,
            names: prefix.forms.iter().map(|form| (*form, plan.form_name(*form))).collect(),
            fixed,
            stored: OnceLock::new(),
            asked: AtomicU64::new(0),
            measured: Mutex::default(),
            decision: RwLock::default(),
        }
    }

    /// The form in which a sample is requested.
    pub(crate) fn form_of(&self, request: SampleRequest) -> Form {
        if !self.policy.measures() {
            return self.fixed;
        }
        // A copy of the pointer, so that no lock is held while the rule is applied.
        let decision = Arc::clone(&self.decision.read());
        let stored = self.stored_bytes(request).or_else(|| {
            // The size of an unseen sample is estimated from the others.
            let measured = self.measured.lock();
            (self.policy == Policy::Auto && measured.samples > 0).then(|| measured.bytes / measured.samples)
        });
        let form = decision.rule.form_of(request.id, stored);
        if self.names.contains_key(&form) { form } else { Form::RAW }
    }

    /// Fixes one form for all samples.
    #[cfg(test)]
    pub(crate) fn decide_on(&self, form: Form) {
        let rule = super::decide::Rule::Share { form, tenths: 10 };
        *self.decision.write() = Arc::new(Decision { rule, ..Decision::default() });
    }

    /// The expected size of an answer in bytes.
    pub(crate) fn expected_bytes(&self, request: SampleRequest, form: Form) -> u64 {
        let measured = self.measured.lock();
        let mean = measured.bytes.checked_div(measured.samples).unwrap_or(UNKNOWN_BYTES);
        let stored = self.stored_bytes(request).unwrap_or(mean);
        measured.models.price(form, stored).map_or(stored, |price| price.bytes as u64)
    }

    /// The name of a form.
    pub(crate) fn name_of(&self, form: Form) -> &str {
        self.names.get(&form).map_or("raw", String::as_str)
    }

    fn stored_bytes(&self, request: SampleRequest) -> Option<u64> {
        let ordinal = usize::try_from(self.plan.source().ordinal_of(request.id)?.0).ok()?;
        let bytes = self.stored.get()?.get(ordinal)?.load(Ordering::Relaxed);
        (bytes > 0).then_some(bytes.into())
    }

    fn keep_stored(&self, request: SampleRequest, bytes: u64) {
        let len = self.plan.source().len();
        if len > MAX_SIZES {
            return;
        }
        let table = self.stored.get_or_init(|| (0..len).map(|_| AtomicU32::new(0)).collect());
        if let Some(entry) = self.plan.source().ordinal_of(request.id).and_then(|ordinal| table.get(ordinal.0 as usize))
        {
            // 32 bits per sample: the table of a large source must stay small. Larger files count as 4 GiB.
            entry.store(u32::try_from(bytes).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// Whether to try this sample in all forms. Called once per request.
    pub(crate) fn wants_trials(&self) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        self.policy.measures() && (asked < self.first_trials() || asked.is_multiple_of(TRIALS_EVERY))
    }

    /// Number of trials before the first decision.
    fn first_trials(&self) -> u64 {
        FIRST_TRIALS.min(self.plan.source().len().div_ceil(TRIED_SHARE))
    }

    /// Records the cost of all forms of a sample.
    pub(crate) fn note_trials(&self, request: SampleRequest, spent: &ServerCost) {
        self.keep_stored(request, spent.stored_bytes);
        let mut measured = self.measured.lock();
        let known = spent.trials.iter().filter(|trial| self.names.contains_key(&trial.form));
        known.for_each(|trial| measured.models.add(spent.stored_bytes, *trial));
        measured.trials += 1;
        measured.bytes += spent.stored_bytes;
        measured.samples += 1;
        measured.note_server(spent);
        if measured.points.len() < KEPT_POINTS {
            let point = SamplePoint::new(&self.plan.source().key(request.id), spent);
            measured.points.push(point);
        }
    }

    /// Records that a trial failed.
    pub(crate) fn note_failed_trials(&self) {
        self.measured.lock().trials += 1;
    }

    /// Records the cost of an answer.
    pub(crate) fn note(&self, request: SampleRequest, spent: &ServerCost, bytes: u64) {
        self.keep_stored(request, spent.stored_bytes);
        let mut measured = self.measured.lock();
        measured.note_server(spent);
        measured.bytes += spent.stored_bytes;
        measured.samples += 1;
        let ServerCost { form, nanoseconds, .. } = *spent;
        measured.models.add(spent.stored_bytes, Trial { form, bytes, nanoseconds });
    }

    /// Updates the rates and revises the decision, at most once per interval.
    pub(crate) fn observe(&self, metrics: &Metrics, link: Option<f64>) {
        if !self.policy.measures() {
            return;
        }
        // Never waits for the lock: a later call decides instead.
        let Some(mut measured) = self.measured.try_lock() else { return };
        let now = StallWindow { at: Instant::now(), samples: metrics.samples.get(), stalled: metrics.stalls.total() };
        let window = *measured.window.get_or_insert(now);
        let (passed, taken) = (now.at - window.at, now.samples - window.samples);
        if passed < DECIDE_EVERY || taken < MIN_SAMPLES.min(self.plan.source().len() / 4) {
            return;
        }
        measured.window = Some(now);
        let stalled = now.stalled.saturating_sub(window.stalled);
        // Both ends measure a busy link correctly and overestimate an idle one, so the smaller value is right.
        let link = link.into_iter().chain(measured.link).reduce(f64::min);
        let Some(link) = link.filter(|_| measured.trials >= self.first_trials()) else { return };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        measured.rates = Rates {
            // The consumer's own time per sample: the interval without its waits.
            step: passed.saturating_sub(stalled).as_secs_f64() / taken as f64,
            link,
            storage_cores: measured.storage_cores.max(1e-3),
            cores: self.plan.config().num_workers.count().min(cores) as f64,
        };
        measured.local = local_seconds(metrics);
        let situation = self.situation(&measured);
        // Deciding sorts thousands of steps, so it happens without the lock.
        drop(measured);
        let decision = situation.decide(self.policy);
        *self.decision.write() = Arc::new(decision);
    }

    fn situation(&self, measured: &Measured) -> Situation {
        let table = self.stored.get().map(|table| &**table).unwrap_or_default();
        // Every n-th sample, so that the sample covers the whole source.
        let every = (table.len() / SAMPLED as usize).max(1);
        let known = table.iter().step_by(every).map(|bytes| bytes.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0);
        Situation {
            stored: known.map(u64::from).collect(),
            models: measured.models.clone(),
            rates: measured.rates,
            local: measured.local.clone(),
        }
    }

    /// The decision and its reasons.
    pub(crate) fn report(&self) -> OffloadReport {
        let measured = self.measured.lock();
        let situation = self.situation(&measured);
        let points = measured.points.clone();
        drop(measured);
        let decision = Arc::clone(&self.decision.read());
        let measures = self.policy.measures();
        let form_of = |id, stored| if measures { decision.rule.form_of(id, Some(stored)) } else { self.fixed };
        OffloadReport::new(self.policy, &decision, &situation, form_of, |form| self.name_of(form).to_owned(), points)
    }
}

/// Entry `k` is the busy time of this machine's threads per sample, in seconds, if the server runs the first `k` ops.
fn local_seconds(metrics: &Metrics) -> Vec<f64> {
    let of_op = |op: &crate::metrics::OpMeter| {
        let OpTotals { busy, samples, .. } = op.read();
        busy.as_secs_f64() / samples.max(1) as f64
    };
    let mut seconds = vec![0.0];
    // Suffix sums: the time of all ops from op `k` on.
    for op in metrics.ops.iter().rev() {
        seconds.push(seconds.last().copied().unwrap_or_default() + of_op(op));
    }
    seconds.reverse();
    seconds
}
