//! The batches of some epochs as hashes: which samples came, and hashes of their bytes.
//!
//! In: a configuration of a plan. Out: a [`Stream`]. Bytes are not kept. Where two streams differ, the place is run again
//! ([`contents_at`]).

use std::sync::Arc;

use feedline_data::batch::{Batch, FieldData};
use feedline_engine::loader::Loader;
use feedline_engine::metrics::Snapshot;
use feedline_engine::state::SavedState;
use feedline_order::{Epoch, SampleId};

use super::content::Content;
use super::subject::{Subject, Variant, VerifyError};

/// A delivered sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeliveredSample {
    /// Which sample.
    pub id: SampleId,
    /// Whether it is padding.
    pub is_padding: bool,
    /// A hash of each field, in the order of the stream's fields.
    pub digests: Vec<u128>,
}

/// A bad sample and its substitute, as the loader reported them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    /// The position in the epoch.
    pub position: u64,
    /// The name of the bad sample.
    pub bad: String,
    /// The name of its substitute.
    pub by: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The delivered samples of one epoch.
#[derive(Clone, Debug)]
pub(super) struct EpochStream {
    /// The epoch.
    pub epoch: Epoch,
    /// Its samples in the order of delivery.
    pub samples: Vec<DeliveredSample>,
    /// Number of samples in each batch.
    pub batches: Vec<usize>,
    /// The reported substitutes.
    pub replaced: Vec<Replaced>,
    /// Number of substitutes.
    pub counted: u64,
}

/// What was delivered of some epochs.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// The names of the fields.
    pub fields: Vec<Arc<str>>,
    /// The epochs.
    pub epochs: Vec<EpochStream>,
}

impl EpochStream {
    /// Nothing of an epoch.
    pub(super) fn of(epoch: Epoch) -> Self {
        Self { epoch, samples: Vec::new(), batches: Vec::new(), replaced: Vec::new(), counted: 0 }
    }

    fn add(&mut self, batch: &Batch, names: &[Arc<str>]) {
        let fields: Vec<&FieldData> = names.iter().filter_map(|name| batch.field(name)).collect();
        let padded = batch.field("padded").map(FieldData::bytes).unwrap_or_default();
        for (slot, id) in batch.ids().into_iter().enumerate() {
            self.samples.push(DeliveredSample {
                id: SampleId(id.cast_unsigned()),
                is_padding: padded.get(slot).is_some_and(|padded| *padded != 0),
                digests: fields.iter().map(|data| Content::of_slot(data, slot).digest()).collect(),
            });
        }
        self.batches.push(batch.len);
        self.epoch = batch.epoch;
    }

    /// Adds the substitutes that the loader reported after the first `counted`.
    fn add_substitutes(&mut self, snapshot: &Snapshot, counted: &mut u64) {
        let new = snapshot.substituted - *counted;
        let kept = snapshot.substitutes.len() as u64;
        // The snapshot keeps the last substitutes only. The new ones are at its end.
        let named = snapshot.substitutes.iter().skip(kept.saturating_sub(new) as usize);
        self.replaced.extend(named.map(|named| Replaced {
            position: named.position,
            bad: named.bad.clone(),
            by: named.by.clone(),
            reason: named.reason.clone(),
        }));
        self.counted += new;
        *counted = snapshot.substituted;
    }
}

/// Runs a configuration for the checked number of epochs and batches.
pub(super) fn collect(subject: &Subject<'_>, variant: &Variant) -> Result<(Stream, Snapshot), VerifyError> {
    let loader = subject.loader(variant)?;
    let fields = value_fields(&loader);
    let mut epochs = Vec::new();
    for _ in 0..subject.extent.epochs {
        epochs.push(collect_epoch(subject, &loader, &variant.name, subject.batches())?.0);
    }
    let snapshot = loader.snapshot();
    loader.close();
    Ok((Stream { fields, epochs }, snapshot))
}

/// Takes batches of the next iteration. Returns whether its epoch has ended.
pub(super) fn collect_epoch(
    subject: &Subject<'_>,
    loader: &Loader,
    name: &str,
    batches: u64,
) -> Result<(EpochStream, bool), VerifyError> {
    let fields = value_fields(loader);
    let mut found = EpochStream::of(loader.upcoming_epoch());
    let mut counted = loader.snapshot().substituted;
    let has_ended = subject.take(loader, name, batches, |batch| {
        found.add(batch, &fields);
        found.add_substitutes(&loader.snapshot(), &mut counted);
    })?;
    Ok((found, has_ended))
}

/// The fields of a sample, except for `index`, `key` and the like, which identify it.
fn value_fields(loader: &Loader) -> Vec<Arc<str>> {
    let delivered = loader.plan().delivered().iter();
    delivered.filter(|name| !matches!(&***name, "index" | "padded")).cloned().collect()
}

/// Identifies a sample of an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// The one that comes at this turn.
    Turn(u64),
    /// The one with this number, whenever it comes.
    Sample(SampleId),
}

/// Where a loader starts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begin<'a> {
    /// At the beginning of an epoch.
    Epoch(Epoch),
    /// Where a state was taken.
    State(&'a SavedState),
}

/// The fields of one sample, prepared again. `None` if it does not come. Turns count from the start of the loader.
pub(super) fn contents_at(
    subject: &Subject<'_>,
    variant: &Variant,
    from: Begin<'_>,
    at: At,
) -> Result<Vec<Content<'static>>, VerifyError> {
    let loader = subject.loader(variant)?;
    let begun = match from {
        Begin::Epoch(epoch) => loader.set_epoch(epoch),
        Begin::State(state) => loader.load_state(state),
    };
    begun.map_err(|source| VerifyError::Run { configuration: variant.name.clone(), source })?;
    let fields = value_fields(&loader);
    let batch_size = variant.settings.batch_size as u64;
    let (mut first, mut found) = (0, Vec::new());
    let most = match at {
        // The number of batches up to and including the one with this turn.
        At::Turn(turn) => turn / batch_size + 1,
        At::Sample(_) => subject.batches(),
    };
    subject.take(&loader, &variant.name, most, |batch| {
        let slot = match at {
            At::Turn(turn) => turn.checked_sub(first).map(|slot| slot as usize).filter(|slot| *slot < batch.len),
            At::Sample(id) => batch.ids().iter().position(|found| found.cast_unsigned() == id.0),
        };
        if let Some(slot) = slot {
            let data = fields.iter().filter_map(|name| batch.field(name));
            found = data.map(|data| Content::of_slot(data, slot).into_owned()).collect();
        }
        // The turn of the next batch's first sample. The last batch may be short.
        first += batch.len as u64;
    })?;
    loader.close();
    Ok(found)
}
