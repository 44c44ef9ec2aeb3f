//! The order of a plan's samples: source order, a full shuffle, a reservoir, rounds of segments, or a sampler.
//!
//! In: an epoch and a position. Out: a [`Visit`]. Dividing positions among ranks is *not* done here: see [`super::Share`].

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::random::{Purpose, StreamKey, below};
use super::sampler::{self, AliasTable, Drawn};
use super::{
    Epoch, Occurrence, Ordinal, Permutation, Position, Reservoir, ReservoirEpoch, SampleId, Sampler, Seed, Segments,
    Share, ShareIndex,
};

/// Number of epochs whose weighted draws are kept. A run prepares samples of the next epoch before the current one ends.
const KEPT_EPOCHS: usize = 2;
/// For reservoirs: as many epochs are kept as have `KEPT_POSITIONS` positions together, within these two limits. A run may look
/// across the ends of many short epochs.
const MIN_RESERVOIRS: u64 = 3;
const MAX_RESERVOIRS: u64 = 1024;
const KEPT_POSITIONS: u64 = 1 << 17;

/// A visit of a sample: its ordinal, and how often it came before in the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The place of the sample in the source's list.
    pub ordinal: Ordinal,
    /// How often the sampler gave it earlier in the epoch.
    pub occurrence: Occurrence,
}

/// The visits of every epoch.
#[derive(Debug)]
pub struct Sequence {
    seed: Seed,
    rule: Rule,
}

#[derive(Debug)]
enum Rule {
    InOrder { len: u64 },
    Shuffled { len: u64 },
    Reservoir { rule: Reservoir, found: Mutex<VecDeque<(Epoch, Arc<ReservoirEpoch>)>> },
    Segmented(Segments),
    Listed(Arc<Drawn>),
    Weighted { table: AliasTable, len: u64, drawn: Mutex<VecDeque<(Epoch, Arc<Drawn>)>> },
}

/// Why a sampler does not fit its source.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SamplerError {
    #[error("sampler names sample {id}, which the source of {len} samples does not have")]
    UnknownId { id: u64, len: u64 },
    #[error("sampler has {weights} weights, but the source has {len} samples")]
    WeightCount { weights: usize, len: u64 },
    #[error("weight {number} of the sampler is {weight}; weights are finite, not negative, and not all zero")]
    BadWeight { number: usize, weight: f64 },
    #[error("class_balanced needs a source with classes, but sample {} has no class", ordinal.0)]
    NoClasses { ordinal: Ordinal },
    #[error("sampler is empty: it names no sample")]
    Empty,
}

impl Sequence {
    /// `len` samples in source order.
    pub fn in_order(seed: Seed, len: u64) -> Self {
        Self { seed, rule: Rule::InOrder { len } }
    }

    /// `len` samples, shuffled differently in each epoch.
    pub fn shuffled(seed: Seed, len: u64) -> Self {
        Self { seed, rule: Rule::Shuffled { len } }
    }

    /// Rounds of segments. Here an epoch is a round.
    pub fn segmented(seed: Seed, segments: Segments) -> Self {
        Self { seed, rule: Rule::Segmented(segments) }
    }

    /// Samples drawn from a reservoir that is filled in sequence.
    pub fn through(seed: Seed, rule: Reservoir) -> Self {
        Self { seed, rule: Rule::Reservoir { rule, found: Mutex::default() } }
    }

    /// The reservoir, if there is one.
    pub fn reservoir(&self) -> Option<&Reservoir> {
        match &self.rule {
            Rule::Reservoir { rule, .. } => Some(rule),
            _ => None,
        }
    }

    /// The segments, if the data is produced in rounds.
    pub fn segments(&self) -> Option<&Segments> {
        match &self.rule {
            Rule::Segmented(segments) => Some(segments),
            _ => None,
        }
    }

    /// A sampler's sequence over a source of `len` samples. `ordinal_of` maps an id to its ordinal, `class_of` an ordinal to its
    /// class.
    pub fn sampled(
        seed: Seed,
        sampler: &Sampler,
        len: u64,
        ordinal_of: impl Fn(SampleId) -> Option<Ordinal>,
        class_of: impl Fn(Ordinal) -> Option<i64>,
    ) -> Result<Self, SamplerError> {
        let rule = match sampler {
            Sampler::List { indices: ids } => {
                let ordinals: Result<Vec<Ordinal>, SamplerError> =
                    ids.iter().map(|&id| ordinal_of(SampleId(id)).ok_or(SamplerError::UnknownId { id, len })).collect();
                Rule::Listed(Arc::new(sampler::counted(ordinals?.into_iter(), len)))
            }
            Sampler::Weighted { weights, num_samples } => {
                if weights.len() as u64 != len {
                    return Err(SamplerError::WeightCount { weights: weights.len(), len });
                }
                Rule::weighted(weights, num_samples.unwrap_or(len))?
            }
            Sampler::ClassBalanced { num_samples } => {
                let classes: Result<Vec<i64>, SamplerError> = (0..len)
                    .map(Ordinal)
                    // Label -1 means that a sample has no class.
                    .map(|ordinal| class_of(ordinal).filter(|&c| c >= 0).ok_or(SamplerError::NoClasses { ordinal }))
                    .collect();
                Rule::weighted(&balanced_weights(&classes?), num_samples.unwrap_or(len))?
            }
        };
        let sequence = Self { seed, rule };
        if sequence.is_empty() { Err(SamplerError::Empty) } else { Ok(sequence) }
    }

    /// Number of visits per epoch.
    pub fn len(&self) -> u64 {
        match &self.rule {
            Rule::InOrder { len } | Rule::Shuffled { len } | Rule::Weighted { len, .. } => *len,
            Rule::Segmented(segments) => segments.samples(),
            Rule::Listed(drawn) => drawn.len() as u64,
            Rule::Reservoir { rule, .. } => rule.blocks.samples(),
        }
    }

    /// Whether an epoch has no visits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The visits of one epoch. For many lookups.
    pub fn epoch(&self, epoch: Epoch) -> EpochSequence {
        match &self.rule {
            Rule::InOrder { .. } => EpochSequence::InOrder,
            Rule::Shuffled { len } => {
                EpochSequence::Shuffled(Permutation::new(StreamKey::new(self.seed, epoch, Purpose::Shuffle), *len))
            }
            Rule::Segmented(segments) => EpochSequence::Segmented(segments.clone(), epoch),
            Rule::Listed(drawn) => EpochSequence::Drawn(Arc::clone(drawn)),
            Rule::Reservoir { rule, found } => {
                let most = (KEPT_POSITIONS / self.len().max(1)).clamp(MIN_RESERVOIRS, MAX_RESERVOIRS);
                EpochSequence::Reservoir(cached(found, most as usize, epoch, || rule.epoch(self.seed, epoch)))
            }
            Rule::Weighted { table, len, drawn } => {
                EpochSequence::Drawn(cached(drawn, KEPT_EPOCHS, epoch, || table.draw(*len, self.seed, epoch)))
            }
        }
    }

    /// A position to substitute for a bad sample: in the same rank's share or, with segments, in the same segment (anywhere if
    /// segments are short). A pure function of its arguments.
    pub fn substitute(&self, share: &Share, epoch: Epoch, position: Position, attempt: u32) -> Position {
        if let Rule::Segmented(segments) = &self.rule {
            return segments.substitute(epoch, position, attempt);
        }
        let key = StreamKey::new(self.seed, epoch, Purpose::Substitute);
        share.place(ShareIndex(below(key.bits(position.0, 0, attempt), share.samples()))).position
    }
}

impl Rule {
    fn weighted(weights: &[f64], len: u64) -> Result<Self, SamplerError> {
        if let Some((number, &weight)) = weights.iter().enumerate().find(|(_, w)| !w.is_finite() || **w < 0.0) {
            return Err(SamplerError::BadWeight { number, weight });
        }
        let sum: f64 = weights.iter().sum();
        // All weights are zero, or their sum overflows.
        if !(sum > 0.0 && sum.is_finite()) {
            return Err(SamplerError::BadWeight { number: 0, weight: weights.first().copied().unwrap_or_default() });
        }
        Ok(Self::Weighted { table: AliasTable::new(weights), len, drawn: Mutex::default() })
    }
}

/// Returns the kept value of an epoch, computing it if necessary. Keeps at most `most` epochs.
fn cached<T>(cache: &Mutex<VecDeque<(Epoch, Arc<T>)>>, most: usize, epoch: Epoch, make: impl FnOnce() -> T) -> Arc<T> {
    let mut kept = cache.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = kept.iter().find(|(of, _)| *of == epoch) {
        return Arc::clone(found);
    }
    // The lock is held meanwhile: other threads would need the same epoch and compute it again.
    let fresh = Arc::new(make());
    // The oldest entries are at the end.
    kept.truncate(most - 1);
    kept.push_front((epoch, Arc::clone(&fresh)));
    fresh
}

fn balanced_weights(classes: &[i64]) -> Vec<f64> {
    let mut counts = std::collections::HashMap::new();
    for class in classes {
        *counts.entry(class).or_insert(0u64) += 1;
    }
    classes.iter().map(|class| 1.0 / counts[class] as f64).collect()
}

/// The visits of one epoch.
#[derive(Clone, Debug)]
pub enum EpochSequence {
    /// The source's order.
    InOrder,
    /// A keyed permutation.
    Shuffled(Permutation),
    /// Draws from a reservoir.
    Reservoir(Arc<ReservoirEpoch>),
    /// A round of segments.
    Segmented(Segments, Epoch),
    /// A sampler's draws.
    Drawn(Arc<Vec<(Ordinal, Occurrence)>>),
}

impl EpochSequence {
    /// The visits at some positions. Faster than [`EpochSequence::at`] for each if the epoch is shuffled.
    pub fn each_at(&self, positions: impl Iterator<Item = Position>) -> Vec<Visit> {
        match self {
            Self::Shuffled(permutation) => {
                let mut numbers: Vec<u64> = positions.map(|position| position.0).collect();
                permutation.each_at(&mut numbers);
                let visit = |number| Visit { ordinal: Ordinal(number), occurrence: Occurrence(0) };
                numbers.into_iter().map(visit).collect()
            }
            _ => positions.map(|position| self.at(position)).collect(),
        }
    }

    /// The visit at `position`.
    pub fn at(&self, position: Position) -> Visit {
        match self {
            Self::InOrder => Visit { ordinal: Ordinal(position.0), occurrence: Occurrence(0) },
            Self::Shuffled(permutation) => {
                Visit { ordinal: Ordinal(permutation.at(position.0)), occurrence: Occurrence(0) }
            }
            Self::Reservoir(reservoir) => Visit { ordinal: reservoir.ordinal_at(position), occurrence: Occurrence(0) },
            Self::Segmented(segments, round) => {
                Visit { ordinal: segments.at(*round, position), occurrence: Occurrence(0) }
            }
            Self::Drawn(drawn) => {
                let (ordinal, occurrence) = drawn[position.0 as usize];
                Visit { ordinal, occurrence }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(sampler: &Sampler, classes: &[i64]) -> Result<Sequence, SamplerError> {
        let len = classes.len() as u64;
        let ordinal_of = |SampleId(id)| (id < len).then_some(Ordinal(id));
        Sequence::sampled(Seed(1), sampler, len, ordinal_of, |ordinal| classes.get(ordinal.0 as usize).copied())
    }

    #[test]
    fn a_list_is_the_epoch_repeats_included() {
        let sequence = sampled(&Sampler::List { indices: vec![2, 0, 2] }, &[0, 0, 0]).unwrap();
        let epoch = sequence.epoch(Epoch(5));
        let visits: Vec<(u64, u32)> =
            (0..3).map(|p| epoch.at(Position(p))).map(|v| (v.ordinal.0, v.occurrence.0)).collect();
        assert_eq!(visits, [(2, 0), (0, 0), (2, 1)]);
    }

    #[test]
    fn class_balanced_draws_a_rare_class_as_often_as_a_common_one() {
        let mut classes = vec![0; 900];
        classes.extend([1; 100]);
        let sequence = sampled(&Sampler::ClassBalanced { num_samples: Some(10_000) }, &classes).unwrap();
        let epoch = sequence.epoch(Epoch(0));
        let rare = (0..10_000).filter(|&p| epoch.at(Position(p)).ordinal.0 >= 900).count();
        assert!((rare as f64 / 10_000.0 - 0.5).abs() < 0.03, "{rare} of 10000");
    }

    #[test]
    fn a_sampler_that_does_not_fit_is_refused_by_name() {
        let check = |sampler: Sampler, words: &str| {
            let text = sampled(&sampler, &[0, -1]).unwrap_err().to_string();
            assert!(text.contains(words), "{text}");
        };
        check(Sampler::List { indices: vec![0, 7] }, "names sample 7");
        check(Sampler::List { indices: vec![] }, "empty");
        check(Sampler::Weighted { weights: vec![1.0], num_samples: None }, "1 weights");
        check(Sampler::Weighted { weights: vec![1.0, f64::NAN], num_samples: None }, "weight 1");
        check(Sampler::Weighted { weights: vec![0.0, 0.0], num_samples: None }, "not all zero");
        check(Sampler::ClassBalanced { num_samples: None }, "sample 1 has no class");
    }
}
