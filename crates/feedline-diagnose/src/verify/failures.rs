//! Law 6: a failed sample is a value: it is named and counted, and never ends an epoch.
//!
//! One sample is made to fail, whether the data has bad samples or not. If bad samples raise, the error names it, after all batches
//! before it. If they are replaced, the substitute is named and counted, and nothing else changes.

use std::collections::HashSet;

use feedline_data::failure::chain;
use feedline_data::plan::{OnError, Workers};
use feedline_engine::error::Error;
use feedline_order::{Place, SampleId, SampleRequest};

use super::compare::{Comparison, first_difference};
use super::probe::{self, Probe};
use super::report::{Checked, Counterexample, Ended, Finding};
use super::stream::{DeliveredSample, Replaced, collect_epoch};
use super::subject::{Subject, Variant, VerifyError};
use super::values::References;

/// Upper limit of reported bad samples.
const MAX_FINDINGS: usize = 20;

/// The first turn with another sample than expected that is not a reported substitute. `expected` has positions and ids.
pub(super) fn first_unexplained(
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

/// The bad samples of the reference streams.
pub(super) fn findings(subject: &Subject<'_>, references: &References) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for epoch in &references.strict().1.epochs {
        for replaced in &epoch.replaced {
            let ordinal =
                subject.plan.sequence().epoch(epoch.epoch).at(feedline_order::Position(replaced.position)).ordinal;
            let path = subject.plan.source().address(subject.plan.source().id_at(ordinal)).map(|(path, _)| path);
            let finding = Finding { sample: replaced.bad.clone(), path, problem: replaced.reason.clone() };
            // A bad sample fails in each epoch, but is reported once.
            if found.len() < MAX_FINDINGS && !found.contains(&finding) {
                found.push(finding);
            }
        }
    }
    found
}

/// Makes a sample fail, and checks the consequences.
pub(super) fn check(subject: &Subject<'_>, references: &References) -> Checked {
    if let Some(why) = subject.random_failures(references.has_bad()) {
        return Err(Ended::NotApplicable(why));
    }
    let (strict, stream) = references.strict();
    let Some(epoch) = stream.epochs.first().filter(|epoch| !epoch.samples.is_empty()) else {
        return Err(Ended::NotApplicable("no sample was delivered".to_owned()));
    };
    let key = |id| subject.key(id);
    let bad: u64 = stream.epochs.iter().map(|epoch| epoch.counted).sum();
    let named: usize = stream.epochs.iter().map(|epoch| epoch.replaced.len()).sum();
    // The loader keeps the names of the last substitutes only, so many cannot be compared.
    if bad != named as u64 && named < 1000 {
        return Err(Ended::from(Counterexample {
            expected: Some(format!("{bad} counted")),
            found: Some(format!("{named} named")),
            ..Counterexample::of(6, "not all counted bad samples are named")
        }));
    }
    // From the middle, so that there are samples before and after it.
    let expected = subject.sequence(epoch.epoch, subject.samples());
    let victim = expected[expected.len() / 2].1.id;
    if expected.iter().all(|(_, request)| request.id == victim) {
        return Err(Ended::NotApplicable("there is only one sample, so there is no substitute for it".to_owned()));
    }
    let variant = strict.with("a sample made to fail, 2 workers", |_, config| config.num_workers = Workers::Count(2));
    let variant = variant.probed(&Probe::refusing(victim));
    raises(subject, &variant, &expected, &epoch.samples, victim)?;
    let loader = subject.loader(&variant)?;
    let (delivered, _) = collect_epoch(subject, &loader, &variant.name, subject.batches())?;
    loader.close();
    let places: Vec<_> = expected.iter().map(|(place, request)| (place.position.0, request.id)).collect();
    let ids: Vec<_> = delivered.samples.iter().map(|seen| seen.id).collect();
    let replaced = places.iter().zip(&ids).filter(|((_, should), is)| should != *is).count();
    // Three ways to be wrong: an unexplained sample, the bad sample itself, or other bytes in a good sample.
    let wrong = first_unexplained(&places, &ids, &delivered.replaced, &key)
        .or_else(|| ids.iter().position(|&id| id == victim))
        .or_else(|| changed(&epoch.samples, &delivered.samples, victim, subject.comparison()));
    if let Some(turn) = wrong {
        let is = ids.get(turn).map_or_else(|| "nothing".to_owned(), |&id| format!("sample {:?}", key(id)));
        return Err(Ended::from(Counterexample {
            epoch: Some(epoch.epoch.0),
            position: places.get(turn).map(|(position, _)| *position),
            sample: places.get(turn).map(|(_, id)| key(*id)),
            expected: Some(if places.get(turn).is_some_and(|(_, id)| *id == victim) {
                "a substitute that is named".to_owned()
            } else {
                "the same sample as without the failure".to_owned()
            }),
            found: Some(is),
            configurations: vec![strict.name.clone(), variant.name],
            ..Counterexample::of(6, "replacing a bad sample changes other samples, or the substitute is not named")
        }));
    }
    if delivered.counted != replaced as u64 {
        return Err(Ended::from(Counterexample {
            epoch: Some(epoch.epoch.0),
            expected: Some(format!("{replaced} replaced")),
            found: Some(format!("{} counted", delivered.counted)),
            ..Counterexample::of(6, "replaced bad samples are not counted correctly")
        }));
    }
    let names = stream.epochs.iter().flat_map(|epoch| &epoch.replaced).map(|replaced| &*replaced.bad);
    let own = match names.collect::<HashSet<&str>>().len() {
        0 => "no sample of the data is bad".to_owned(),
        1 => "1 sample of the data is bad, replaced and named".to_owned(),
        bad => format!("{bad} samples of the data are bad, replaced and named"),
    };
    Ok(format!("a sample made to fail is named when it raises, and named and counted when replaced; {own}"))
}

/// The first turn with different bytes, apart from the bad sample and substitutes.
fn changed(
    before: &[DeliveredSample],
    after: &[DeliveredSample],
    victim: SampleId,
    comparison: Comparison,
) -> Option<usize> {
    let turns = before.iter().zip(after).enumerate();
    let mut own = turns.filter(|(_, (before, after))| before.id != victim && before.id == after.id);
    let differs = |(before, after): (&DeliveredSample, &DeliveredSample)| {
        first_difference(std::slice::from_ref(before), std::slice::from_ref(after), comparison).is_some()
    };
    own.find(|(_, pair)| differs(*pair)).map(|(turn, _)| turn)
}

/// Runs until a bad sample raises. All batches before it must be delivered, and the error must name it.
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
    // The samples that were replaced in the reference are bad too.
    let is_bad =
        |(_, request): &(Place, SampleRequest), seen: &DeliveredSample| request.id == victim || request.id != seen.id;
    let bad: Vec<bool> = expected.iter().zip(before).map(|(should, is)| is_bad(should, is)).collect();
    let first = bad.iter().position(|is_bad| *is_bad).unwrap_or_default();
    let batch_size = raising.settings.batch_size;
    // Rounded down to a batch: batches are delivered whole, so the error replaces the batch of the first bad sample.
    let begin = first / batch_size * batch_size;
    // The error must name a bad sample of the first bad batch, and exactly the batches before it must have been delivered.
    let is_right = failure.as_ref().is_ok_and(|failure| {
        // If a batch has several bad samples, any of them may fail first.
        let in_batch = expected.iter().zip(&bad).skip(begin).take(batch_size);
        let is_named = in_batch.into_iter().any(|((_, request), is_bad)| *is_bad && request.id == failure.id);
        // The victim fails in the probe op. Other bad samples fail in ops of the plan.
        let is_probe = failure.id != victim || failure.op.as_deref() == Some(probe::NAME);
        let came_before =
            ids.len() == begin && ids.iter().zip(before).all(|(id, seen)| id.cast_unsigned() == seen.id.0);
        is_named && is_probe && failure.key == subject.key(failure.id) && came_before
    });
    let found = failure.map_or_else(|text| text, |failure| chain(&*failure));
    let (place, request) = expected[first];
    if is_right {
        return Ok(());
    }
    Err(Ended::from(Counterexample {
        epoch: Some(request.epoch.0),
        position: Some(place.position.0),
        sample: Some(subject.key(request.id)),
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
            assert_eq!(first_unexplained(&places, &found, named, &key), expected);
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
            assert_eq!(changed(&before, after, SampleId(1), Comparison::Bytes), expected);
        };
        check(&[seen(0, 1), seen(2, 1), seen(2, 1)], None);
        check(&[seen(0, 1), seen(2, 1), seen(2, 9)], Some(2));
    }
}
