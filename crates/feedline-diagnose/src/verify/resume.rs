//! Law 4: a resume is exact, and prepares no delivered sample again.
//!
//! States are taken at several places, written as JSON, and loaded by a new loader with another number of threads. If the order is
//! known in advance, the rest must be equal byte for byte. In arrival order exactly the undelivered samples must come, each once.

use std::sync::Arc;

use feedline_data::failure::chain;
use feedline_data::plan::{Plan, Workers};
use feedline_engine::state::{Cursor, SavedState};
use feedline_order::{Epoch, EpochPath, Occurrence, SampleId, SampleRequest, Turn};

use super::compare::{Comparison, Difference, Pair, StreamDifference, first_difference};
use super::failures::first_unexplained;
use super::probe::Probe;
use super::report::{Checked, Counterexample, Ended};
use super::resume_arrival;
use super::stream::{At, Begin, DeliveredSample, EpochStream, collect_epoch, contents_at};
use super::subject::{Subject, Variant, VerifyError};
use super::values::References;

/// If only the start of an epoch is checked, one more resume is this many batches before its end.
const LAST_BATCHES: u64 = 2;

/// Resumes at several places. A place is a number of delivered batches.
pub(super) fn check(subject: &Subject<'_>, references: &References) -> Checked {
    if let Some(why) = subject.random_failures(references.has_bad()) {
        return Err(Ended::NotApplicable(why));
    }
    let batches = subject.batches();
    // A stop exactly at the end of an epoch only makes sense if a second epoch follows to compare with.
    let last = if subject.sees_all() && subject.extent.epochs > 1 { batches } else { batches.saturating_sub(1) };
    let mut places = vec![1, batches / 2, batches - 1, last];
    places.retain(|&place| (1..=last).contains(&place));
    // The places ascend already, so equal ones are neighbours.
    places.dedup();
    if places.is_empty() {
        return Err(Ended::NotApplicable("the checked part of the epoch is a single batch".to_owned()));
    }
    for &place in &places {
        if subject.is_predetermined() {
            in_known_order(subject, references, place)?;
        } else {
            resume_arrival::check_at(subject, references, place)?;
        }
    }
    let mut more = String::new();
    if !subject.sees_all() && subject.is_predetermined() {
        at_the_end(subject, references)?;
        more = format!(", and {LAST_BATCHES} batches before the end");
    }
    // With bad samples nothing can be said: one sample may be prepared as the substitute of several others.
    let twice = if references.has_bad() { "" } else { "; nothing prepared twice" };
    let bytes = if subject.comparison() == Comparison::Bytes { "byte for byte" } else { "sample for sample" };
    let places: Vec<String> = places.iter().map(ToString::to_string).collect();
    let of = subject.plan.batches_per_epoch();
    let places = places.join(", ");
    Ok(format!("from states after batch {places} of {of}{more}: {bytes}, with 5 workers instead of 2{twice}"))
}

/// The loaders before and after a stop.
pub(super) fn variants(reference: &Variant, place: u64) -> (Variant, Variant) {
    let workers = |name: String, count| reference.with(&name, |_, config| config.num_workers = Workers::Count(count));
    (
        workers(format!("2 workers, stopped after {place} batches"), 2),
        workers(format!("resumed after {place} batches, 5 workers"), 5),
    )
}

/// A run that was stopped.
pub(super) struct Stopped {
    /// Number of delivered batches.
    place: u64,
    pub(super) delivered: EpochStream,
    /// Its state after writing and reading.
    state: SavedState,
}

/// Runs to a place and stops.
pub(super) fn stopped(subject: &Subject<'_>, variant: &Variant, place: u64) -> Result<Stopped, VerifyError> {
    let loader = subject.loader(&variant.probed(&Probe::recording()))?;
    let (delivered, _) = collect_epoch(subject, &loader, &variant.name, place)?;
    let state = loader.state();
    loader.close();
    Ok(Stopped { place, delivered, state: rewritten(&state) })
}

fn rewritten(state: &SavedState) -> SavedState {
    // Checkpoints are saved as JSON, so the state must survive it.
    let text = serde_json::to_string(state).expect("a state is plain data");
    serde_json::from_str(&text).expect("a state that was written can be read")
}

/// The result of a resume.
pub(super) struct Resumed {
    pub(super) rest: EpochStream,
    pub(super) plan: Arc<Plan>,
    /// Records the prepared samples.
    pub(super) probe: Arc<Probe>,
}

/// Resumes a stopped run.
pub(super) fn resumed(subject: &Subject<'_>, variant: &Variant, stopped: &Stopped, batches: u64) -> Checked<Resumed> {
    let probe = Probe::recording();
    let loader = subject.loader(&variant.probed(&probe))?;
    loader.load_state(&stopped.state).map_err(|error| refused(stopped.place, variant, chain(&error)))?;
    let (rest, _) = collect_epoch(subject, &loader, &variant.name, batches)?;
    loader.close();
    Ok(Resumed { rest, plan: Arc::clone(loader.plan()), probe })
}

fn refused(place: u64, variant: &Variant, reason: String) -> Counterexample {
    Counterexample {
        found: Some(reason),
        configurations: vec![variant.name.clone()],
        ..Counterexample::of(4, format!("a state that was taken after {place} batches is refused"))
    }
}

fn in_known_order(subject: &Subject<'_>, references: &References, place: u64) -> Checked<()> {
    let (variant, reference) = &references.reference;
    let (first, second) = variants(variant, place);
    let stopped = stopped(subject, &first, place)?;
    let (delivered, expected) = rest_after(&reference.epochs, place, variant.settings.batch_size);
    // After a stop at the end of the epoch, the rest is the whole next epoch.
    let all = subject.batches() - place % subject.batches();
    let most = if subject.sees_all() { u64::MAX } else { all };
    let Resumed { rest, plan, probe } = resumed(subject, &second, &stopped, most)?;
    // If nothing is left of the first epoch, the stream continues with the second.
    let epoch = reference.epochs[usize::from(delivered.is_empty())].epoch;
    let problem = "the stream after a resume is not the rest of the stream";
    if rest.epoch != epoch {
        return Err(Ended::from(Counterexample {
            expected: Some(format!("epoch {}", epoch.0)),
            found: Some(format!("epoch {}", rest.epoch.0)),
            configurations: vec![variant.name.clone(), second.name],
            ..Counterexample::of(4, problem)
        }));
    }
    if let Some(difference) = first_difference(expected, &rest.samples, subject.comparison()) {
        let moved = moved_by(difference, delivered.len());
        let pair = Pair { law: 4, problem, expected: variant, found: &second, fields: &reference.fields };
        let mut broken = subject.located(&pair, StreamDifference { epoch, difference: moved });
        if let Difference::Field { turn, field, .. } = difference {
            let at = |turn: usize| At::Turn(turn as u64);
            let one = contents_at(subject, variant, Begin::Epoch(epoch), at(turn + delivered.len()))?;
            let other =
                contents_at(subject, &second.probed(&Probe::recording()), Begin::State(&stopped.state), at(turn))?;
            let sides = one.get(field).zip(other.get(field)).and_then(|(one, other)| one.first_difference(other));
            if let Some(sides) = sides {
                broken.differ_at(sides);
            }
        }
        return Err(broken.into());
    }
    match prepared_twice(subject, delivered, expected, |request| probe.has_prepared(&plan, request)) {
        Some(id) if !references.has_bad() => Err(repeated(subject, id, vec![first.name, second.name]).into()),
        _ => Ok(()),
    }
}

/// The counterexample for a sample that was prepared twice.
pub(super) fn repeated(subject: &Subject<'_>, id: SampleId, configurations: Vec<String>) -> Counterexample {
    Counterexample {
        epoch: Some(0),
        sample: Some(subject.key(id)),
        expected: Some("delivered".to_owned()),
        found: Some("prepared again".to_owned()),
        configurations,
        ..Counterexample::of(4, "a sample that was delivered before the stop is prepared again")
    }
}

/// The samples of the first epoch before a place, and those after it. At the end of the epoch: no samples, and the next epoch.
fn rest_after(epochs: &[EpochStream], place: u64, batch_size: usize) -> (&[DeliveredSample], &[DeliveredSample]) {
    let samples = &epochs[0].samples;
    let turn = usize::try_from(place).unwrap_or(usize::MAX).saturating_mul(batch_size);
    if turn < samples.len() { samples.split_at(turn) } else { (&[], epochs.get(1).map_or(&[], |next| &next.samples)) }
}

/// A difference in the rest of an epoch, with its turn counted from the start of the epoch.
fn moved_by(difference: Difference, turns: usize) -> Difference {
    match difference {
        Difference::Sample { turn, expected, found } => Difference::Sample { turn: turn + turns, expected, found },
        Difference::Field { turn, id, field } => Difference::Field { turn: turn + turns, id, field },
    }
}

/// The first sample of `delivered` that is prepared again, although it is not in `rest`.
pub(super) fn prepared_twice(
    subject: &Subject<'_>,
    delivered: &[DeliveredSample],
    rest: &[DeliveredSample],
    is_prepared: impl Fn(SampleRequest) -> bool,
) -> Option<SampleId> {
    let (epoch, repeated) = (Epoch(0), subject.repeated(Epoch(0)));
    // With several ranks the first sample of the epoch may come again as padding.
    let first = usize::from(subject.plan.config().rank.world > 1);
    // Samples that come again, in the rest or through a sampler, may be prepared again.
    let again: std::collections::HashSet<SampleId> = rest.iter().map(|seen| seen.id).collect();
    let mut alone = delivered.iter().skip(first).map(|seen| seen.id);
    alone.find(|&id| {
        let is_over = !again.contains(&id) && !repeated.contains(&id);
        is_over && is_prepared(SampleRequest { id, epoch, occurrence: Occurrence(0) })
    })
}

/// Resumes shortly before the end of an epoch of which only the start was checked.
fn at_the_end(subject: &Subject<'_>, references: &References) -> Checked<()> {
    let (variant, reference) = &references.reference;
    let place = subject.plan.batches_per_epoch() - LAST_BATCHES;
    let second = variants(variant, place).1;
    let state = {
        let loader = subject.loader(&second.probed(&Probe::recording()))?;
        let cursor = Cursor { batches: place, ..Cursor::start_of(Epoch(0)) };
        rewritten(&cursor.to_state(loader.plan()).into())
    };
    let loader = subject.loader(&second.probed(&Probe::recording()))?;
    loader.load_state(&state).map_err(|error| refused(place, &second, chain(&error)))?;
    let (rest, _) = collect_epoch(subject, &loader, &second.name, u64::MAX)?;
    let (next, _) = collect_epoch(subject, &loader, &second.name, 1)?;
    loader.close();
    let epoch_path = EpochPath { epoch: Epoch(0), share: subject.plan.share(0), rest: None };
    let visits = subject.plan.sequence().epoch(Epoch(0));
    let first = place * subject.plan.settings().batch_size as u64;
    let expected: Vec<_> = (first..epoch_path.share.samples())
        .map(|turn| subject.plan.place(&epoch_path, Turn(turn)).position)
        .map(|position| (position.0, subject.plan.source().id_at(visits.at(position).ordinal)))
        .collect();
    let found: Vec<_> = rest.samples.iter().map(|seen| seen.id).collect();
    let key = |id| subject.key(id);
    if let Some(turn) = first_unexplained(&expected, &found, &rest.replaced, &key) {
        let difference = Difference::Sample {
            turn: first as usize + turn,
            expected: expected.get(turn).map(|(_, id)| *id),
            found: found.get(turn).copied(),
        };
        let problem = "the last batches of an epoch after a resume are not those of the plan";
        let pair = Pair { law: 4, problem, expected: variant, found: &second, fields: &reference.fields };
        return Err(subject.located(&pair, StreamDifference { epoch: Epoch(0), difference }).into());
    }
    let Some(expected) = reference.epochs.get(1) else { return Ok(()) };
    let expected = &expected.samples[..expected.samples.len().min(next.samples.len())];
    let Some(difference) = first_difference(expected, &next.samples, subject.comparison()) else { return Ok(()) };
    let problem = "the epoch after a resume does not begin as it should";
    let pair = Pair { law: 4, problem, expected: variant, found: &second, fields: &reference.fields };
    Err(subject.located(&pair, StreamDifference { epoch: Epoch(1), difference }).into())
}

#[cfg(test)]
mod tests {
    use super::super::subject::{Extent, Watch};
    use super::*;
    use feedline_engine::machine::Machine;
    use feedline_order::Rank;

    fn epoch(ids: &[u64]) -> EpochStream {
        let seen = |&id: &u64| DeliveredSample { id: SampleId(id), is_padding: false, digests: vec![u128::from(id)] };
        EpochStream { samples: ids.iter().map(seen).collect(), ..EpochStream::of(Epoch(0)) }
    }

    #[test]
    fn law_4_a_rest_that_repeats_or_leaves_out_a_sample_is_found_out() {
        let whole = [epoch(&[3, 1, 2, 0, 4]), epoch(&[0, 1])];
        let check = |place, rest: &[u64], expected: Option<usize>| {
            let (delivered, behind) = rest_after(&whole, place, 2);
            let difference = first_difference(behind, &epoch(rest).samples, Comparison::Bytes);
            let turn = difference.map(|difference| match moved_by(difference, delivered.len()) {
                Difference::Sample { turn, .. } | Difference::Field { turn, .. } => turn,
            });
            assert_eq!(turn, expected, "{rest:?} after {place} batches");
        };
        check(1, &[2, 0, 4], None);
        check(1, &[1, 2, 0, 4], Some(2));
        check(2, &[], Some(4));
        check(2, &[4, 3], Some(5));
        check(3, &[0, 1], None);
        check(3, &[4], Some(0));
    }

    struct Quiet;

    impl Watch for Quiet {}

    #[test]
    fn law_4_what_is_prepared_again_is_found_out() {
        let check = |world: u32, prepared: &[u64], expected: Option<u64>| {
            let text = "batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 8\nshape = [1]\n";
            let plan = feedline_data::testing::open_for(Rank { rank: 0, world }, text).unwrap();
            let extent = Extent { epochs: 1, samples: 8, ids: 8 };
            let subject = Subject { plan, extent, machine: Machine::default(), watch: &Quiet, unstable: None };
            let (delivered, rest) = (epoch(&[3, 1, 2, 0]), epoch(&[5, 6, 2]));
            let is_prepared = |request: SampleRequest| prepared.contains(&request.id.0);
            let found = prepared_twice(&subject, &delivered.samples, &rest.samples, is_prepared);
            assert_eq!(found, expected.map(SampleId), "{prepared:?}");
        };
        check(1, &[5, 6, 7, 2], None);
        check(1, &[5, 6, 0], Some(0));
        check(1, &[3], Some(3));
        check(2, &[3], None);
    }

    #[test]
    fn law_4_a_plan_that_is_stopped_and_resumed_notes_only_the_rest() {
        let text = "batch_size = 2\nshuffle = true\n[source]\nkind = \"synthetic\"\nn = 20\nshape = [1]\n";
        let plan = feedline_data::testing::open(text).unwrap();
        let extent = Extent { epochs: 1, samples: 20, ids: 20 };
        let subject = Subject { plan, extent, machine: Machine::default(), watch: &Quiet, unstable: None };
        let (first, second) = variants(&subject.own(), 3);
        let stopped = stopped(&subject, &first, 3).unwrap();
        let Resumed { rest, plan, probe } = resumed(&subject, &second, &stopped, u64::MAX).unwrap();
        let request =
            |seen: &DeliveredSample| SampleRequest { id: seen.id, epoch: Epoch(0), occurrence: Occurrence(0) };
        assert_eq!((stopped.delivered.samples.len(), rest.samples.len()), (6, 14));
        assert!(
            rest.samples.iter().all(|seen| probe.has_prepared(&plan, request(seen))),
            "delivered samples were prepared"
        );
        assert!(
            !stopped.delivered.samples.iter().any(|seen| probe.has_prepared(&plan, request(seen))),
            "nothing else was"
        );
    }
}
