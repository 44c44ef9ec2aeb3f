//! Which batches a run prepares.
//!
//! In: the serial number of a batch. Out: its samples. A stream continues from batch to batch across epochs. An on-demand run
//! prepares only the position ranges that were requested.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use feedline_data::plan::Plan;
use feedline_order::Epoch;

use crate::slot_ref::BatchSerial;
use crate::state::Cursor;
use crate::supply::{GivenBatch, Task};

/// Consecutive positions of an epoch, requested as one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionRange {
    /// The epoch. For segments of a carousel, the round.
    pub epoch: Epoch,
    /// The positions. Never more than the batch size.
    pub positions: Range<u64>,
}

/// The batches of a run.
#[derive(Debug)]
pub(super) enum BatchPlan {
    /// Every batch of the stream, one after the other.
    Stream,
    /// Requested batches by serial number.
    Requested(BTreeMap<BatchSerial, BatchRequest>),
}

/// A requested batch.
#[derive(Clone, Debug)]
pub enum BatchRequest {
    /// The samples at consecutive positions.
    Positions(PositionRange),
    /// Samples that a sampler outside the engine has chosen.
    Given(Arc<GivenBatch>),
}

/// The next batch to open.
#[derive(Clone, Debug)]
pub(super) struct Upcoming {
    pub serial: BatchSerial,
    pub cursor: Cursor,
    pub given: Option<Arc<GivenBatch>>,
}

impl BatchPlan {
    /// Returns the cursor at the start of a batch and its number of samples, or `None` if nobody requested it.
    pub(super) fn look_up(&self, upcoming: &Upcoming, plan: &Plan) -> Option<(Upcoming, usize)> {
        let serial = upcoming.serial;
        match self {
            Self::Stream => {
                // At the end of an epoch the cursor moves to the start of the next one.
                let cursor = upcoming.cursor.clone().normalised(plan);
                let len = plan.share(cursor.offset).batch_len(cursor.batches);
                Some((Upcoming { serial, cursor, given: None }, len))
            }
            Self::Requested(asked) => match asked.get(&serial)? {
                BatchRequest::Positions(PositionRange { epoch, positions }) => {
                    let cursor = Cursor { offset: positions.start, ..Cursor::start_of(*epoch) };
                    Some((Upcoming { serial, cursor, given: None }, (positions.end - positions.start) as usize))
                }
                BatchRequest::Given(given) => {
                    let cursor = Cursor::start_of(given.epoch);
                    Some((Upcoming { serial, cursor, given: Some(Arc::clone(given)) }, given.samples.len()))
                }
            },
        }
    }

    /// Adds a request as batch number `serial`.
    pub(super) fn request(&mut self, serial: BatchSerial, batch: BatchRequest) {
        match self {
            Self::Stream => unreachable!("a stream knows what comes next"),
            Self::Requested(asked) => {
                asked.insert(serial, batch);
            }
        }
    }

    /// Drops the requests before batch number `serial`.
    pub(super) fn forget_before(&mut self, serial: BatchSerial) {
        if let Self::Requested(asked) = self {
            *asked = asked.split_off(&serial);
        }
    }
}

impl Upcoming {
    /// Returns a task for some slots of the batch. The task has no writer yet.
    pub(super) fn task(&self, plan: &Plan, slots: Range<usize>) -> Task {
        Task {
            batch: self.serial,
            epoch_path: self.cursor.epoch_path(plan),
            first_turn: self.cursor.next_turn(plan),
            given: self.given.clone(),
            slots,
            asked: Instant::now(),
            writer: None,
            cost: None,
            was_read_ahead: false,
            held: None,
        }
    }

    /// Advances to the next batch. Returns the current one and its number of samples.
    pub(super) fn step(&mut self, batch_plan: &BatchPlan, plan: &Plan) -> Option<(Self, usize)> {
        let (this, len) = batch_plan.look_up(self, plan)?;
        let cursor = Cursor { batches: this.cursor.batches + 1, ..this.cursor.clone() };
        *self = Self { serial: this.serial.next(), cursor, given: None };
        Some((this, len))
    }
}
