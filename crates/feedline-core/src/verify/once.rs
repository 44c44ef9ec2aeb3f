//! Law 2: over all ranks each sample comes once an epoch, but for what is named: padding, and what is dropped at the end.
//!
//! Only numbers of samples are looked at here: the engine runs with nothing to load, so whole epochs of large sets are quick.

use std::collections::HashMap;

use super::report::{Counterexample, Outcome};
use super::subject::{Subject, Variant, VerifyError};
use super::values::Looked;
use crate::order::{Epoch, Position, SampleId};
use crate::plan::{Order, Workers};

/// Numbers of ranks that share an epoch.
const WORLDS: [u32; 3] = [1, 2, 3];

/// How often samples are to come in an epoch, by their places in the source.
#[derive(Clone, Debug)]
pub enum Expected {
    /// Each of so many once.
    Each(u64),
    /// As often as a sampler says.
    Counted(HashMap<u64, u32>),
}

impl Expected {
    fn times(&self, ordinal: u64) -> u32 {
        match self {
            Self::Each(samples) => u32::from(ordinal < *samples),
            Self::Counted(counts) => counts.get(&ordinal).copied().unwrap_or(0),
        }
    }

    fn all(&self) -> u64 {
        match self {
            Self::Each(samples) => *samples,
            Self::Counted(counts) => counts.values().copied().map(u64::from).sum(),
        }
    }

    /// Places at which something is to come.
    fn places(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Self::Each(samples) => Box::new(0..*samples),
            Self::Counted(counts) => Box::new(counts.keys().copied()),
        }
    }
}

/// Counts the samples of an epoch: those that came take memory, the others do not.
#[derive(Clone, Debug)]
pub struct Once {
    expected: Expected,
    found: HashMap<u64, u32>,
    padding: u64,
}

/// What is wrong with the samples of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A sample comes that the source does not have.
    Unknown,
    /// A sample comes too often.
    TooOften {
        /// Its place in the source.
        ordinal: u64,
        /// How often it came.
        times: u32,
    },
    /// Other than as many samples as can be dropped are missing; the first of them.
    Missing {
        /// Its place in the source.
        ordinal: u64,
        /// How many are missing.
        missing: u64,
        /// How many may be.
        dropped: u64,
    },
    /// Other than as many samples as are needed fill up batches.
    Padding {
        /// How many do.
        found: u64,
        /// How many are needed.
        expected: u64,
    },
}

impl Once {
    /// An epoch of which nothing has come.
    pub fn new(expected: Expected) -> Self {
        Self { expected, found: HashMap::new(), padding: 0 }
    }

    /// Counts the sample at a place of the source, if it has one.
    pub fn add(&mut self, ordinal: Option<u64>, is_padding: bool) -> Result<(), Fault> {
        let ordinal = ordinal.ok_or(Fault::Unknown)?;
        if is_padding {
            self.padding += 1;
            return if self.expected.times(ordinal) > 0 { Ok(()) } else { Err(Fault::Unknown) };
        }
        let times = self.found.entry(ordinal).or_default();
        *times += 1;
        if *times > self.expected.times(ordinal) { Err(Fault::TooOften { ordinal, times: *times }) } else { Ok(()) }
    }

    /// The epoch has ended, with so much padding and so much dropped.
    pub fn end(&self, padding: u64, dropped: u64) -> Result<(), Fault> {
        let found = |ordinal: u64| self.found.get(&ordinal).copied().unwrap_or(0);
        let missing = self.expected.all() - self.found.values().copied().map(u64::from).sum::<u64>();
        if missing != dropped {
            let lacking = self.expected.places().filter(|&place| found(place) < self.expected.times(place)).min();
            return Err(Fault::Missing { ordinal: lacking.unwrap_or_default(), missing, dropped });
        }
        if self.padding != padding {
            return Err(Fault::Padding { found: self.padding, expected: padding });
        }
        Ok(())
    }
}

/// Counts the epochs of several worlds, and what was seen.
pub(super) fn check(subject: &Subject<'_>, looked: &Looked) -> Result<Outcome, VerifyError> {
    if let Some(counterexample) = in_what_was_seen(subject, looked) {
        return Ok(Outcome::broken(counterexample));
    }
    let own = subject.plan.config().rank().world;
    let mut worlds: Vec<u32> = WORLDS.to_vec();
    if !worlds.contains(&own) {
        worlds.push(own);
    }
    let mut is_whole = true;
    for &world in &worlds {
        match in_world(subject, world)? {
            Ok(has_ended) => is_whole &= has_ended,
            Err(counterexample) => return Ok(Outcome::broken(*counterexample)),
        }
    }
    let len = subject.plan.sequence().len();
    let which = if is_whole { format!("all {len}") } else { format!("the first {} of {len}", subject.extent.ids) };
    let worlds: Vec<String> = worlds.iter().map(ToString::to_string).collect();
    let end = if subject.plan.settings().drop_last { "dropping" } else { "padding" };
    let worlds = worlds.join(", ");
    Ok(Outcome::Holds(format!("{which} samples of an epoch, over {worlds} ranks, {end} counted")))
}

/// How often each place of the source comes in an epoch.
fn expected(subject: &Subject<'_>, epoch: Epoch) -> Expected {
    if subject.plan.settings().sampler.is_none() {
        return Expected::Each(subject.plan.source().len());
    }
    let (mut counts, visits) = (HashMap::new(), subject.plan.sequence().epoch(epoch));
    for position in 0..subject.plan.sequence().len() {
        *counts.entry(visits.at(Position(position)).ordinal).or_default() += 1;
    }
    Expected::Counted(counts)
}

/// In the samples that were prepared, none comes too often; where others stand in for bad ones, law 6 counts them.
fn in_what_was_seen(subject: &Subject<'_>, looked: &Looked) -> Option<Counterexample> {
    let (variant, stream) = &looked.reference;
    for epoch in stream.epochs.iter().filter(|epoch| epoch.counted == 0) {
        let mut once = Once::new(expected(subject, epoch.epoch));
        for (turn, seen) in epoch.samples.iter().enumerate() {
            if let Err(fault) = once.add(subject.plan.source().ordinal_of(seen.id), seen.is_padding) {
                let position = subject.position_of(variant, epoch.epoch, turn as u64);
                return Some(explain(subject, fault, (epoch.epoch, Some(position)), seen.id, &variant.name));
            }
        }
    }
    None
}

/// Counts the first epoch of all ranks of a world; says whether it was looked at to its end.
fn in_world(subject: &Subject<'_>, world: u32) -> Result<Result<bool, Box<Counterexample>>, VerifyError> {
    let epoch = Epoch(0);
    let len = subject.plan.sequence().len();
    let batch_size = subject.plan.settings().batch_size as u64;
    let most = (subject.extent.ids / u64::from(world) / batch_size).max(1);
    let mut once = Once::new(expected(subject, epoch));
    let mut counts: Vec<u64> = Vec::new();
    let mut has_ended = true;
    for rank in 0..world {
        let variant = without_data(subject, rank, world);
        let loader = subject.loader(&variant)?;
        let (mut turn, mut batches, mut fault) = (0_u64, 0, None);
        has_ended &= subject.take(&loader, &variant.name, most, |batch| {
            batches += 1;
            let padded = batch.field("padded").map(crate::batch::FieldData::bytes).unwrap_or_default();
            for (slot, id) in batch.ids().into_iter().enumerate() {
                let id = SampleId(id.cast_unsigned());
                let is_padding = padded.get(slot).is_some_and(|padded| *padded != 0);
                let added = once.add(subject.plan.source().ordinal_of(id), is_padding);
                let position = turn * u64::from(world) + u64::from(rank);
                fault = fault.or(added.err().map(|fault| (fault, position, id)));
                turn += 1;
            }
        })?;
        loader.close();
        if let Some((fault, position, id)) = fault {
            let position = Some(position).filter(|_| variant.settings.order == Order::Strict);
            return Ok(Err(Box::new(explain(subject, fault, (epoch, position), id, &variant.name))));
        }
        counts.push(batches);
    }
    let name = format!("{world} ranks");
    if counts.iter().any(|count| *count != counts[0]) {
        return Ok(Err(Box::new(Counterexample {
            law: 2,
            problem: "ranks do not get equally many batches".to_owned(),
            epoch: Some(epoch.0),
            found: Some(format!("{counts:?} batches")),
            configurations: vec![name],
            ..Counterexample::default()
        })));
    }
    if has_ended {
        let (padding, dropped) = rest(len, u64::from(world), batch_size, subject.plan.settings().drop_last);
        if let Err(fault) = once.end(padding, dropped) {
            let ordinal = if let Fault::Missing { ordinal, .. } = fault { ordinal } else { 0 };
            let id = subject.plan.source().id_at(ordinal);
            return Ok(Err(Box::new(explain(subject, fault, (epoch, None), id, &name))));
        }
    }
    Ok(Ok(has_ended))
}

/// Samples that fill up the last batches of all ranks, and samples that are dropped there.
fn rest(len: u64, world: u64, batch_size: u64, drops: bool) -> (u64, u64) {
    if drops {
        (0, len - len / (world * batch_size) * world * batch_size)
    } else {
        (len.next_multiple_of(world) - len, 0)
    }
}

/// A rank of the plan that says which samples come, and loads none.
fn without_data(subject: &Subject<'_>, rank: u32, world: u32) -> Variant {
    let own = subject.own();
    let mut variant = own.with(&format!("rank {rank} of {world}, numbers only"), |settings, config| {
        settings.returns = Some(vec!["index".to_owned(), "padded".to_owned()]);
        settings.ragged = Vec::new();
        settings.costs = None;
        config.cache = None;
        (config.rank, config.world_size) = (Some(rank), Some(world));
        config.num_workers = Workers::Count(2);
    });
    // A log is of one division into ranks.
    if variant.settings.replay.take().is_some() {
        (variant.settings.order, variant.settings.max_displacement) = (Order::Strict, None);
    }
    variant.has_data = false;
    variant
}

fn explain(
    subject: &Subject<'_>,
    fault: Fault,
    (epoch, position): (Epoch, Option<u64>),
    id: SampleId,
    configuration: &str,
) -> Counterexample {
    let (problem, expected, found) = match fault {
        Fault::Unknown => (
            "a sample comes that the source does not have",
            "a sample of the source".to_owned(),
            format!("id {}", id.0),
        ),
        Fault::TooOften { times, .. } => {
            ("a sample comes more often than once", "once".to_owned(), format!("{times} times"))
        }
        Fault::Missing { missing, dropped, .. } => {
            ("a sample does not come", format!("{dropped} that do not come"), format!("{missing} that do not come"))
        }
        Fault::Padding { found, expected } => {
            ("padding is not marked as it should be", format!("{expected} marked"), format!("{found} marked"))
        }
    };
    let is_about_sample = !matches!(fault, Fault::Padding { .. });
    Counterexample {
        law: 2,
        problem: format!("{problem} ({configuration})"),
        epoch: Some(epoch.0),
        position,
        sample: is_about_sample.then(|| subject.key(id)),
        expected: Some(expected),
        found: Some(found),
        ..Counterexample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(expected: Expected, ordinals: &[u64], padding: u64, dropped: u64) -> Result<(), Fault> {
        let mut once = Once::new(expected);
        ordinals.iter().try_for_each(|&ordinal| once.add(Some(ordinal), false))?;
        once.end(padding, dropped)
    }

    #[test]
    fn law_2_an_order_with_a_double_or_a_gap_is_found_out() {
        let each = |ordinals: &[u64], dropped| count(Expected::Each(4), ordinals, 0, dropped);
        assert_eq!(each(&[2, 0, 3, 1], 0), Ok(()));
        assert_eq!(each(&[2, 0, 2, 1], 0), Err(Fault::TooOften { ordinal: 2, times: 2 }));
        assert_eq!(each(&[2, 0, 4, 1], 0), Err(Fault::TooOften { ordinal: 4, times: 1 }));
        assert_eq!(each(&[2, 0, 1], 0), Err(Fault::Missing { ordinal: 3, missing: 1, dropped: 0 }));
        assert_eq!(each(&[2, 0, 1], 1), Ok(()), "one may be dropped");
        assert_eq!(each(&[2, 0, 1, 3], 1), Err(Fault::Missing { ordinal: 0, missing: 0, dropped: 1 }));
        let sampled = |ordinals: &[u64]| count(Expected::Counted([(5, 2), (7, 1)].into()), ordinals, 0, 0);
        assert_eq!(sampled(&[5, 7, 5]), Ok(()), "a sampler may repeat");
        assert_eq!(sampled(&[7, 7]), Err(Fault::TooOften { ordinal: 7, times: 2 }));
        assert_eq!(sampled(&[5, 7]), Err(Fault::Missing { ordinal: 5, missing: 1, dropped: 0 }));
        assert_eq!(Once::new(Expected::Each(1)).add(None, false), Err(Fault::Unknown));
    }

    #[test]
    fn law_2_padding_has_to_be_marked_and_of_the_right_number() {
        let mut once = Once::new(Expected::Each(2));
        for (ordinal, is_padding) in [(0, false), (1, false), (0, true)] {
            once.add(Some(ordinal), is_padding).unwrap();
        }
        assert_eq!(once.end(1, 0), Ok(()));
        assert_eq!(once.end(0, 0), Err(Fault::Padding { found: 1, expected: 0 }));
        assert_eq!(once.add(Some(5), true), Err(Fault::Unknown));
        let unmarked = once.add(Some(0), false);
        assert_eq!(unmarked, Err(Fault::TooOften { ordinal: 0, times: 2 }), "padding that is not marked");
    }

    #[test]
    fn what_is_padded_and_dropped_follows_from_the_sizes() {
        assert_eq!((rest(10, 3, 2, false), rest(10, 1, 4, false)), ((2, 0), (0, 0)));
        assert_eq!((rest(10, 3, 2, true), rest(10, 1, 4, true), rest(12, 3, 2, true)), ((0, 4), (0, 2), (0, 0)));
    }
}
