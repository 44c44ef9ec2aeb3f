//! Law 2 in other orders: each sample comes once, and none beyond its displacement bound.
//!
//! The displacement of each sample is computed from the delivered samples, and compared with the loader's report.

use std::collections::{HashMap, HashSet, VecDeque};

use feedline_data::plan::{Order, Workers};
use feedline_order::{OrderReport, SampleId, ShareIndex};

use super::report::{Checked, Counterexample, Ended};
use super::stream::{EpochStream, collect_epoch};
use super::subject::{Subject, Variant, VerifyError};

/// A planned order may look this many places further ahead than its bound.
const PLANNED_LOOKAHEAD: u64 = 64;
/// The bound to test if the plan has none. It is narrow, so that an order that ignores it is noticed.
const NARROW_BOUND: u64 = 4;
/// Upper limit of samples for testing planned order on a plan with another order, because it needs the sizes of all samples.
const MAX_PLANNED: u64 = 200_000;

/// A delivered sample, and its place in strict order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Displaced {
    /// The turn at which it was delivered.
    pub turn: u64,
    /// Its turn in strict order. `None` if it is not among the expected samples.
    pub number: Option<u64>,
}

/// Assigns each delivered sample to a place in strict order. Repeats of a sample get their places in order of delivery: if all are
/// delivered, no other assignment has a smaller largest displacement.
pub(super) fn displaced(expected: &[(SampleId, bool)], found: &[(SampleId, bool)]) -> Vec<Displaced> {
    let mut numbers: HashMap<(SampleId, bool), VecDeque<u64>> = HashMap::new();
    for (number, &sample) in expected.iter().enumerate() {
        numbers.entry(sample).or_default().push_back(number as u64);
    }
    let mut number = |sample: &(SampleId, bool)| numbers.get_mut(sample).and_then(VecDeque::pop_front);
    (0..).zip(found).map(|(turn, sample)| Displaced { turn, number: number(sample) }).collect()
}

/// How many places late or early a sample may be.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    late: u64,
    early: u64,
}

/// The first sample that is not expected here, or is beyond its bound.
fn first_beyond(all: &[Displaced], allowed: Allowed) -> Option<Displaced> {
    let is_beyond = |displaced: &&Displaced| match displaced.number {
        Some(number) if number <= displaced.turn => displaced.turn - number > allowed.late,
        Some(number) => number - displaced.turn > allowed.early,
        None => true,
    };
    all.iter().find(is_beyond).copied()
}

/// Runs the plan in planned order and in arrival order.
pub(super) fn check(subject: &Subject<'_>) -> Checked {
    let mut details = Vec::new();
    for variant in orders(subject) {
        let is_others = variant.settings.order == Order::Planned && subject.plan.settings().order != Order::Planned;
        if is_others && subject.plan.share(0).samples() > MAX_PLANNED {
            details.push(format!("{} is not tested with more than {MAX_PLANNED} samples", variant.name));
            continue;
        }
        match in_order(subject, &variant) {
            // Not every plan allows every order. That is no broken law.
            Err(Ended::Failed(VerifyError::Plan(error))) => {
                details.push(format!("{} is refused: {error}", variant.name));
            }
            ended => details.push(ended?),
        }
    }
    Ok(details.join("; "))
}

fn orders(subject: &Subject<'_>) -> Vec<Variant> {
    let own = subject.own().with("", |_, config| config.num_workers = Workers::Count(3));
    let order = own.settings.order;
    let bound = if order == Order::Strict { NARROW_BOUND } else { subject.plan.max_displacement() };
    let mut variants = Vec::new();
    let is_own = |other| order == other && own.settings.replay.is_none();
    if order.is_decided_while_running() && own.settings.replay.is_some() {
        variants.push(own.with("replayed order", |_, _| {}));
    }
    for (other, name) in [(Order::Planned, "planned order"), (Order::Arrival, "arrival order")] {
        // An order that the plan has itself keeps the plan's settings. Another one gets the bound.
        variants.push(if is_own(other) { own.with(name, |_, _| {}) } else { own.in_order(other, Some(bound), name) });
    }
    variants
}

fn in_order(subject: &Subject<'_>, variant: &Variant) -> Checked {
    let loader = subject.loader(variant)?;
    let bound = loader.plan().max_displacement();
    let is_planned = loader.plan().has_planned_order();
    // Arrival order keeps the same bound in both directions.
    let early = if is_planned { bound.saturating_add(PLANNED_LOOKAHEAD) } else { bound };
    let (mut latest, mut samples) = (0, 0);
    for _ in 0..subject.extent.epochs {
        let epoch = loader.upcoming_epoch();
        // A planned order is known before the epoch. Its report is taken before the loader learns new costs.
        let planned_report = loader.order_report(Some(epoch)).filter(|_| is_planned);
        let (delivered, _) = collect_epoch(subject, &loader, &variant.name, subject.batches())?;
        let report = planned_report.or_else(|| loader.order_report(Some(epoch)));
        // Samples up to `early` places behind the last delivered one may have been delivered early.
        let turns = (delivered.samples.len() as u64).saturating_add(early).saturating_add(1);
        let expected: Vec<_> =
            subject.sequence(epoch, turns).iter().map(|(place, request)| (request.id, place.is_padding)).collect();
        let late = measure(&expected, &delivered, &bad_ids(subject, &delivered), Allowed { late: bound, early })
            .map_err(|displaced| explain(subject, variant, &delivered, displaced, bound))?;
        latest = latest.max(late);
        let has_repeats = !subject.repeated(epoch).is_empty() || delivered.counted > 0;
        // With repeats or a partial epoch, only a lower limit of the displacement is known.
        let is_exact = !has_repeats && (!is_planned || subject.sees_all());
        // In a part of an epoch an earlier repeat may be missing, and a later one would get its place.
        let is_known = !has_repeats || subject.sees_all();
        if is_known
            && let Some(counterexample) =
                misreported(variant, &delivered, report.as_ref(), largest_of(&expected, &delivered), is_exact)
        {
            return Err(counterexample.into());
        }
        samples += delivered.samples.len();
    }
    loader.close();
    Ok(format!("{}: {samples} samples, at most {latest} places late, {bound} allowed", variant.name))
}

/// Bad samples and their substitutes. They are not at their places, and law 6 checks them.
fn bad_ids(subject: &Subject<'_>, delivered: &EpochStream) -> HashSet<SampleId> {
    let bad: HashSet<&str> = delivered.replaced.iter().flat_map(|replaced| [&*replaced.bad, &*replaced.by]).collect();
    let ids = delivered.samples.iter().map(|seen| seen.id);
    if bad.is_empty() { HashSet::new() } else { ids.filter(|&id| bad.contains(&*subject.key(id))).collect() }
}

fn pairs(delivered: &EpochStream) -> Vec<(SampleId, bool)> {
    delivered.samples.iter().map(|seen| (seen.id, seen.is_padding)).collect()
}

/// The largest number of places by which a sample is late, or the first sample beyond its bound.
fn measure(
    expected: &[(SampleId, bool)],
    delivered: &EpochStream,
    left_out: &HashSet<SampleId>,
    allowed: Allowed,
) -> Result<u64, Displaced> {
    let all = displaced(expected, &pairs(delivered));
    let is_counted = |displaced: &&Displaced| !left_out.contains(&delivered.samples[displaced.turn as usize].id);
    let counted: Vec<Displaced> = all.iter().filter(is_counted).copied().collect();
    match first_beyond(&counted, allowed) {
        Some(displaced) => Err(displaced),
        None => Ok(counted.iter().filter_map(|it| it.turn.checked_sub(it.number?)).max().unwrap_or(0)),
    }
}

fn largest_of(expected: &[(SampleId, bool)], delivered: &EpochStream) -> u64 {
    let all = displaced(expected, &pairs(delivered));
    all.iter().filter_map(|it| Some(it.turn.abs_diff(it.number?))).max().unwrap_or(0)
}

/// The counterexample if the loader's report does not match the delivered samples.
fn misreported(
    variant: &Variant,
    delivered: &EpochStream,
    report: Option<&OrderReport>,
    largest: u64,
    is_exact: bool,
) -> Option<Counterexample> {
    let reported = report.map_or(0, |report| report.largest_displacement);
    let is_right = if is_exact { reported == largest } else { delivered.counted > 0 || reported >= largest };
    (!is_right).then(|| Counterexample {
        epoch: Some(delivered.epoch.0),
        expected: Some(format!("at most {largest} places, as delivered")),
        found: Some(format!("at most {reported} places, as reported")),
        ..Counterexample::of(
            2,
            format!("the loader reports another displacement than the delivered samples have ({})", variant.name),
        )
    })
}

fn explain(
    subject: &Subject<'_>,
    variant: &Variant,
    delivered: &EpochStream,
    Displaced { turn, number }: Displaced,
    bound: u64,
) -> Counterexample {
    let found = match number {
        Some(number) => format!("turn {turn} instead of {number}: {} places away", turn.abs_diff(number)),
        None => format!("turn {turn}, but it was delivered before, or its place is further away than the bound"),
    };
    Counterexample {
        epoch: Some(delivered.epoch.0),
        position: number.map(|number| subject.plan.share(0).place(ShareIndex(number)).position.0),
        sample: delivered.samples.get(turn as usize).map(|seen| subject.key(seen.id)),
        expected: Some(format!("at most {bound} places away")),
        found: Some(found),
        ..Counterexample::of(2, format!("a sample comes beyond its displacement bound ({})", variant.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::stream::DeliveredSample;
    use feedline_order::Epoch;

    fn delivered(ids: &[u64]) -> EpochStream {
        let seen = |&id: &u64| DeliveredSample { id: SampleId(id), is_padding: false, digests: Vec::new() };
        EpochStream { samples: ids.iter().map(seen).collect(), ..EpochStream::of(Epoch(0)) }
    }

    fn in_order(count: u64) -> Vec<(SampleId, bool)> {
        (0..count).map(|id| (SampleId(id), false)).collect()
    }

    #[test]
    fn law_2_a_sample_beyond_its_bound_is_found_out() {
        let check = |ids: &[u64], late, early, expected| {
            assert_eq!(
                measure(&in_order(6), &delivered(ids), &HashSet::new(), Allowed { late, early }),
                expected,
                "{ids:?}"
            );
        };
        check(&[1, 2, 0, 3, 5, 4], 2, 1, Ok(2));
        check(&[1, 2, 3, 0, 5, 4], 2, 1, Err(Displaced { turn: 3, number: Some(0) }));
        check(&[2, 0, 1, 3, 4, 5], 2, 1, Err(Displaced { turn: 0, number: Some(2) }));
        check(&[0, 1, 1, 2, 3, 4], 9, 9, Err(Displaced { turn: 2, number: None }));
        check(&[0, 1, 77, 2, 3, 4], 9, 9, Err(Displaced { turn: 2, number: None }));
    }

    #[test]
    fn repeats_of_a_sampler_are_taken_in_the_order_in_which_they_came() {
        let expected = [7, 8, 7, 9].map(|id| (SampleId(id), false));
        let found = [8, 7, 7, 9].map(|id| (SampleId(id), false));
        let numbers: Vec<_> = displaced(&expected, &found).iter().map(|displaced| displaced.number).collect();
        assert_eq!(numbers, [Some(1), Some(0), Some(2), Some(3)]);
    }

    #[test]
    fn a_report_that_says_less_than_came_is_found_out() {
        let variant = |report: &OrderReport, is_exact| {
            let delivered = delivered(&[1, 2, 0]);
            let (details, found) = (Some(report), largest_of(&in_order(3), &delivered));
            let settings = feedline_data::plan::Settings::of_batches(1);
            let config = feedline_data::plan::RunConfig::default();
            let variant = Variant { name: String::new(), settings, config, probe: None, has_data: true };
            misreported(&variant, &delivered, details, found, is_exact).is_some()
        };
        let report = |largest_displacement| OrderReport { largest_displacement, ..OrderReport::default() };
        assert!(!variant(&report(2), true));
        assert!(variant(&report(1), true) && variant(&report(3), true));
        assert!(variant(&report(1), false) && !variant(&report(3), false), "a whole epoch may have more than its part");
    }
}
