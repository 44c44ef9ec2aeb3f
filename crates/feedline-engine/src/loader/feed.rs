//! The origin of a job's segments: a node on this machine, or a carousel in this process.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use feedline_memory::{Slab, Span, View};
use feedline_order::Epoch;

use crate::carousel::{BadSlot, Carousel, JobId, Leased, SegmentContent};
use crate::error::Error;
use crate::machine::CoreWeight;
use crate::state::{JobProgress, SegmentRound};

/// Delivers the segments of one job.
pub trait Feed: Send + Sync + Debug {
    /// Continues from another progress. Segments that were announced before are void.
    fn change(&self, job_progress: &JobProgress) -> Result<(), Error>;

    /// Waits up to `timeout` for the next segment.
    fn next_within(&self, timeout: Duration) -> Result<Option<Segment>, Error>;
}

/// Opens a feed that continues from a job's progress.
pub type Connect = Box<dyn Fn(&JobProgress) -> Result<Arc<dyn Feed>, Error> + Send + Sync>;

/// A segment that a job may read while it holds the lease.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The job's epoch that it belongs to.
    pub epoch: Epoch,
    /// Which segment, in which round.
    pub segment_round: SegmentRound,
    /// Number of samples that are missing at its start.
    pub skipped: u64,
    /// Whether batches may be views of it, which keep it as long as the user keeps them.
    pub can_be_kept: bool,
    /// Its memory. The first slot is that of the first sample present.
    pub memory: SegmentMemory,
    /// Slots with substitutes in them.
    pub bad: Arc<[BadSlot]>,
    /// The lease. It ends when the last clone is dropped.
    pub lease: Arc<dyn Any + Send + Sync>,
}

/// The memory of a segment.
#[derive(Clone, Debug)]
pub enum SegmentMemory {
    /// Memory of this process.
    Slab(Arc<Slab>),
    /// Memory of a node.
    View(Arc<View>),
}

impl Segment {
    /// Bytes of its memory. They keep the lease.
    pub fn span(&self, range: Range<usize>) -> Span {
        let span = match &self.memory {
            SegmentMemory::Slab(slab) => Span::of_slab(slab, range),
            SegmentMemory::View(view) => Span::of_view(view, range),
        };
        span.keeping(Arc::clone(&self.lease))
    }
}

/// A feed from a carousel of this process.
#[derive(Debug)]
pub struct LocalFeed {
    carousel: Arc<Carousel>,
    job: JobId,
}

impl LocalFeed {
    /// Joins a carousel.
    pub fn join(carousel: &Arc<Carousel>, job_progress: &JobProgress) -> Result<Self, Error> {
        Ok(Self { carousel: Arc::clone(carousel), job: carousel.join(job_progress, CoreWeight::ONE)? })
    }
}

struct Lease {
    /// Weak, because the memory may outlive the carousel.
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
            // Every batch that views the segment clones this lease. The carousel gets the segment back when the last one is
            // dropped.
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
