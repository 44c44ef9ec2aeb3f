//! Where the batches of a stream come from: a run of this process, a node on this machine, or segments that other jobs get too.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use feedline_data::batch::Batch;
use feedline_order::ShareIndex;

use crate::error::Error;
use crate::metrics::{Metrics, QueueSnapshot};
use crate::run::{Delivery, Run};
use crate::state::{Cursor, Received};

/// Gives the batches of a plan one after the other, epoch after epoch.
pub trait Deliverer: Send + Sync + Debug {
    /// Waits up to `timeout` until the next batch can be taken; says whether it can.
    fn wait_within(&self, timeout: Duration) -> Result<bool, Error>;

    /// Takes the next batch, if it can be taken.
    fn take(&self) -> Result<Option<Delivered>, Error>;

    /// Goes on from a place; what was prepared and not taken is dropped.
    fn seek(&self, received: &Received);

    /// What waits to be taken.
    fn queue(&self) -> QueueSnapshot;

    /// Threads of this process at work.
    fn workers(&self) -> usize;

    /// Whether it is dropped when a consumer leaves an iteration early, to free its memory and threads, and opened anew for the
    /// next one.
    fn ends_with_iteration(&self) -> bool {
        true
    }

    /// Ends everything within a second.
    fn close(&self);
}

/// A batch that was taken.
#[derive(Debug)]
pub struct Delivered {
    /// The batch.
    pub batch: Batch,
    /// What has been received with it.
    pub after: Received,
    /// Where the order was decided while the plan ran: what had been received before, and the samples.
    pub arrived: Option<(Cursor, Vec<ShareIndex>)>,
}

/// Opens a deliverer that goes on from a place and counts in the metrics of the stream.
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

    fn close(&self) {
        self.close();
    }
}
