//! Law 4 in arrival order: after a resume exactly the undelivered samples come, each once.

use feedline_order::SampleId;

use super::compare::{Comparison, Pair, StreamDifference, difference_by_sample};
use super::displacement::displaced;
use super::report::{Checked, Counterexample, Ended};
use super::resume::{Resumed, prepared_twice, repeated, resumed, stopped, variants};
use super::stream::DeliveredSample;
use super::subject::Subject;
use super::values::References;

/// Stops after `place` batches, and resumes.
pub(super) fn check_at(subject: &Subject<'_>, references: &References, place: u64) -> Checked<()> {
    let (strict, reference) = references.strict();
    let (first, second) = variants(&subject.own(), place);
    let stopped = stopped(subject, &first, place)?;
    let remaining = subject.batches() - place;
    if remaining == 0 {
        return Ok(());
    }
    let most = if subject.sees_all() { u64::MAX } else { remaining };
    let Resumed { rest, plan, probe } = resumed(subject, &second, &stopped, most)?;
    let delivered = &stopped.delivered;
    let epoch = delivered.epoch;
    let all: Vec<DeliveredSample> = delivered.samples.iter().chain(&rest.samples).cloned().collect();
    let bound = subject.plan.max_displacement();
    // Up to `bound` samples further in the sequence may have come early.
    let expected = subject.sequence(epoch, (all.len() as u64).saturating_add(bound).saturating_add(1));
    let expected: Vec<_> = expected.iter().map(|(place, request)| (request.id, place.is_padding)).collect();
    let names = vec![first.name, second.name.clone()];
    if delivered.counted + rest.counted == 0
        && let Some(turn) = not_once(&expected, &all)
    {
        return Err(Ended::from(Counterexample {
            epoch: Some(epoch.0),
            sample: Some(subject.key(all[turn].id)),
            configurations: names,
            ..Counterexample::of(
                4,
                "after a resume in arrival order a sample comes that was delivered before, or that cannot come yet",
            )
        }));
    }
    if subject.sees_all() && all.len() != expected.len() {
        return Err(Ended::from(Counterexample {
            epoch: Some(epoch.0),
            expected: Some(format!("{} samples", expected.len())),
            found: Some(format!("{} samples", all.len())),
            configurations: names,
            ..Counterexample::of(4, "after a resume in arrival order the rest of the epoch is not complete")
        }));
    }
    let again =
        prepared_twice(subject, &delivered.samples, &rest.samples, |request| probe.has_prepared(&plan, request));
    if let Some(id) = again.filter(|_| delivered.counted + rest.counted == 0) {
        return Err(repeated(subject, id, names).into());
    }
    if subject.comparison() == Comparison::Bytes
        && let Some(difference) = difference_by_sample(&reference.epochs[0].samples, &all, &subject.repeated(epoch))
    {
        let problem = "after a resume a sample has other bytes";
        let pair = Pair { law: 4, problem, expected: strict, found: &second, fields: &reference.fields };
        return Err(subject.located(&pair, StreamDifference { epoch, difference }).into());
    }
    Ok(())
}

/// The first sample that came too often, or that could not come yet.
fn not_once(expected: &[(SampleId, bool)], all: &[DeliveredSample]) -> Option<usize> {
    let found: Vec<_> = all.iter().map(|seen| (seen.id, seen.is_padding)).collect();
    displaced(expected, &found).iter().position(|displaced| displaced.number.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ids: &[u64]) -> Vec<DeliveredSample> {
        ids.iter().map(|&id| DeliveredSample { id: SampleId(id), is_padding: false, digests: Vec::new() }).collect()
    }

    #[test]
    fn law_4_in_arrival_order_what_was_delivered_does_not_come_again() {
        let expected: Vec<_> = (0..4).map(|id| (SampleId(id), false)).collect();
        assert_eq!(not_once(&expected, &seen(&[1, 0, 3, 2])), None);
        assert_eq!(not_once(&expected, &seen(&[1, 0, 3, 1])), Some(3));
        assert_eq!(not_once(&expected, &seen(&[1, 0, 9, 2])), Some(2));
    }
}
