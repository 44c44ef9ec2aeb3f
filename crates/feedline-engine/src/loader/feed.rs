//! Where a job that shares gets its segments: from a node on this machine, or from a carousel of its own.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use feedline_memory::{Slab, Span, View};
use feedline_order::Epoch;

use crate::carousel::{BadSlot, Carousel, JobId, Leased, SegmentContent};
use crate::error::Error;
use crate::state::{JobProgress, SegmentRound};

/// Gives a job its segments.
pub trait Feed: Send + Sync + Debug {
    /// Goes on from where a ride stands; what was given before is not meant any more.
    fn change(&self, job_progress: &JobProgress) -> Result<(), Error>;

    /// Waits up to `timeout` for the next segment.
    fn next_within(&self, timeout: Duration) -> Result<Option<Segment>, Error>;
}

/// Gives a feed that goes on from where a ride stands.
pub type Connect = Box<dyn Fn(&JobProgress) -> Result<Arc<dyn Feed>, Error> + Send + Sync>;

/// A segment that a job may read for as long as it keeps the lease.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The epoch of the job that it belongs to.
    pub epoch: Epoch,
    /// What it is.
    pub segment_round: SegmentRound,
    /// Samples at its beginning that are not there.
    pub skipped: u64,
    /// Whether batches may be views of it, which keep it for as long as the user does.
    pub can_be_kept: bool,
    /// Its memory; the first slot is that of the first sample that is there.
    pub memory: SegmentMemory,
    /// Slots with substitutes in them.
    pub bad: Arc<[BadSlot]>,
    /// Ends when the last clone is dropped.
    pub lease: Arc<dyn Any + Send + Sync>,
}

/// The memory of a segment.
#[derive(Clone, Debug)]
pub enum SegmentMemory {
    /// Of this process.
    Slab(Arc<Slab>),
    /// Of a node.
    View(Arc<View>),
}

impl Segment {
    /// Bytes of its memory, which keep the lease.
    pub fn span(&self, range: Range<usize>) -> Span {
        let span = match &self.memory {
            SegmentMemory::Slab(slab) => Span::of_slab(slab, range),
            SegmentMemory::View(view) => Span::of_view(view, range),
        };
        span.keeping(Arc::clone(&self.lease))
    }
}

/// A carousel of this process.
#[derive(Debug)]
pub struct LocalFeed {
    carousel: Arc<Carousel>,
    job: JobId,
}

impl LocalFeed {
    /// Boards a carousel.
    pub fn board(carousel: &Arc<Carousel>, job_progress: &JobProgress) -> Result<Self, Error> {
        Ok(Self { carousel: Arc::clone(carousel), job: carousel.board(job_progress)? })
    }
}

struct Lease {
    /// Not kept: the memory outlives the carousel.
    carousel: Weak<Carousel>,
    job: JobId,
    number: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(carousel) = self.carousel.upgrade() {
            carousel.give_back(self.job, self.number);
        }
    }
}

impl Feed for LocalFeed {
    fn change(&self, job_progress: &JobProgress) -> Result<(), Error> {
        self.carousel.change(self.job, job_progress);
        Ok(())
    }

    fn next_within(&self, timeout: Duration) -> Result<Option<Segment>, Error> {
        let leased = self.carousel.lease_within(self.job, timeout).map_err(Error::Carousel)?;
        Ok(leased.map(|Leased { number, epoch, segment_round, skipped, can_be_kept, content }| {
            let SegmentContent { slab, bad, .. } = content;
            let lease = Arc::new(Lease { carousel: Arc::downgrade(&self.carousel), job: self.job, number });
            Segment { epoch, segment_round, skipped, can_be_kept, memory: SegmentMemory::Slab(slab), bad, lease }
        }))
    }
}

impl Drop for LocalFeed {
    fn drop(&mut self) {
        self.carousel.leave(self.job);
    }
}
