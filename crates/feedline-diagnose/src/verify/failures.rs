//! Law 6: a bad sample is a value: named, counted, and never the end of an epoch.
//!
//! Whether the data has bad samples or not, one is made to fail: where bad samples raise, the first is named after all batches
//! before it; where they are replaced, the substitute is named and counted, and nothing else changes.

use std::collections::HashSet;

use feedline_data::failure::chain;
use feedline_data::plan::{OnError, Workers};
use feedline_engine::error::Error;
use feedline_order::{Place, SampleId, SampleRequest};

use super::compare::{Looks, first_difference};
use super::probe::{self, Probe};
use super::report::{Checked, Counterexample, Ended, Finding};
use super::stream::{DeliveredSample, Replaced, collect_epoch};
use super::subject::{Subject, Variant, VerifyError};
use super::values::Looked;

/// Bad samples that are told of.
const MOST_FINDINGS: usize = 20;

/// The first turn at which another sample comes than should, given as position and id, and is not named as its substitute.
pub(super) fn unnamed(
    expected: &[(u64, SampleId)],
    found: &[SampleId],
    replaced: &[Replaced],
    key: &dyn Fn(SampleId) -> String,
) -> Option<usize> {
    (0..expected.len().max(found.len())).find(|&turn| match (expected.get(turn), found.get(turn)) {
        (Some((position, should)), Some(is)) => {
            let is_named = |it: &Replaced| it.position == *position && it.bad == key(*should) && it.by == key(*is);
            should != is && !replaced.iter().any(is_named)
        }
        _ => true,
    })
}

/// What is wrong with the samples that were looked at.
pub(super) fn findings(subject: &Subject<'_>, looked: &Looked) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for epoch in &looked.strict().1.epochs {
        for replaced in &epoch.replaced {
            let ordinal =
                subject.plan.sequence().epoch(epoch.epoch).at(feedline_order::Position(replaced.position)).ordinal;
            let path = subject.plan.source().address(subject.plan.source().id_at(ordinal)).map(|(path, _)| path);
            let finding = Finding { sample: replaced.bad.clone(), path, problem: replaced.reason.clone() };
            if found.len() < MOST_FINDINGS && !found.contains(&finding) {
                found.push(finding);
            }
        }
    }
    found
}

/// Makes a sample fail, and looks at what comes of it.
pub(super) fn check(subject: &Subject<'_>, looked: &Looked) -> Checked {
    if let Some(why) = subject.erratic(looked.has_bad()) {
        return Err(Ended::Silent(why));
    }
    let (strict, stream) = looked.strict();
    let Some(epoch) = stream.epochs.first().filter(|epoch| !epoch.samples.is_empty()) else {
        return Err(Ended::Silent("no sample was looked at".to_owned()));
    };
    let key = |id| subject.key(id);
    let bad: u64 = stream.epochs.iter().map(|epoch| epoch.counted).sum();
    let named: usize = stream.epochs.iter().map(|epoch| epoch.replaced.len()).sum();
    if bad != named as u64 && named < 1000 {
        return Err(Ended::from(Counterexample {
            expected: Some(format!("{bad} counted")),
            found: Some(format!("{named} named")),
            ..Counterexample::of(6, "not all bad samples are named that are counted")
        }));
    }
    // In the middle, so that something comes before and behind it.
    let expected = subject.sequence(epoch.epoch, subject.samples());
    let victim = expected[expected.len() / 2].1.id;
    if expected.iter().all(|(_, wanted)| wanted.id == victim) {
        return Err(Ended::Silent("there is one sample, for which no other can stand in".to_owned()));
    }
    let variant = strict.with("a sample made to fail, 2 workers", |_, config| config.num_workers = Workers::Count(2));
    let variant = variant.probed(&Probe::refusing(victim));
    raises(subject, &variant, &expected, &epoch.samples, victim)?;
    let loader = subject.loader(&variant)?;
    let (came, _) = collect_epoch(subject, &loader, &variant.name, subject.batches())?;
    loader.close();
    let places: Vec<_> = expected.iter().map(|(place, wanted)| (place.position.0, wanted.id)).collect();
    let ids: Vec<_> = came.samples.iter().map(|seen| seen.id).collect();
    let replaced = places.iter().zip(&ids).filter(|((_, should), is)| should != *is).count();
    let wrong = unnamed(&places, &ids, &came.replaced, &key)
        .or_else(|| ids.iter().position(|&id| id == victim))
        .or_else(|| changed(&epoch.samples, &came.samples, victim, subject.looks()));
    if let Some(turn) = wrong {
        let is = ids.get(turn).map_or_else(|| "nothing".to_owned(), |&id| format!("sample {:?}", key(id)));
        return Err(Ended::from(Counterexample {
            epoch: Some(epoch.epoch.0),
            position: places.get(turn).map(|(position, _)| *position),
            sample: places.get(turn).map(|(_, id)| key(*id)),
            expected: Some(if places.get(turn).is_some_and(|(_, id)| *id == victim) {
                "a substitute that is named".to_owned()
            } else {
                "the sample as it is without the bad one".to_owned()
            }),
            found: Some(is),
            configurations: vec![strict.name.clone(), variant.name],
            ..Counterexample::of(6, "beside a bad sample that is replaced, something changes or is not named")
        }));
    }
    if came.counted != replaced as u64 {
        return Err(Ended::from(Counterexample {
            epoch: Some(epoch.epoch.0),
            expected: Some(format!("{replaced} replaced")),
            found: Some(format!("{} counted", came.counted)),
            ..Counterexample::of(6, "bad samples that were replaced are not counted")
        }));
    }
    let names = stream.epochs.iter().flat_map(|epoch| &epoch.replaced).map(|replaced| &*replaced.bad);
    let own = match names.collect::<HashSet<&str>>().len() {
        0 => "none of the data's own is bad".to_owned(),
        1 => "1 of the data's own is bad, replaced and named".to_owned(),
        bad => format!("{bad} of the data's own are bad, replaced and named"),
    };
    Ok(format!("a sample made to fail is named when it raises, and named and counted when replaced; {own}"))
}

/// The first turn, but for those of the bad sample and of substitutes, at which not the same came.
fn changed(before: &[DeliveredSample], after: &[DeliveredSample], victim: SampleId, looks: Looks) -> Option<usize> {
    let turns = before.iter().zip(after).enumerate();
    let mut own = turns.filter(|(_, (before, after))| before.id != victim && before.id == after.id);
    let differs = |(before, after): (&DeliveredSample, &DeliveredSample)| {
        first_difference(std::slice::from_ref(before), std::slice::from_ref(after), looks).is_some()
    };
    own.find(|(_, pair)| differs(*pair)).map(|(turn, _)| turn)
}

/// Runs until a bad sample raises: all batches before it come, and it is named.
fn raises(
    subject: &Subject<'_>,
    variant: &Variant,
    expected: &[(Place, SampleRequest)],
    before: &[DeliveredSample],
    victim: SampleId,
) -> Checked<()> {
    let raising =
        variant.with("a sample made to fail, bad samples raise", |settings, _| settings.on_error = OnError::Raise);
    let loader = subject.loader(&raising)?;
    let mut ids = Vec::new();
    let ended = subject.take(&loader, &raising.name, subject.batches(), |batch| ids.extend(batch.ids()));
    loader.close();
    let failure = match ended {
        Ok(_) => Err("no error".to_owned()),
        Err(VerifyError::Run { source: Error::Sample(failure), .. }) => Ok(failure),
        Err(VerifyError::Run { source, .. }) => Err(chain(&source)),
        Err(other) => return Err(other.into()),
    };
    // Those that were replaced before are bad, too.
    let is_bad =
        |(_, wanted): &(Place, SampleRequest), seen: &DeliveredSample| wanted.id == victim || wanted.id != seen.id;
    let bad: Vec<bool> = expected.iter().zip(before).map(|(should, is)| is_bad(should, is)).collect();
    let first = bad.iter().position(|is_bad| *is_bad).unwrap_or_default();
    let batch_size = raising.settings.batch_size;
    let begin = first / batch_size * batch_size;
    let is_right = failure.as_ref().is_ok_and(|failure| {
        // Of several bad samples in a batch any may be first.
        let in_batch = expected.iter().zip(&bad).skip(begin).take(batch_size);
        let is_named = in_batch.into_iter().any(|((_, wanted), is_bad)| *is_bad && wanted.id == failure.id);
        let is_probe = failure.id != victim || failure.op.as_deref() == Some(probe::NAME);
        let came_before =
            ids.len() == begin && ids.iter().zip(before).all(|(id, seen)| id.cast_unsigned() == seen.id.0);
        is_named && is_probe && failure.key == subject.key(failure.id) && came_before
    });
    let found = failure.map_or_else(|text| text, |failure| chain(&*failure));
    let (place, wanted) = expected[first];
    if is_right {
        return Ok(());
    }
    Err(Ended::from(Counterexample {
        epoch: Some(wanted.epoch.0),
        position: Some(place.position.0),
        sample: Some(subject.key(wanted.id)),
        expected: Some(format!("an error that names it, after {begin} samples")),
        found: Some(format!("after {} samples: {found}", ids.len())),
        configurations: vec![raising.name],
        ..Counterexample::of(6, "a bad sample does not raise an error that names it, after the batches before it")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(position: u64, bad: &str, by: &str) -> Replaced {
        Replaced { position, bad: bad.to_owned(), by: by.to_owned(), reason: String::new() }
    }

    #[test]
    fn law_6_a_substitute_that_is_not_named_is_found_out() {
        let key = |id: SampleId| format!("key {}", id.0);
        let check = |found: &[u64], named: &[Replaced], expected| {
            let places = [(10, SampleId(0)), (11, SampleId(1)), (12, SampleId(2))];
            let found: Vec<_> = found.iter().copied().map(SampleId).collect();
            assert_eq!(unnamed(&places, &found, named, &key), expected);
        };
        check(&[0, 1, 2], &[], None);
        check(&[0, 2, 2], &[], Some(1));
        check(&[0, 2, 2], &[replaced(11, "key 1", "key 2")], None);
        check(&[0, 2, 2], &[replaced(11, "key 1", "key 0")], Some(1));
        check(&[0, 2, 2], &[replaced(12, "key 1", "key 2")], Some(1));
        check(&[0, 1], &[], Some(2));
    }

    #[test]
    fn law_6_a_change_beside_a_bad_sample_is_found_out() {
        let seen = |id, digest| DeliveredSample { id: SampleId(id), is_padding: false, digests: vec![digest] };
        let before = [seen(0, 1), seen(1, 1), seen(2, 1)];
        let check = |after: &[DeliveredSample], expected| {
            assert_eq!(changed(&before, after, SampleId(1), Looks::AtBytes), expected);
        };
        check(&[seen(0, 1), seen(2, 1), seen(2, 1)], None);
        check(&[seen(0, 1), seen(2, 1), seen(2, 9)], Some(2));
    }
}
