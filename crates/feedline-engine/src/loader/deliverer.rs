//! The origin of a stream's batches: a run of this process, a node on this machine, or shared segments.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use feedline_data::batch::Batch;
use feedline_memory::Pool;
use feedline_order::ShareIndex;

use crate::error::Error;
use crate::metrics::{Metrics, QueueSnapshot};
use crate::run::{Delivery, Run};
use crate::state::{Cursor, Received};

/// Delivers the batches of a plan one after the other, epoch after epoch.
pub trait Deliverer: Send + Sync + Debug {
    /// Waits up to `timeout` for the next batch. Returns whether it is ready.
    fn wait_within(&self, timeout: Duration) -> Result<bool, Error>;

    /// Takes the next batch, if it is ready.
    fn take(&self) -> Result<Option<Delivered>, Error>;

    /// Continues from another place. Prepared batches are dropped.
    fn seek(&self, received: &Received);

    /// The batches that are ready or in preparation.
    fn queue(&self) -> QueueSnapshot;

    /// Number of preparer threads in this process.
    fn workers(&self) -> usize;

    /// Whether it is dropped when a consumer leaves an iteration early, to free memory and threads. The next iteration opens it
    /// again.
    fn ends_with_iteration(&self) -> bool {
        true
    }

    /// Returns the pool of its slabs, for the deliverer that replaces it. From now on [`Deliverer::close`] leaves their memory to
    /// the pool. `None` if it has no pool of its own.
    fn leave_slabs(&self) -> Option<Pool> {
        None
    }

    /// Ends all work within a second.
    fn close(&self);
}

/// A delivered batch.
#[derive(Debug)]
pub struct Delivered {
    /// The batch.
    pub batch: Batch,
    /// The place in the stream after this batch.
    pub after: Received,
    /// If the order was decided while the plan ran: the cursor before this batch, and its samples.
    pub arrived: Option<(Cursor, Vec<ShareIndex>)>,
}

/// Opens a deliverer that continues from a place and counts in the stream's metrics.
pub type Open = Box<dyn Fn(&Received, &Arc<Metrics>) -> Result<Arc<dyn Deliverer>, Error> + Send + Sync>;

impl Deliverer for Run {
    fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.wait_within(timeout)
    }

    fn take(&self) -> Result<Option<Delivered>, Error> {
        let Some((Delivery { batch, before, after, indices, .. }, _)) = self.take()? else { return Ok(None) };
        let arrived = (!indices.is_empty()).then_some((before, indices));
        Ok(Some(Delivered { batch, after: Received::Stream(after), arrived }))
    }

    fn seek(&self, received: &Received) {
        self.seek(received.cursor().clone());
    }

    fn queue(&self) -> QueueSnapshot {
        self.queue()
    }

    fn workers(&self) -> usize {
        self.workers()
    }

    fn leave_slabs(&self) -> Option<Pool> {
        Some(self.leave_slabs())
    }

    fn close(&self) {
        self.close();
    }
}
