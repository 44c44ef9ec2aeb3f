//! Law 1: the bytes of a sample do not depend on threads, prefetching, the order of delivery or a cache.

use feedline_data::plan::{Order, RunConfig, Start, Workers};
use feedline_order::{Occurrence, SampleRequest};

use super::compare::{Difference, Pair, StreamDifference};
use super::definition::Definition;
use super::report::{Checked, Counterexample};
use super::stream::{Stream, collect};
use super::subject::{Subject, Variant, VerifyError};

/// The reference streams for all checks.
#[derive(Debug)]
pub(super) struct References {
    /// The plan with 1 worker: in its own order if that is known in advance, otherwise in strict order.
    pub reference: (Variant, Stream),
    /// The plan in strict order, if the reference is in another.
    pub other_strict: Option<(Variant, Stream)>,
}

impl References {
    /// The plan in strict order.
    pub(super) fn strict(&self) -> &(Variant, Stream) {
        self.other_strict.as_ref().unwrap_or(&self.reference)
    }

    /// Whether there were bad samples.
    pub(super) fn has_bad(&self) -> bool {
        let epochs = self.reference.1.epochs.iter().chain(&self.strict().1.epochs);
        epochs.into_iter().any(|epoch| epoch.counted > 0)
    }
}

/// Runs the reference.
pub(super) fn run_references(subject: &Subject<'_>) -> Result<References, VerifyError> {
    let strict = subject.strict();
    let reference = if subject.is_predetermined() { subject.own() } else { strict.clone() };
    let other_strict = if reference.settings.order == Order::Strict {
        None
    } else {
        let stream = collect(subject, &strict)?.0;
        Some((strict, stream))
    };
    let stream = collect(subject, &reference)?.0;
    Ok(References { reference: (reference, stream), other_strict })
}

/// Compares other configurations with the reference.
pub(super) fn check(subject: &mut Subject<'_>, references: &References) -> Checked {
    let (own, reference) = &references.reference;
    let problem = "the bytes of a sample are not the same in two configurations";
    let pair = |expected, found| Pair { law: 1, problem, expected, found, fields: &reference.fields };
    if let Some((strict, stream)) = &references.other_strict
        && let Some(difference) = subject.differ_by_sample(stream, reference)
    {
        let counterexample = subject.explain(&pair(strict, own), difference)?;
        return Err(add_culprit(subject, counterexample, difference)?.into());
    }
    let others = configurations(subject);
    for other in &others {
        let found = collect(subject, other)?.0;
        // In arrival order two runs may deliver in different orders, so samples are compared by id.
        let difference = if subject.is_predetermined() {
            subject.differ(reference, &found)
        } else {
            subject.differ_by_sample(reference, &found)
        };
        if let Some(difference) = difference {
            let counterexample = subject.explain(&pair(own, other), difference)?;
            return Err(add_culprit(subject, counterexample, difference)?.into());
        }
    }
    let names: Vec<&str> = others.iter().map(|variant| &*variant.name).collect();
    Ok(format!("the same bytes with {}; {}", own.name, names.join("; ")))
}

/// Other configurations with the plan's own order.
fn configurations(subject: &Subject<'_>) -> Vec<Variant> {
    let own = subject.own();
    let order = if own.is_predetermined() { "" } else { ", arrival order" };
    let with = |workers: usize, more: &str, change: fn(&mut RunConfig)| {
        own.with(&format!("{workers} workers{more}{order}"), |_, config| {
            config.num_workers = Workers::Count(workers);
            change(config);
        })
    };
    let mut variants = vec![
        with(2, "", |_| {}),
        with(5, "", |_| {}),
        with(2, ", 1 batch ahead", |config| config.prefetch_batches = Some(1)),
        with(5, ", 8 batches ahead, first come", |config| {
            (config.prefetch_batches, config.start) = (Some(8), Start::FirstCome);
        }),
    ];
    if own.config.cache.is_some() {
        variants.push(with(2, ", no cache", |config| config.cache = None));
    }
    variants
}

/// Names the op whose bytes change from run to run, if one is found.
fn add_culprit(
    subject: &mut Subject<'_>,
    mut counterexample: Counterexample,
    StreamDifference { epoch, difference }: StreamDifference,
) -> Result<Counterexample, VerifyError> {
    let (turn, id) = match difference {
        Difference::Field { turn, id, .. } => (turn, Some(id)),
        Difference::Sample { turn, expected, .. } => (turn, expected),
    };
    let planned = subject.sequence(epoch, turn as u64 + 1).pop().map(|(_, request)| request);
    let request = match (planned, id) {
        // In another order than strict the turn belongs to another sample. Its first occurrence is assumed.
        (Some(request), Some(id)) if request.id != id => Some(SampleRequest { id, epoch, occurrence: Occurrence(0) }),
        (request, _) => request,
    };
    let Some(request) = request else { return Ok(counterexample) };
    if let Some(culprit) = Definition::new(&subject.plan).culprit(request)? {
        subject.unstable = Some(culprit.stage_name.clone());
        // The repeated preparation found the bytes that the comparison of streams could not reproduce.
        if counterexample.expected.is_none() {
            counterexample.field = Some(culprit.field).filter(|field| !field.is_empty());
            counterexample.byte = culprit.byte;
            (counterexample.expected, counterexample.found) = (Some(culprit.first), Some(culprit.second));
        }
        counterexample.culprit = Some(culprit.stage_name);
    }
    Ok(counterexample)
}
