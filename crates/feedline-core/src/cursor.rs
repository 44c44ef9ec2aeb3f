//! Where a run stands, and how that is saved.
//!
//! A cursor says what the consumer has *received*, so it may be taken at every step and costs nothing (law 4). It counts
//! from an offset over all ranks together, so it can be loaded with another world size, batch size or thread count.

use serde::{Deserialize, Serialize};

use crate::order::Epoch;
use crate::plan::{Order, Plan};

/// A place in the stream of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The epoch.
    pub epoch: Epoch,
    /// Positions of the epoch that were received before this world size and batch size applied.
    pub offset: u64,
    /// Batches received since.
    pub batches: u64,
    /// Bad samples replaced so far in the epoch.
    pub substituted: u64,
}

impl Cursor {
    /// The beginning of an epoch.
    pub fn start_of(epoch: Epoch) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// The same place, or the beginning of the next epoch if this one has no batch left.
    #[must_use]
    pub fn normalised(self, plan: &Plan) -> Self {
        if self.batches < plan.share(self.offset).batches() { self } else { Self::start_of(Epoch(self.epoch.0 + 1)) }
    }

    /// The place as it is saved.
    pub fn to_state(self, plan: &Plan) -> State {
        let rank = plan.config().rank();
        State {
            feedline: FORMAT,
            epoch: self.epoch,
            offset: self.offset,
            batches: self.batches,
            substituted: self.substituted,
            batch_size: plan.settings().batch_size,
            world_size: rank.world,
            drop_last: plan.settings().drop_last,
            seed: plan.settings().seed.0,
            samples: plan.source().len(),
            listing: plan.fingerprints().listing.to_string(),
            order: plan.fingerprints().order.to_string(),
        }
    }
}

/// The version of saved states.
const FORMAT: u32 = 1;

/// A saved place: small, plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of Cursor and Plan")]
pub struct State {
    pub feedline: u32,
    pub epoch: Epoch,
    pub offset: u64,
    pub batches: u64,
    pub substituted: u64,
    pub batch_size: usize,
    pub world_size: u32,
    pub drop_last: bool,
    pub seed: u64,
    pub samples: u64,
    pub listing: String,
    pub order: String,
}

/// Why a state cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StateError {
    #[error("the state has format {found}, but this version reads format {FORMAT}")]
    Format { found: u32 },
    #[error(
        "the state is of other data: {saved} samples then, {now} now, or other names; restore the data, or start the epoch anew with set_epoch"
    )]
    Listing { saved: u64, now: u64 },
    #[error("the state was saved with seed {saved}, but this loader has seed {now}")]
    Seed { saved: u64, now: u64 },
    #[error("the state was saved with other ops, shuffle, sampler or library version; an exact resume is not possible")]
    Order,
    #[error(
        "the state is from within an epoch in planned order with world size {world_size} and batch size {batch_size}; go on with these, or start the epoch anew with set_epoch"
    )]
    Division { world_size: u32, batch_size: usize },
    #[error("the state says batch {batches} of an epoch of {of}")]
    Beyond { batches: u64, of: u64 },
}

impl State {
    /// The place in the stream of `plan` that this state describes.
    pub fn to_cursor(&self, plan: &Plan) -> Result<Cursor, StateError> {
        let now = Cursor::default().to_state(plan);
        if self.feedline != FORMAT {
            return Err(StateError::Format { found: self.feedline });
        }
        if self.listing != now.listing {
            return Err(StateError::Listing { saved: self.samples, now: now.samples });
        }
        if self.seed != now.seed {
            return Err(StateError::Seed { saved: self.seed, now: now.seed });
        }
        if self.order != now.order {
            return Err(StateError::Order);
        }
        let saved_rank = crate::order::Rank { rank: 0, world: self.world_size.max(1) };
        let epoch_len = plan.sequence().len();
        let share = crate::order::Share::new(epoch_len, self.offset, saved_rank, self.batch_size, self.drop_last);
        if self.batches > share.batches() {
            return Err(StateError::Beyond { batches: self.batches, of: share.batches() });
        }
        let is_same_division =
            (self.batch_size, self.world_size, self.drop_last) == (now.batch_size, now.world_size, now.drop_last);
        if !is_same_division && self.batches > 0 && plan.settings().order != Order::Strict {
            return Err(StateError::Division { world_size: self.world_size, batch_size: self.batch_size });
        }
        let (offset, batches) =
            if is_same_division { (self.offset, self.batches) } else { (share.offset_after(self.batches), 0) };
        Ok(Cursor { epoch: self.epoch, offset, batches, substituted: self.substituted }.normalised(plan))
    }
}
