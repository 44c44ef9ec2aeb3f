//! The place of a consumer in its stream, and its saved form.
//!
//! A cursor describes what the consumer has *received*, so it can be taken at every step at no cost (law 4). It loads with any
//! number of threads. In strict order it also loads with another batch size and, without a reservoir, another world size, because
//! it counts from an offset over all ranks.

use std::sync::Arc;

use feedline_data::plan::{OpMarks, Plan, limits};
use feedline_order::{Epoch, EpochPath, Rank, Remaining, Share, ShareIndex, Turn};
use serde::{Deserialize, Serialize};

/// A place in the stream of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The epoch.
    pub epoch: Epoch,
    /// Positions of the epoch that were received before the current world size and batch size applied.
    pub offset: u64,
    /// Batches received since then.
    pub batches: u64,
    /// Number of substituted samples in the epoch.
    pub substituted: u64,
    /// What is left of the epoch, if its order so far was neither the sampler's nor the plan's.
    pub rest: Option<Arc<Remaining>>,
}

impl Cursor {
    /// The start of an epoch.
    pub fn start_of(epoch: Epoch) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// The same place, or the start of the next epoch if this one has no batch left.
    #[must_use]
    pub fn normalised(self, plan: &Plan) -> Self {
        if self.batches < plan.share(self.offset).batches() { self } else { Self::start_of(Epoch(self.epoch.0 + 1)) }
    }

    /// The path through the epoch that this cursor is on.
    pub fn epoch_path(&self, plan: &Plan) -> EpochPath {
        EpochPath { epoch: self.epoch, share: plan.share(self.offset), rest: self.rest.clone() }
    }

    /// The turn of the next sample, counted from `offset`. Only full batches come before it.
    pub fn next_turn(&self, plan: &Plan) -> Turn {
        Turn(self.batches * plan.settings().batch_size as u64)
    }

    /// The saved form of this cursor.
    pub fn to_state(&self, plan: &Plan) -> State {
        let rank = plan.config().rank;
        let turn = self.next_turn(plan);
        let (delivery, pending) = match &self.rest {
            Some(rest) => (Delivery::Any, rest.pending_at(turn).to_vec()),
            None if self.batches > 0 && plan.has_planned_order() => {
                let pending = plan.pending(self.epoch, &plan.share(self.offset), turn);
                (Delivery::Planned(plan.fingerprints().delivery.to_string()), pending)
            }
            None => (Delivery::Strict, Vec::new()),
        };
        State {
            feedline: FORMAT,
            epoch: self.epoch,
            offset: self.offset,
            batches: self.batches,
            substituted: self.substituted,
            batch_size: plan.settings().batch_size,
            rank: (delivery != Delivery::Strict).then_some(rank.rank),
            world_size: rank.world,
            drop_last: plan.settings().drop_last,
            seed: plan.settings().seed.0,
            samples: plan.source().len(),
            listing: plan.fingerprints().listing.to_string(),
            order: plan.fingerprints().order.to_string(),
            ops: OpMarks::of(plan),
            delivery,
            pending,
        }
    }
}

/// The version of the saved form.
const FORMAT: u32 = 3;

/// A saved cursor: small, plain data.
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
    /// The rank of the pending samples. In strict order a state is the same on all ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    pub world_size: u32,
    pub drop_last: bool,
    pub seed: u64,
    pub samples: u64,
    pub listing: String,
    pub order: String,
    pub ops: OpMarks,
    #[serde(default)]
    pub delivery: Delivery,
    /// Samples of the rank's share that were skipped so far.
    #[serde(default)]
    pub pending: Vec<ShareIndex>,
}

/// The order of delivery in an epoch so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// The sampler's order.
    #[default]
    Strict,
    /// An order that was computed before the epoch (planned order or a replay), identified by its fingerprint.
    Planned(String),
    /// Another order, different on each rank.
    Any,
}

/// Why a state cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StateError {
    #[error(
        "the state has format {found}, but this version reads format {FORMAT}; use the version of Feedline that saved it, or start the epoch again with set_epoch"
    )]
    Format { found: u32 },
    #[error(
        "the state belongs to other data: {saved} samples then, {now} now, or other names; restore the data, or start the epoch again with set_epoch"
    )]
    Listing { saved: u64, now: u64 },
    #[error("the state was saved with seed {saved}, but this loader has seed {now}")]
    Seed { saved: u64, now: u64 },
    #[error("the state was saved with other ops, so an exact resume is not possible: {changes}")]
    Ops { changes: String },
    #[error("the state was saved with another shuffle, sampler or library version, so an exact resume is not possible")]
    Order,
    #[error(
        "the state is from within an epoch in {order} order with rank {rank} of {world_size} and batch size {batch_size}; use these settings, or start the epoch again with set_epoch"
    )]
    Division { order: &'static str, rank: u32, world_size: u32, batch_size: usize },
    #[error(
        "the state is from within an epoch in another order, and the planned order of this loader (its max_displacement, costs or replay) cannot continue from there; use order=\"strict\" or \"arrival\" for the rest of the epoch, or start it again with set_epoch"
    )]
    Delivery,
    #[error(
        "the planned order of this loader differs from that of the state, because files have changed in size; use order=\"strict\" or \"arrival\" for the rest of the epoch, or start it again with set_epoch"
    )]
    Changed,
    #[error(
        "the state is from within an epoch that a reservoir divides over {saved} ranks, but this loader has world_size {now}; use {saved}, or start the epoch again with set_epoch"
    )]
    World { saved: u32, now: u32 },
    #[error("the state is damaged: its pending samples do not fit {batches} delivered batches")]
    Pending { batches: u64 },
    #[error(
        "the state was saved with share=..., but this loader does not share; pass share, or start an epoch with set_epoch"
    )]
    Shared,
    #[error(
        "the state was saved without share, but this loader has share=...; leave share out, or start an epoch with set_epoch"
    )]
    Private,
    #[error(transparent)]
    JobProgress(#[from] super::JobProgressError),
    #[error("the state is at batch {batches}, but the epoch has {of} batches")]
    Beyond { batches: u64, of: u64 },
    #[error("the state is damaged: it has batch_size {batch_size} and world_size {world_size}")]
    Numbers { batch_size: usize, world_size: u32 },
    #[error("the state is damaged: epoch {} is out of range", epoch.0)]
    Far { epoch: Epoch },
}

impl State {
    /// The cursor in the stream of `plan` that this state describes.
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
        if let Some(changes) = self.ops.changes(&now.ops) {
            return Err(StateError::Ops { changes });
        }
        if self.order != now.order {
            return Err(StateError::Order);
        }
        if self.batch_size as u64 > limits::MAX_BATCH_SIZE || u64::from(self.world_size) > limits::MAX_WORLD_SIZE {
            let Self { batch_size, world_size, .. } = *self;
            return Err(StateError::Numbers { batch_size, world_size });
        }
        if self.epoch > Epoch::LAST {
            return Err(StateError::Far { epoch: self.epoch });
        }
        // At the start of an epoch any division of the data can begin.
        let is_under_way = (self.offset, self.batches) != (0, 0);
        if plan.sequence().reservoir().is_some() && is_under_way && self.world_size != now.world_size {
            return Err(StateError::World { saved: self.world_size, now: now.world_size });
        }
        // The number of batches is the same on every rank, so rank 0 stands for all.
        let saved_rank = Rank { rank: 0, world: self.world_size.max(1) };
        let share = Share::new(plan.sequence().len(), self.offset, saved_rank, self.batch_size, self.drop_last);
        if self.batches > share.batches() {
            return Err(StateError::Beyond { batches: self.batches, of: share.batches() });
        }
        let is_same_division =
            (self.batch_size, self.world_size, self.drop_last) == (now.batch_size, now.world_size, now.drop_last);
        let rest =
            self.rest(plan, &share, is_same_division, is_same_division && self.rank == Some(plan.config().rank.rank))?;
        let (offset, batches) =
            // With another batch size or world size, all received positions become the offset, and batches count from there.
            if is_same_division { (self.offset, self.batches) } else { (share.offset_after(self.batches), 0) };
        Ok(Cursor { epoch: self.epoch, offset, batches, substituted: self.substituted, rest }.normalised(plan))
    }

    /// What is left of the epoch, if the order differs from the plan's.
    fn rest(
        &self,
        plan: &Plan,
        share: &Share,
        is_same_division: bool,
        is_same_rank: bool,
    ) -> Result<Option<Arc<Remaining>>, StateError> {
        if self.batches == 0 && self.delivery == Delivery::Strict {
            return Ok(None);
        }
        let goes_on = match &self.delivery {
            Delivery::Planned(delivery) => {
                plan.has_planned_order() && *delivery == plan.fingerprints().delivery.to_string()
            }
            Delivery::Strict => !plan.has_planned_order(),
            Delivery::Any => false,
        };
        let has_to_stay = match self.delivery {
            Delivery::Strict => None,
            Delivery::Planned(_) => (!is_same_division || !(goes_on || is_same_rank)).then_some("planned"),
            Delivery::Any => (!is_same_rank).then_some("arrival"),
        };
        if let Some(order) = has_to_stay {
            let Self { world_size, batch_size, .. } = *self;
            let rank = self.rank.unwrap_or(0);
            return Err(StateError::Division { order, rank, world_size, batch_size });
        }
        if goes_on {
            let turns = self.batches.saturating_mul(self.batch_size as u64);
            // The order may depend on file sizes, which may have changed since.
            // The pending samples are recomputed and compared. They differ if the planned order differs.
            let passes_over = |share| is_same_rank && self.pending != plan.pending(self.epoch, share, Turn(turns));
            let has_changed = plan.has_planned_order() && passes_over(&plan.share(self.offset));
            return if has_changed { Err(StateError::Changed) } else { Ok(None) };
        }
        if plan.has_planned_order() {
            return Err(StateError::Delivery);
        }
        // A forged state may name any numbers, so nothing here may overflow.
        let turns = self.batches.saturating_mul(self.batch_size as u64).min(share.samples());
        let fits = turns.checked_add(self.pending.len() as u64).is_some_and(|next| next <= share.samples());
        let rest = Remaining::new(turns, self.pending.clone()).filter(|_| fits);
        rest.map(Arc::new).map(Some).ok_or(StateError::Pending { batches: self.batches })
    }
}
