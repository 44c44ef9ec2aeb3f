//! The plan that produces samples for many jobs.
//!
//! In: the plan of one job. Out: a plan whose batches are segments. It is the same for all jobs with the same values fingerprint
//! and fields, whatever their seeds, batch sizes and threads. Fields that a job can compute itself are not produced.

use std::sync::Arc;

use feedline_order::{Blocks, Rank, Seed, Segments, Sequence};

use super::{Fingerprint, OnError, Order, Plan, PlanError, RunConfig, Settings, Shuffle, Workers};
use crate::batch::FieldForm;

/// Each job computes this field from the indices of its samples.
pub const KEY_FIELD: &str = "key";
/// The indices of samples. Always produced.
pub const INDEX_FIELD: &str = "index";
/// Whether a sample is padding, which fills up the last batch of a rank.
pub const PADDED_FIELD: &str = "padded";
const INDEX_BYTES: usize = 8;

/// Upper limit of segments. A node keeps a number for each.
const MAX_SEGMENTS: u64 = 1 << 24;

/// Why a plan cannot share its samples.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum Unshared {
    #[error("its samples come in order, but shared samples come in the order of their production; use shuffle=True")]
    InOrder,
    #[error("it has a sampler, which defines its own sequence")]
    Sampler,
    #[error("its order of delivery is {0}, but shared samples are delivered as they are produced")]
    Delivery(Order),
    #[error("its samples would need {0} segments, but a node supports at most {MAX_SEGMENTS}")]
    Long(u64),
    #[error("field {field:?} has no fixed shape, but shared memory contains arrays of one size only")]
    Unslotted { field: String },
}

impl Plan {
    /// Fails with the reason if samples cannot be shared with other jobs.
    pub fn check_shared(&self) -> Result<(), Unshared> {
        let Settings { shuffle, sampler, order, .. } = self.settings();
        if sampler.is_some() {
            return Err(Unshared::Sampler);
        }
        match shuffle {
            Shuffle::Full | Shuffle::Reservoir(_) => {}
            Shuffle::Never => return Err(Unshared::InOrder),
        }
        if *order != Order::Strict {
            return Err(Unshared::Delivery(*order));
        }
        match self.uniform_segments().count() {
            count if count > MAX_SEGMENTS => Err(Unshared::Long(count)),
            _ => self.check_fixed(),
        }
    }

    /// Fails with the reason if batches in the plan's own order cannot come from a node.
    pub fn check_partitioned(&self) -> Result<(), Unshared> {
        match self.settings().order {
            Order::Strict => self.check_fixed(),
            order => Err(Unshared::Delivery(order)),
        }
    }

    /// Fails unless all fields are arrays of one size, or fields that a job can compute itself.
    fn check_fixed(&self) -> Result<(), Unshared> {
        let mut unfixed = self
            .layout()
            .fields()
            .iter()
            .filter(|(name, form)| **name != *KEY_FIELD && !matches!(form, FieldForm::Region { .. }));
        match unfixed.next() {
            Some((field, _)) => Err(Unshared::Unslotted { field: field.to_string() }),
            None => Ok(()),
        }
    }

    /// Jobs with an equal key can be served by one run.
    pub fn shared_key(&self) -> Fingerprint {
        self.segments_key(&self.code())
    }

    /// A state of a job that shares belongs to plans with an equal key. A function may have been corrected since.
    pub fn segments_state_key(&self) -> Fingerprint {
        self.segments_key("")
    }

    fn segments_key(&self, code: &str) -> Fingerprint {
        let fields = self.produced().join("\u{0}");
        let values = self.fingerprints().values.to_string();
        let blocks = self.segment_blocks().map_or(0, |blocks| blocks.hash());
        Fingerprint(xxhash_rust::xxh3::xxh3_128(format!("{values} {blocks:x} {fields}{code}").as_bytes()))
    }

    /// Ranks with an equal key can be served by one run.
    pub fn partition_key(&self) -> Fingerprint {
        let Settings { batch_size, drop_last, .. } = self.settings();
        let (order, fields) = (self.fingerprints().order, self.delivered().join("\u{0}"));
        let world = self.config().rank.world;
        Fingerprint(xxhash_rust::xxh3::xxh3_128(
            format!("{order} {batch_size} {drop_last} {world} {fields}{}", self.code()).as_bytes(),
        ))
    }

    /// Hashes of the functions in the plan. Empty without functions.
    fn code(&self) -> String {
        let hashes: Vec<String> = self.ops().iter().filter_map(|op| op.op().code_hash()).collect();
        if hashes.is_empty() { String::new() } else { format!(" {}", hashes.join(" ")) }
    }

    /// The division into segments, without the choice of samples.
    fn uniform_segments(&self) -> Segments {
        let bytes_of = |(name, form): &(Arc<str>, FieldForm)| match form {
            FieldForm::Region { region, .. } if **name != *INDEX_FIELD => self.layout().slab().slot_bytes(*region),
            _ => 0,
        };
        let bytes = INDEX_BYTES + self.layout().fields().iter().map(bytes_of).sum::<usize>();
        Segments::new(self.shared_seed(), self.source().len(), bytes as u64)
    }

    /// The division into segments.
    pub fn segments(&self) -> &Segments {
        self.segments.get_or_init(|| {
            let segments = self.uniform_segments();
            match self.segment_blocks() {
                Some(blocks) => segments.of_blocks(&blocks),
                None => segments,
            }
        })
    }

    /// The blocks of the segments, if the plan reads in sequence. They are short enough for each segment to have one from every
    /// reader.
    fn segment_blocks(&self) -> Option<Blocks> {
        let Shuffle::Reservoir(config) = &self.settings().shuffle else { return None };
        let together = self.source().blocks()?;
        // One block per object: only the average size of a sample is needed here.
        let stored = Blocks::cut(&together, u64::MAX).sample_bytes();
        let segment_bytes = self.uniform_segments().segment_len().saturating_mul(stored);
        // At least one byte, at most the block size that the user chose.
        let block = (segment_bytes / u64::from(config.readers)).clamp(1, config.block.0);
        Some(Blocks::cut(&together, block))
    }

    /// The plan that produces its segments.
    pub fn production(&self) -> Result<Self, PlanError> {
        let segments = self.segments().clone();
        let seed = self.shared_seed();
        let settings = Settings {
            shuffle: self.settings().shuffle.clone(),
            seed,
            // A bad sample must not end the production for all jobs. Each job applies its own policy when it receives the
            // segment.
            on_error: OnError::Substitute { max_fraction: 1.0 },
            fields: Some(self.produced()),
            ..Settings::of_batches(usize::try_from(segments.segment_len()).unwrap_or(usize::MAX))
        };
        let config = RunConfig {
            num_workers: Workers::Auto,
            prefetch_batches: None,
            memory_budget: None,
            rank: Rank::ALONE,
            arrival_log: None,
            ..self.config().clone()
        };
        Self::with_sequence(Arc::clone(self.source()), self.ops().to_vec(), settings, config, |_, _, _| {
            Ok(Sequence::segmented(seed, segments))
        })
    }

    /// The fields to produce: the delivered ones, and the indices by which jobs identify samples.
    fn produced(&self) -> Vec<String> {
        let is_produced = |name: &&Arc<str>| ***name != *KEY_FIELD && ***name != *INDEX_FIELD;
        let fields = self.delivered().iter().filter(is_produced).map(ToString::to_string);
        // The index comes first, whether a job asked for it or not: jobs find their samples by it.
        std::iter::once(INDEX_FIELD.to_owned()).chain(fields).collect()
    }

    /// The seed that all jobs share.
    fn shared_seed(&self) -> Seed {
        let Fingerprint(values) = self.fingerprints().values;
        // TOML numbers are signed, so a seed is below 2^63.
        Seed(((values >> 64) as u64 ^ values as u64) >> 1)
    }
}
