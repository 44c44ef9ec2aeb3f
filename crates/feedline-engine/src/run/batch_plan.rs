//! Which batches a run prepares.
//!
//! In: the number of a batch among those of the run. Out: what is in it. A stream goes on from batch to batch, over the end of
//! epochs; a run on demand prepares what it is asked for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use feedline_data::plan::Plan;
use feedline_order::Epoch;

use crate::slot_ref::BatchSerial;
use crate::state::Cursor;
use crate::supply::Task;

/// Positions of an epoch that follow each other, asked for as one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionRange {
    /// The epoch; of segments, the round.
    pub epoch: Epoch,
    /// The positions, at most as many as a batch has.
    pub positions: Range<u64>,
}

/// The batches of a run.
#[derive(Debug)]
pub(super) enum BatchPlan {
    /// The next one of the stream.
    Stream,
    /// Those that were asked for, by serial number.
    Asked(BTreeMap<BatchSerial, PositionRange>),
}

/// A batch that is not open yet.
#[derive(Clone, Debug)]
pub(super) struct Upcoming {
    pub serial: BatchSerial,
    pub cursor: Cursor,
}

impl BatchPlan {
    /// A batch with its cursor at its beginning, and how many samples it has; none if nobody has asked for it.
    pub(super) fn look_up(&self, upcoming: &Upcoming, plan: &Plan) -> Option<(Upcoming, usize)> {
        let serial = upcoming.serial;
        match self {
            Self::Stream => {
                let cursor = upcoming.cursor.clone().normalised(plan);
                let len = plan.share(cursor.offset).batch_len(cursor.batches);
                Some((Upcoming { serial, cursor }, len))
            }
            Self::Asked(asked) => {
                let PositionRange { epoch, positions } = asked.get(&serial)?;
                let cursor = Cursor { offset: positions.start, ..Cursor::start_of(*epoch) };
                Some((Upcoming { serial, cursor }, (positions.end - positions.start) as usize))
            }
        }
    }

    /// Takes a stretch as batch number `serial`.
    pub(super) fn ask(&mut self, serial: BatchSerial, stretch: PositionRange) {
        match self {
            Self::Stream => unreachable!("a stream knows what comes next"),
            Self::Asked(asked) => {
                asked.insert(serial, stretch);
            }
        }
    }

    /// Forgets what was asked for before batch number `serial`.
    pub(super) fn forget_before(&mut self, serial: BatchSerial) {
        if let Self::Asked(asked) = self {
            *asked = asked.split_off(&serial);
        }
    }
}

impl Upcoming {
    /// A task for some of its slots, which has no writer yet.
    pub(super) fn task(&self, plan: &Plan, slots: Range<usize>) -> Task {
        Task {
            batch: self.serial,
            epoch_path: self.cursor.epoch_path(plan),
            first_turn: self.cursor.next_turn(plan),
            slots,
            asked: Instant::now(),
            writer: None,
            cost: None,
            was_read_ahead: false,
            held: None,
        }
    }

    /// Goes to the next batch; gives this one and how many samples it has.
    pub(super) fn step(&mut self, batch_plan: &BatchPlan, plan: &Plan) -> Option<(Self, usize)> {
        let (this, len) = batch_plan.look_up(self, plan)?;
        let cursor = Cursor { batches: this.cursor.batches + 1, ..this.cursor.clone() };
        *self = Self { serial: this.serial.next(), cursor };
        Some((this, len))
    }
}
