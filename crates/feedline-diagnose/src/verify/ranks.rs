//! Law 2: over all ranks each sample comes once per epoch, except for marked padding and samples dropped at the end.
//!
//! Only the numbers of samples are checked here: the engine runs without loading, so whole epochs of large sets are fast.

use std::collections::HashMap;

use feedline_data::plan::{Order, Workers};
use feedline_order::{Epoch, Ordinal, Position, Rank, SampleId};

use super::once::{Expected, Fault, SampleCounter};
use super::report::{Checked, Counterexample};
use super::subject::{Subject, Variant};
use super::values::References;

/// Numbers of ranks that share an epoch.
const WORLDS: [u32; 3] = [1, 2, 3];

/// Counts the epochs of several world sizes, and the delivered samples.
pub(super) fn check(subject: &Subject<'_>, references: &References) -> Checked {
    in_delivered_samples(subject, references)?;
    let own = subject.plan.config().rank.world;
    let mut worlds: Vec<u32> = WORLDS.to_vec();
    // The number of ranks of the user's own job is always checked.
    if !worlds.contains(&own) {
        worlds.push(own);
    }
    let mut is_whole = true;
    for &world in &worlds {
        is_whole &= in_world(subject, world)?;
    }
    let len = subject.plan.sequence().len();
    let which = if is_whole { format!("all {len}") } else { format!("the first {} of {len}", subject.extent.ids) };
    let worlds: Vec<String> = worlds.iter().map(ToString::to_string).collect();
    let end = match subject.plan.settings().drop_last {
        _ if !is_whole => "",
        true => ", with the dropped samples counted",
        false => ", with the padding counted",
    };
    let worlds = worlds.join(", ");
    Ok(format!("{which} samples of an epoch, over {worlds} ranks{end}"))
}

/// How often each ordinal must come in an epoch.
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

/// No sample comes too often in the prepared streams. Law 6 counts substitutes.
fn in_delivered_samples(subject: &Subject<'_>, references: &References) -> Checked<()> {
    let (variant, stream) = &references.reference;
    for epoch in stream.epochs.iter().filter(|epoch| epoch.counted == 0) {
        let mut counter = SampleCounter::new(expected(subject, epoch.epoch));
        for (turn, seen) in epoch.samples.iter().enumerate() {
            if let Err(fault) = counter.add(subject.plan.source().ordinal_of(seen.id), seen.is_padding) {
                let position = subject.position_of(variant, epoch.epoch, turn as u64);
                let faulty = Faulty { fault, epoch: epoch.epoch, position: Some(position), id: seen.id };
                return Err(explain(subject, faulty, &variant.name).into());
            }
        }
    }
    Ok(())
}

/// Counts the first epoch of all ranks of a world. Returns whether it was counted to the end.
fn in_world(subject: &Subject<'_>, world: u32) -> Checked<bool> {
    let epoch = Epoch(0);
    let len = subject.plan.sequence().len();
    let batch_size = subject.plan.settings().batch_size as u64;
    // At least one batch per rank, however few numbers are to be checked.
    let most = (subject.extent.ids / u64::from(world) / batch_size).max(1);
    let mut counter = SampleCounter::new(expected(subject, epoch));
    let mut counts: Vec<u64> = Vec::new();
    let mut has_ended = true;
    for rank in 0..world {
        let variant = without_data(subject, rank, world);
        let loader = subject.loader(&variant)?;
        let (mut turn, mut batches, mut fault) = (0_u64, 0, None);
        has_ended &= subject.take(&loader, &variant.name, most, |batch| {
            batches += 1;
            let padded = batch.field("padded").map(feedline_data::batch::FieldData::bytes).unwrap_or_default();
            for (slot, id) in batch.ids().into_iter().enumerate() {
                let id = SampleId(id.cast_unsigned());
                let is_padding = padded.get(slot).is_some_and(|padded| *padded != 0);
                let added = counter.add(subject.plan.source().ordinal_of(id), is_padding);
                // In strict order rank r of n gets positions r, r + n, r + 2n, ...
                let position = turn * u64::from(world) + u64::from(rank);
                fault = fault.or(added.err().map(|fault| (fault, position, id)));
                turn += 1;
            }
        })?;
        loader.close();
        if let Some((fault, position, id)) = fault {
            let position = Some(position).filter(|_| variant.settings.order == Order::Strict);
            return Err(explain(subject, Faulty { fault, epoch, position, id }, &variant.name).into());
        }
        counts.push(batches);
    }
    let name = format!("{world} ranks");
    // A rank with more batches than the others would wait for them in a collective operation for ever.
    if counts.iter().any(|count| *count != counts[0]) {
        return Err(Counterexample {
            epoch: Some(epoch.0),
            found: Some(format!("{counts:?} batches")),
            configurations: vec![name],
            ..Counterexample::of(2, "ranks do not get equally many batches")
        }
        .into());
    }
    if has_ended {
        let (padding, dropped) = rest(len, u64::from(world), batch_size, subject.plan.settings().drop_last);
        if let Err(fault) = counter.end(padding, dropped) {
            let ordinal = if let Fault::Missing { ordinal, .. } = fault { ordinal } else { Ordinal(0) };
            let id = subject.plan.source().id_at(ordinal);
            return Err(explain(subject, Faulty { fault, epoch, position: None, id }, &name).into());
        }
    }
    Ok(has_ended)
}

/// Number of padding samples in the last batches of all ranks, and of dropped samples.
fn rest(len: u64, world: u64, batch_size: u64, drops: bool) -> (u64, u64) {
    if drops {
        // Only whole batches for all ranks are delivered. The rest is dropped.
        (0, len - len / (world * batch_size) * world * batch_size)
    } else {
        // Ranks get equally many samples, so up to world - 1 samples are repeated.
        (len.next_multiple_of(world) - len, 0)
    }
}

/// A rank of the plan that delivers sample numbers only.
fn without_data(subject: &Subject<'_>, rank: u32, world: u32) -> Variant {
    let own = subject.own();
    let mut variant = own.with(&format!("rank {rank} of {world}, numbers only"), |settings, config| {
        settings.fields = Some(vec!["index".to_owned(), "padded".to_owned()]);
        settings.ragged = Vec::new();
        settings.costs = None;
        config.cache = None;
        config.rank = Rank { rank, world };
        config.num_workers = Workers::Count(2);
    });
    // A log is valid for one division into ranks.
    if variant.settings.replay.take().is_some() {
        (variant.settings.order, variant.settings.max_displacement) = (Order::Strict, None);
    }
    // Ops are left out too, so that only the order of the engine runs.
    variant.has_data = false;
    variant
}

/// A sample with an error.
struct Faulty {
    fault: Fault,
    epoch: Epoch,
    position: Option<u64>,
    id: SampleId,
}

fn explain(
    subject: &Subject<'_>,
    Faulty { fault, epoch, position, id }: Faulty,
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
        epoch: Some(epoch.0),
        position,
        sample: is_about_sample.then(|| subject.key(id)),
        expected: Some(expected),
        found: Some(found),
        ..Counterexample::of(2, format!("{problem} ({configuration})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_padded_and_dropped_follows_from_the_sizes() {
        assert_eq!((rest(10, 3, 2, false), rest(10, 1, 4, false)), ((2, 0), (0, 0)));
        assert_eq!((rest(10, 3, 2, true), rest(10, 1, 4, true), rest(12, 3, 2, true)), ((0, 4), (0, 2), (0, 0)));
    }
}
