//! Where the batches of a stream come from: a run of this process, or a node on this machine.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::metrics::{Metrics, QueueSnapshot};
use crate::run::{Delivery, Run};
use crate::state::Cursor;

/// Gives the batches of a plan one after the other, epoch after epoch.
pub trait Deliverer: Send + Sync + Debug {
    /// Waits up to `timeout` until the next batch can be taken; says whether it can.
    fn wait_within(&self, timeout: Duration) -> Result<bool, Error>;

    /// Takes the next batch, if it can be taken.
    fn take(&self) -> Result<Option<Delivery>, Error>;

    /// Goes on from `cursor`; what was prepared and not taken is dropped.
    fn seek(&self, cursor: Cursor);

    /// What waits to be taken.
    fn queue(&self) -> QueueSnapshot;

    /// Threads of this process at work.
    fn workers(&self) -> usize;

    /// Ends everything within a second.
    fn close(&self);
}

impl Deliverer for Run {
    fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.wait_within(timeout)
    }

    fn take(&self) -> Result<Option<Delivery>, Error> {
        Ok(self.take()?.map(|(delivery, _)| delivery))
    }

    fn seek(&self, cursor: Cursor) {
        self.seek(cursor);
    }

    fn queue(&self) -> QueueSnapshot {
        self.queue()
    }

    fn workers(&self) -> usize {
        self.workers()
    }

    fn close(&self) {
        self.close();
    }
}

/// Opens a deliverer that goes on from a cursor and counts in the metrics of the stream.
pub type Open = Box<dyn Fn(&Cursor, &Arc<Metrics>) -> Result<Arc<dyn Deliverer>, Error> + Send + Sync>;
