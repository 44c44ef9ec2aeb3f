//! Records the order of delivery in arrival order: in a log, and as counts for a report.

use feedline_data::cost::Costs;
use feedline_data::op::WorkHint;
use feedline_data::plan::{ArrivalLog, ArrivedBatch, Plan};
use feedline_memory::Mutex;
use feedline_order::{Epoch, OrderReport, SLOW, ShareIndex, Tally, Turn};

use crate::error::Error;
use crate::state::Cursor;

/// The order in which samples were delivered.
#[derive(Debug)]
pub(super) struct ArrivalRecorder(Mutex<ArrivalRecords>);

#[derive(Debug)]
struct ArrivalRecords {
    path: Option<String>,
    log: Option<ArrivalLog>,
    /// Epoch, offset and number of the next batch. A batch at another place starts a new count.
    next: (Epoch, u64, u64),
    tally: Tally,
}

impl ArrivalRecorder {
    pub(super) fn new(plan: &Plan) -> Self {
        let path = plan.config().arrival_log.clone();
        let tally = Tally::new(plan.settings().batch_size);
        Self(Mutex::new(ArrivalRecords { path, log: None, next: (Epoch(0), 0, 0), tally }))
    }

    /// Records a batch. If the log cannot be written, the batch must not be delivered.
    pub(super) fn record(
        &self,
        before: &Cursor,
        indices: &[ShareIndex],
        plan: &Plan,
        costs: &Costs,
    ) -> Result<(), Error> {
        let mut records = self.0.lock();
        // First the log, then the counts: a batch that is not in the log is not delivered.
        records.write(before, indices, plan)?;
        let visits = plan.sequence().epoch(before.epoch);
        if records.next != (before.epoch, before.offset, before.batches) {
            records.tally = Tally::new(plan.settings().batch_size);
        }
        records.next = (before.epoch, before.offset, before.batches + 1);
        let share = plan.share(before.offset);
        let slow_above = costs.spread().mean * SLOW;
        for (turn, &index) in (before.next_turn(plan).0..).zip(indices) {
            let request = plan.request_at(before.epoch, &visits, share.place(index).position);
            records.tally.add(Turn(turn), index, costs.predict(plan, request, WorkHint::Usual) > slow_above);
        }
        Ok(())
    }

    /// The counts of the epoch that was delivered last.
    pub(super) fn report(&self, epoch: Option<Epoch>, plan: &Plan) -> Option<OrderReport> {
        let records = self.0.lock();
        let is_asked = epoch.is_none_or(|epoch| epoch == records.next.0);
        is_asked.then(|| records.tally.report(plan.max_displacement()))
    }
}

impl ArrivalRecords {
    fn write(&mut self, before: &Cursor, indices: &[ShareIndex], plan: &Plan) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        let written = match &mut self.log {
            Some(log) => Ok(log),
            None => ArrivalLog::open(path, plan).map(|log| self.log.insert(log)),
        };
        let &Cursor { epoch, offset, batches: batch, .. } = before;
        let arrived = ArrivedBatch { epoch, offset, batch, numbers: indices.to_vec() };
        let written = written.and_then(|log| log.write(&arrived));
        let path = path.clone();
        written.map_err(|source| {
            // The record may have been cut short. Opening the log again ends its line.
            self.log = None;
            Error::ArrivalLog { path, source }
        })
    }
}
