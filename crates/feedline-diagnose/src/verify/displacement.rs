//! Law 2 in other orders: each sample comes once, and none beyond its displacement bound.
//!
//! How far a sample is from its place is found out from the samples that came, and compared with what the loader reports.

use std::collections::{HashMap, HashSet, VecDeque};

use feedline_data::plan::{Order, Workers};
use feedline_order::{OrderReport, SampleId, ShareIndex};

use super::report::{Checked, Counterexample, Ended};
use super::stream::{EpochStream, collect_epoch};
use super::subject::{Subject, Variant, VerifyError};

/// A planned order may look this much further ahead than its bound.
const AHEAD: u64 = 64;
/// The bound where the plan has none: so narrow that an order that kept to no bound would break it.
const NARROW: u64 = 4;
/// Samples of an epoch whose planned order is found though the plan does not ask for it: their sizes have to be known.
const MOST_PLANNED: u64 = 200_000;

/// A sample and how far it is from its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Displaced {
    /// When it came.
    pub turn: u64,
    /// When the sampler's order gives it; nothing if that is not among the samples that could come.
    pub number: Option<u64>,
}

/// Finds the places of samples that came, repeats in the order in which they came: if all came, no other choice
/// displaces less.
pub(super) fn displaced(expected: &[(SampleId, bool)], found: &[(SampleId, bool)]) -> Vec<Displaced> {
    let mut numbers: HashMap<(SampleId, bool), VecDeque<u64>> = HashMap::new();
    for (number, &sample) in expected.iter().enumerate() {
        numbers.entry(sample).or_default().push_back(number as u64);
    }
    let mut number = |sample: &(SampleId, bool)| numbers.get_mut(sample).and_then(VecDeque::pop_front);
    (0..).zip(found).map(|(turn, sample)| Displaced { turn, number: number(sample) }).collect()
}

/// How many places a sample may come away from its own.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    late: u64,
    early: u64,
}

/// The first sample that is not there where it could be, or beyond the bound.
fn first_beyond(all: &[Displaced], allowed: Allowed) -> Option<Displaced> {
    let is_beyond = |displaced: &&Displaced| match displaced.number {
        Some(number) if number <= displaced.turn => displaced.turn - number > allowed.late,
        Some(number) => number - displaced.turn > allowed.early,
        None => true,
    };
    all.iter().find(is_beyond).copied()
}

/// Runs the plan in its own and in other orders.
pub(super) fn check(subject: &Subject<'_>) -> Checked {
    let mut said = Vec::new();
    for variant in orders(subject) {
        let is_others = variant.settings.order == Order::Planned && subject.plan.settings().order != Order::Planned;
        if is_others && subject.plan.share(0).samples() > MOST_PLANNED {
            said.push(format!("{} is not tried with more than {MOST_PLANNED} samples", variant.name));
            continue;
        }
        match in_order(subject, &variant) {
            Err(Ended::Failed(VerifyError::Plan(error))) => said.push(format!("{} is refused: {error}", variant.name)),
            ended => said.push(ended?),
        }
    }
    Ok(said.join("; "))
}

fn orders(subject: &Subject<'_>) -> Vec<Variant> {
    let own = subject.own().with("", |_, config| config.num_workers = Workers::Count(3));
    let order = own.settings.order;
    let bound = if order == Order::Strict { NARROW } else { subject.plan.max_displacement() };
    let mut variants = Vec::new();
    let is_own = |other| order == other && own.settings.replay.is_none();
    if order.is_decided_while_running() && own.settings.replay.is_some() {
        variants.push(own.with("replayed order", |_, _| {}));
    }
    for (other, name) in [(Order::Planned, "planned order"), (Order::Arrival, "arrival order")] {
        variants.push(if is_own(other) { own.with(name, |_, _| {}) } else { own.in_order(other, Some(bound), name) });
    }
    variants
}

fn in_order(subject: &Subject<'_>, variant: &Variant) -> Checked {
    let loader = subject.loader(variant)?;
    let bound = loader.plan().max_displacement();
    let is_planned = loader.plan().has_planned_order();
    let early = if is_planned { bound.saturating_add(AHEAD) } else { bound };
    let (mut latest, mut samples) = (0, 0);
    for _ in 0..subject.extent.epochs {
        let epoch = loader.upcoming_epoch();
        let planned_report = loader.order_report(Some(epoch)).filter(|_| is_planned);
        let (came, _) = collect_epoch(subject, &loader, &variant.name, subject.batches())?;
        let report = planned_report.or_else(|| loader.order_report(Some(epoch)));
        let turns = (came.samples.len() as u64).saturating_add(early).saturating_add(1);
        let expected: Vec<_> =
            subject.sequence(epoch, turns).iter().map(|(place, wanted)| (wanted.id, place.is_padding)).collect();
        let late = measure(&expected, &came, &bad_ids(subject, &came), Allowed { late: bound, early })
            .map_err(|displaced| explain(subject, variant, &came, displaced, bound))?;
        latest = latest.max(late);
        let has_repeats = !subject.repeated(epoch).is_empty() || came.counted > 0;
        let is_exact = !has_repeats && (!is_planned || subject.sees_all());
        // In a part of an epoch an early repeat may not have come yet, so that a later one is taken for it.
        let is_known = !has_repeats || subject.sees_all();
        if is_known
            && let Some(counterexample) =
                misreported(variant, &came, report.as_ref(), largest_of(&expected, &came), is_exact)
        {
            return Err(counterexample.into());
        }
        samples += came.samples.len();
    }
    loader.close();
    Ok(format!("{}: {samples} samples, at most {latest} places late, {bound} allowed", variant.name))
}

/// Samples that are bad or stand in for bad ones: they are not where they belong, and are named.
fn bad_ids(subject: &Subject<'_>, came: &EpochStream) -> HashSet<SampleId> {
    let bad: HashSet<&str> = came.replaced.iter().flat_map(|replaced| [&*replaced.bad, &*replaced.by]).collect();
    let ids = came.samples.iter().map(|seen| seen.id);
    if bad.is_empty() { HashSet::new() } else { ids.filter(|&id| bad.contains(&*subject.key(id))).collect() }
}

fn pairs(came: &EpochStream) -> Vec<(SampleId, bool)> {
    came.samples.iter().map(|seen| (seen.id, seen.is_padding)).collect()
}

/// How many places samples of an epoch come late at most, or the first one beyond its bound.
fn measure(
    expected: &[(SampleId, bool)],
    came: &EpochStream,
    left_out: &HashSet<SampleId>,
    allowed: Allowed,
) -> Result<u64, Displaced> {
    let all = displaced(expected, &pairs(came));
    let is_counted = |displaced: &&Displaced| !left_out.contains(&came.samples[displaced.turn as usize].id);
    let counted: Vec<Displaced> = all.iter().filter(is_counted).copied().collect();
    match first_beyond(&counted, allowed) {
        Some(displaced) => Err(displaced),
        None => Ok(counted.iter().filter_map(|it| it.turn.checked_sub(it.number?)).max().unwrap_or(0)),
    }
}

fn largest_of(expected: &[(SampleId, bool)], came: &EpochStream) -> u64 {
    let all = displaced(expected, &pairs(came));
    all.iter().filter_map(|it| Some(it.turn.abs_diff(it.number?))).max().unwrap_or(0)
}

/// A report that does not say what came.
fn misreported(
    variant: &Variant,
    came: &EpochStream,
    report: Option<&OrderReport>,
    largest: u64,
    is_exact: bool,
) -> Option<Counterexample> {
    let said = report.map_or(0, |report| report.largest_displacement);
    let is_right = if is_exact { said == largest } else { came.counted > 0 || said >= largest };
    (!is_right).then(|| Counterexample {
        epoch: Some(came.epoch.0),
        expected: Some(format!("at most {largest} places, as came")),
        found: Some(format!("at most {said} places, as reported")),
        ..Counterexample::of(
            2,
            format!("the loader reports another displacement than the samples have that came ({})", variant.name),
        )
    })
}

fn explain(
    subject: &Subject<'_>,
    variant: &Variant,
    came: &EpochStream,
    Displaced { turn, number }: Displaced,
    bound: u64,
) -> Counterexample {
    let found = match number {
        Some(number) => format!("turn {turn} instead of {number}: {} places away", turn.abs_diff(number)),
        None => format!("turn {turn}, where it has come before, or is further than its bound from its place"),
    };
    Counterexample {
        epoch: Some(came.epoch.0),
        position: number.map(|number| subject.plan.share(0).place(ShareIndex(number)).position.0),
        sample: came.samples.get(turn as usize).map(|seen| subject.key(seen.id)),
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

    fn came(ids: &[u64]) -> EpochStream {
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
                measure(&in_order(6), &came(ids), &HashSet::new(), Allowed { late, early }),
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
            let came = came(&[1, 2, 0]);
            let (said, found) = (Some(report), largest_of(&in_order(3), &came));
            let settings = feedline_data::plan::Settings::of_batches(1);
            let config = feedline_data::plan::RunConfig::default();
            let variant = Variant { name: String::new(), settings, config, probe: None, has_data: true };
            misreported(&variant, &came, said, found, is_exact).is_some()
        };
        let report = |largest_displacement| OrderReport { largest_displacement, ..OrderReport::default() };
        assert!(!variant(&report(2), true));
        assert!(variant(&report(1), true) && variant(&report(3), true));
        assert!(variant(&report(1), false) && !variant(&report(3), false), "a whole epoch may have more than its part");
    }
}
