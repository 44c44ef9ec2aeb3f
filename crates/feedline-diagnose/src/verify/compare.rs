//! Two streams that must not differ, and where they do.

use std::collections::{HashMap, HashSet};

use feedline_order::{Epoch, EpochPath, SampleId, ShareIndex, Turn};

use super::content::{Content, Sides};
use super::report::Counterexample;
use super::stream::{At, Begin, DeliveredSample, EpochStream, Stream, contents_at};
use super::subject::{Subject, Variant, VerifyError};

/// How often a place that differs is run again for its bytes.
const ATTEMPTS: usize = 3;

/// What is compared of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// Which they are.
    AtIds,
    /// Also their bytes.
    AtBytes,
}

/// Two configurations that must deliver the same stream, and what is wrong if they do not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    /// The law that is broken then.
    pub law: u8,
    pub problem: &'a str,
    pub expected: &'a Variant,
    pub found: &'a Variant,
    /// The names of the fields that are delivered.
    pub fields: &'a [std::sync::Arc<str>],
}

/// Where two streams differ first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamDifference {
    pub epoch: Epoch,
    pub difference: Difference,
}

/// Where two sequences of samples differ first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Another sample comes at a turn, or none on one of the sides.
    Sample {
        /// The turn.
        turn: usize,
        /// What should come.
        expected: Option<SampleId>,
        /// What comes.
        found: Option<SampleId>,
    },
    /// The sample is the same, but not the bytes of a field.
    Field {
        /// Its turn in the first sequence.
        turn: usize,
        /// The sample.
        id: SampleId,
        /// The number of the field.
        field: usize,
    },
}

/// Compares samples that should come in the same order.
pub(super) fn first_difference(
    expected: &[DeliveredSample],
    found: &[DeliveredSample],
    looks: Looks,
) -> Option<Difference> {
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
        if let (Some(one), Some(other), Looks::AtBytes) = (one, other, looks)
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

/// Compares the samples that both have, in whatever order they come; those that are `repeated` have no name of their own.
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
    /// What can be compared.
    pub(super) fn looks(&self) -> Looks {
        if self.unstable.is_some() { Looks::AtIds } else { Looks::AtBytes }
    }

    /// Compares all epochs, in order.
    pub(super) fn differ(&self, expected: &Stream, found: &Stream) -> Option<StreamDifference> {
        let mut pairs = expected.epochs.iter().zip(&found.epochs);
        pairs.find_map(|(one, other)| {
            let difference = first_difference(&one.samples, &other.samples, self.looks())?;
            Some(StreamDifference { epoch: one.epoch, difference })
        })
    }

    /// Compares all epochs, sample by sample.
    pub(super) fn differ_by_sample(&self, expected: &Stream, found: &Stream) -> Option<StreamDifference> {
        if self.looks() == Looks::AtIds {
            return None;
        }
        let mut pairs = expected.epochs.iter().zip(&found.epochs);
        let one_epoch = |(one, other): (&EpochStream, &EpochStream)| {
            let difference = difference_by_sample(&one.samples, &other.samples, &self.repeated(one.epoch))?;
            Some(StreamDifference { epoch: one.epoch, difference })
        };
        pairs.find_map(one_epoch)
    }

    /// A difference between two configurations, with the bytes of both sides.
    pub(super) fn explain(&self, pair: &Pair<'_>, at: StreamDifference) -> Result<Counterexample, VerifyError> {
        let mut counterexample = self.located(pair, at);
        if let Difference::Field { turn, id, field } = at.difference {
            let (expected, found) = (pair.expected, pair.found);
            let order = |variant: &Variant| (variant.settings.order, variant.settings.max_displacement);
            let is_same_order = order(expected) == order(found) && expected.is_predetermined();
            let place = if is_same_order { At::Turn(turn as u64) } else { At::Sample(id) };
            match self.both_sides(pair, at.epoch, place, field)? {
                Some(sides) => counterexample.differ_at(sides),
                None => counterexample.problem += " (once: run again, they are the same)",
            }
        }
        Ok(counterexample)
    }

    /// The place of a difference between two configurations, without the bytes there.
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

    /// Runs a place in two configurations until they differ, a few times.
    fn both_sides(&self, pair: &Pair<'_>, epoch: Epoch, place: At, field: usize) -> Result<Option<Sides>, VerifyError> {
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

    /// The position in the epoch of what a configuration delivers at `turn`.
    pub(super) fn position_of(&self, variant: &Variant, epoch: Epoch, turn: u64) -> u64 {
        let share = self.plan.share(0);
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
        let check = |found: &[DeliveredSample], looks, difference| {
            assert_eq!(first_difference(&expected, found, looks), difference);
        };
        check(&expected.clone(), Looks::AtBytes, None);
        let other_bytes = [seen(3, 1), seen(4, 9), seen(7, 9)];
        check(&other_bytes, Looks::AtBytes, Some(Difference::Field { turn: 1, id: SampleId(4), field: 1 }));
        let other_sample = Difference::Sample { turn: 2, expected: Some(SampleId(5)), found: Some(SampleId(7)) };
        check(&other_bytes, Looks::AtIds, Some(other_sample));
        let missing = Difference::Sample { turn: 2, expected: Some(SampleId(5)), found: None };
        check(&expected[..2], Looks::AtBytes, Some(missing));
        let padded = DeliveredSample { is_padding: true, ..seen(3, 1) };
        let marked = Difference::Sample { turn: 0, expected: Some(SampleId(3)), found: Some(SampleId(3)) };
        check(&[padded, seen(4, 2), seen(5, 3)], Looks::AtIds, Some(marked));
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
