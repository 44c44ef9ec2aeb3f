//! Finds the first place where two streams differ that must be equal.

use std::collections::{HashMap, HashSet};

use feedline_order::{Epoch, EpochPath, SampleId, ShareIndex, Turn};

use super::content::{Content, Sides};
use super::report::Counterexample;
use super::stream::{At, Begin, DeliveredSample, EpochStream, Stream, contents_at};
use super::subject::{Subject, Variant, VerifyError};

/// Upper limit of runs to reproduce a difference and get its bytes.
const ATTEMPTS: usize = 3;

/// How much of the samples is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Only which samples they are.
    Ids,
    /// Also their bytes.
    Bytes,
}

/// Two configurations that must deliver the same stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    /// The law that is broken if they do not.
    pub law: u8,
    /// What is wrong then, in words.
    pub problem: &'a str,
    pub expected: &'a Variant,
    pub found: &'a Variant,
    /// The names of the delivered fields.
    pub fields: &'a [std::sync::Arc<str>],
}

/// The first difference between two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamDifference {
    pub epoch: Epoch,
    pub difference: Difference,
}

/// The first difference between two sequences of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Different samples at the same turn, or no sample on one side.
    Sample {
        /// The turn.
        turn: usize,
        /// The expected sample. `None` if the sequence should have ended.
        expected: Option<SampleId>,
        /// The delivered sample. `None` if the sequence has ended.
        found: Option<SampleId>,
    },
    /// The same sample with different bytes in a field.
    Field {
        /// Its turn in the expected sequence.
        turn: usize,
        /// The sample.
        id: SampleId,
        /// The index of the field in the stream's fields.
        field: usize,
    },
}

/// Compares two sequences that must have the same order.
pub(super) fn first_difference(
    expected: &[DeliveredSample],
    found: &[DeliveredSample],
    comparison: Comparison,
) -> Option<Difference> {
    // Padding repeats a sample, so its mark is part of the identity.
    let id = |seen: Option<&DeliveredSample>| seen.map(|seen| (seen.id, seen.is_padding));
    for turn in 0..expected.len().max(found.len()) {
        let (one, other) = (expected.get(turn), found.get(turn));
        if id(one) != id(other) {
            return Some(Difference::Sample {
                turn,
                expected: one.map(|seen| seen.id),
                found: other.map(|seen| seen.id),
            });
        }
        if let (Some(one), Some(other), Comparison::Bytes) = (one, other, comparison)
            && let Some(field) = first_field(one, other)
        {
            return Some(Difference::Field { turn, id: one.id, field });
        }
    }
    None
}

fn first_field(one: &DeliveredSample, other: &DeliveredSample) -> Option<usize> {
    let fields = one.digests.len().max(other.digests.len());
    (0..fields).find(|&field| one.digests.get(field) != other.digests.get(field))
}

/// Compares the samples that both sequences contain, in any order. Leaves out `repeated` samples: a sampler gives them several
/// times, with different draws, so their id does not identify one of them.
pub(super) fn difference_by_sample(
    expected: &[DeliveredSample],
    found: &[DeliveredSample],
    repeated: &HashSet<SampleId>,
) -> Option<Difference> {
    let known: HashMap<SampleId, usize> = expected.iter().enumerate().map(|(turn, seen)| (seen.id, turn)).collect();
    found.iter().filter(|seen| !repeated.contains(&seen.id)).find_map(|seen| {
        let turn = *known.get(&seen.id)?;
        let field = first_field(&expected[turn], seen)?;
        Some(Difference::Field { turn, id: seen.id, field })
    })
}

impl Subject<'_> {
    /// How much can be compared: only ids if an op or the source gives other bytes each time.
    pub(super) fn comparison(&self) -> Comparison {
        if self.unstable.is_some() { Comparison::Ids } else { Comparison::Bytes }
    }

    /// Compares all epochs, turn by turn.
    pub(super) fn differ(&self, expected: &Stream, found: &Stream) -> Option<StreamDifference> {
        let mut pairs = expected.epochs.iter().zip(&found.epochs);
        pairs.find_map(|(one, other)| {
            let difference = first_difference(&one.samples, &other.samples, self.comparison())?;
            Some(StreamDifference { epoch: one.epoch, difference })
        })
    }

    /// Compares the bytes of the samples of all epochs, whatever their order. `None` if bytes cannot be compared.
    pub(super) fn differ_by_sample(&self, expected: &Stream, found: &Stream) -> Option<StreamDifference> {
        if self.comparison() == Comparison::Ids {
            return None;
        }
        let mut pairs = expected.epochs.iter().zip(&found.epochs);
        let one_epoch = |(one, other): (&EpochStream, &EpochStream)| {
            let difference = difference_by_sample(&one.samples, &other.samples, &self.repeated(one.epoch))?;
            Some(StreamDifference { epoch: one.epoch, difference })
        };
        pairs.find_map(one_epoch)
    }

    /// The counterexample for a difference, with the bytes of both sides. It runs both configurations again to get the bytes.
    pub(super) fn explain(&self, pair: &Pair<'_>, at: StreamDifference) -> Result<Counterexample, VerifyError> {
        let mut counterexample = self.located(pair, at);
        if let Difference::Field { turn, id, field } = at.difference {
            let (expected, found) = (pair.expected, pair.found);
            let order = |variant: &Variant| (variant.settings.order, variant.settings.max_displacement);
            let is_same_order = order(expected) == order(found) && expected.is_predetermined();
            // In the same order the turn identifies the sample. Otherwise it has to be searched by its id.
            let place = if is_same_order { At::Turn(turn as u64) } else { At::Sample(id) };
            match self.both_sides(pair, at.epoch, place, field)? {
                Some(sides) => counterexample.differ_at(sides),
                None => counterexample.problem += " (seen once; they were equal when run again)",
            }
        }
        Ok(counterexample)
    }

    /// The counterexample for a difference, without the bytes.
    pub(super) fn located(&self, pair: &Pair<'_>, at: StreamDifference) -> Counterexample {
        let name =
            |id: Option<SampleId>| id.map_or_else(|| "no sample".to_owned(), |id| format!("sample {:?}", self.key(id)));
        let (turn, sample, field, sides) = match at.difference {
            Difference::Sample { turn, expected, found } => {
                (turn, expected.or(found), None, Some((name(expected), name(found))))
            }
            Difference::Field { turn, id, field } => (turn, Some(id), pair.fields.get(field), None),
        };
        let (expected, found) = sides.unzip();
        Counterexample {
            epoch: Some(at.epoch.0),
            position: Some(self.position_of(pair.expected, at.epoch, turn as u64)),
            sample: sample.map(|id| self.key(id)),
            field: field.map(ToString::to_string),
            expected,
            found,
            configurations: vec![pair.expected.name.clone(), pair.found.name.clone()],
            ..Counterexample::of(pair.law, pair.problem)
        }
    }

    /// Runs both configurations up to a place until their bytes differ there, a few times. `None` if they never do.
    fn both_sides(&self, pair: &Pair<'_>, epoch: Epoch, place: At, field: usize) -> Result<Option<Sides>, VerifyError> {
        // A difference that depends on timing may not show in every run.
        for _ in 0..ATTEMPTS {
            let one: Vec<Content<'_>> = contents_at(self, pair.expected, Begin::Epoch(epoch), place)?;
            let other = contents_at(self, pair.found, Begin::Epoch(epoch), place)?;
            if let (Some(one), Some(other)) = (one.get(field), other.get(field))
                && let Some(difference) = one.first_difference(other)
            {
                return Ok(Some(difference));
            }
        }
        Ok(None)
    }

    /// The position in the epoch of the sample that a configuration delivers at `turn`.
    pub(super) fn position_of(&self, variant: &Variant, epoch: Epoch, turn: u64) -> u64 {
        let share = self.plan.share(0);
        // Beyond the end of the epoch there is no position. The turn is the best description.
        if turn >= share.samples() {
            return turn;
        }
        let is_own = variant.settings.order == self.plan.settings().order;
        let epoch_path = EpochPath { epoch, share, rest: None };
        if is_own {
            self.plan.place(&epoch_path, Turn(turn)).position.0
        } else {
            share.place(ShareIndex(turn)).position.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(id: u64, digest: u128) -> DeliveredSample {
        DeliveredSample { id: SampleId(id), is_padding: false, digests: vec![0, digest] }
    }

    #[test]
    fn the_first_of_several_differences_is_found() {
        let expected = [seen(3, 1), seen(4, 2), seen(5, 3)];
        let check = |found: &[DeliveredSample], comparison, difference| {
            assert_eq!(first_difference(&expected, found, comparison), difference);
        };
        check(&expected.clone(), Comparison::Bytes, None);
        let other_bytes = [seen(3, 1), seen(4, 9), seen(7, 9)];
        check(&other_bytes, Comparison::Bytes, Some(Difference::Field { turn: 1, id: SampleId(4), field: 1 }));
        let other_sample = Difference::Sample { turn: 2, expected: Some(SampleId(5)), found: Some(SampleId(7)) };
        check(&other_bytes, Comparison::Ids, Some(other_sample));
        let missing = Difference::Sample { turn: 2, expected: Some(SampleId(5)), found: None };
        check(&expected[..2], Comparison::Bytes, Some(missing));
        let padded = DeliveredSample { is_padding: true, ..seen(3, 1) };
        let marked = Difference::Sample { turn: 0, expected: Some(SampleId(3)), found: Some(SampleId(3)) };
        check(&[padded, seen(4, 2), seen(5, 3)], Comparison::Ids, Some(marked));
    }

    #[test]
    fn sample_by_sample_order_is_of_no_matter_and_bytes_are() {
        let expected = [seen(3, 1), seen(4, 2)];
        let check = |found: &[DeliveredSample], repeated: &[u64], difference| {
            let repeated = repeated.iter().copied().map(SampleId).collect();
            assert_eq!(difference_by_sample(&expected, found, &repeated), difference);
        };
        check(&[seen(4, 2), seen(8, 8), seen(3, 1)], &[], None);
        check(&[seen(4, 9), seen(3, 1)], &[], Some(Difference::Field { turn: 1, id: SampleId(4), field: 1 }));
        check(&[seen(4, 9), seen(3, 1)], &[4], None);
    }
}
