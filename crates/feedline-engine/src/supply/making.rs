//! Samples that are made outside the engine, such as by worker processes that call a Python dataset.
//!
//! In: the samples of a task, and the slots that they go to. Out: for each sample whether it is in its slot, its bytes, or why it
//! failed. All samples of a task are made in one call, because a call to another process takes longer than a small sample.
//!
//! The arrays of samples, their *leaves*, are known only once the first sample was made. Batches that are opened later have a
//! region for each leaf, and workers write arrays straight into it. A batch may have any number of samples.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use feedline_data::batch::{BatchLayout, Leaf};
use feedline_data::cut::Cut;
use feedline_data::memory::Cancel;
use feedline_data::plan::Plan;
use feedline_memory::{Mutex, SharedSlab, SlotWriter};
use feedline_order::SampleRequest;

use super::{Loading, Ready, Supply, SupplyError, Task};

/// Makes samples. One call at a time for each worker.
pub trait SampleMaker: Send + Sync + Debug {
    /// Makes samples. An error concerns the whole call: the worker is gone, or the run was closed.
    fn make(&self, request: MakeRequest<'_>) -> Result<MadeSamples, MakeError>;
}

/// Samples to make.
#[derive(Debug)]
pub struct MakeRequest<'a> {
    /// The preparer thread that asks. It has a worker of its own.
    pub worker: usize,
    /// The samples, in slot order.
    pub samples: &'a [SampleRequest],
    /// Indices in the dataset's own form, if they are not numbers. Opaque to the engine.
    pub indices: Option<&'a [u8]>,
    /// The memory for their arrays. Without it all arrays come as payload.
    pub slots: Option<LeafSlots<'a>>,
    /// Ends the call early.
    pub cancel: &'a Cancel,
}

/// The slots that samples go to.
#[derive(Debug)]
pub struct LeafSlots<'a> {
    /// The slab.
    pub slab: SharedSlab<'a>,
    /// The region of its first leaf.
    pub first_region: usize,
    /// The slot of the first sample. The others follow.
    pub first_slot: usize,
    /// The form of the leaves, as a worker proposed it.
    pub form: Arc<LeafForm>,
}

/// The leaves of a dataset's samples, and how a sample is rebuilt from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafForm {
    /// The arrays.
    pub leaves: Vec<Leaf>,
    /// Opaque to the engine: how to rebuild a sample from its leaves.
    pub schema: Vec<u8>,
}

/// Samples that were made, in the order of the request. There are fewer than requested if the last one failed.
#[derive(Debug)]
pub struct MadeSamples {
    /// The samples.
    pub samples: Vec<Made>,
    /// The form of the leaves, if the worker saw it for the first time.
    pub form: Option<LeafForm>,
}

/// A sample that was made.
#[derive(Debug)]
pub struct Made {
    /// How long the dataset took.
    pub time: Duration,
    /// The sample.
    pub content: MadeContent,
}

/// The content of a sample.
#[derive(Debug)]
pub enum MadeContent {
    /// Its arrays are in its slot. Other values are in the payload, which is empty if there are none.
    InSlot(Vec<u8>),
    /// All of it is in the payload.
    Payload(Vec<u8>),
    /// An iterable dataset has ended, so there is no sample.
    Ended,
    /// The dataset raised an exception.
    Failed(Arc<dyn StdError + Send + Sync>),
}

impl MadeContent {
    /// The content as one value: a byte that says where the arrays are, then the payload. Empty if everything is in the slot.
    pub(crate) fn into_bytes(self) -> Result<Vec<u8>, Arc<dyn StdError + Send + Sync>> {
        let (kind, payload) = match self {
            Self::InSlot(payload) if payload.is_empty() => return Ok(payload),
            Self::InSlot(payload) => (IN_SLOT, payload),
            Self::Payload(payload) => (ALL_IN_PAYLOAD, payload),
            Self::Ended => (ENDED, Vec::new()),
            Self::Failed(error) => return Err(error),
        };
        // At the end, so that arrays in the payload stay aligned.
        let mut bytes = payload;
        bytes.push(kind);
        Ok(bytes)
    }
}

/// The last byte of a value whose arrays are in the slot.
const IN_SLOT: u8 = 0;
/// The last byte of a value that holds the whole sample.
const ALL_IN_PAYLOAD: u8 = 1;
/// The only byte of a value without a sample.
const ENDED: u8 = 2;

/// Why a call made no sample.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The run was closed.
    #[error("the run was closed")]
    Cancelled,
    /// The worker ended. Names the sample that it worked on, by its place in the request.
    #[error("worker {worker} ended")]
    WorkerLost {
        /// The number of the worker.
        worker: usize,
        /// The place of the sample in the request.
        sample: usize,
    },
    /// The worker answered something that makes no sense.
    #[error("worker {worker} gave an answer that cannot be read: {problem}")]
    Answer {
        /// The number of the worker.
        worker: usize,
        /// What is wrong with it.
        problem: String,
    },
}

/// A supply whose samples are made outside the engine.
#[derive(Debug)]
pub struct MakingSupply {
    plan: Arc<Plan>,
    maker: Arc<dyn SampleMaker>,
    learnt: Mutex<Learnt>,
}

#[derive(Debug)]
struct Learnt {
    slots: usize,
    form: Option<Arc<LeafForm>>,
    layout: Option<Arc<BatchLayout>>,
}

impl MakingSupply {
    /// A supply for a plan over a `DatasetSource`. Batches have at most `slots` samples.
    pub fn new(plan: Arc<Plan>, maker: Arc<dyn SampleMaker>, slots: usize) -> Self {
        Self { plan, maker, learnt: Mutex::new(Learnt { slots: slots.max(1), form: None, layout: None }) }
    }

    /// Makes room for batches of `slots` samples in slabs that are opened from now on.
    pub fn fit(&self, slots: usize) {
        let mut learnt = self.learnt.lock();
        if slots > learnt.slots {
            learnt.slots = slots;
            self.lay_out(&mut learnt);
        }
    }

    /// The form of the leaves, once a sample was made.
    pub fn form(&self) -> Option<Arc<LeafForm>> {
        self.learnt.lock().form.clone()
    }

    fn learn(&self, form: LeafForm) {
        let mut learnt = self.learnt.lock();
        // The first form stays: batches with slabs of several forms would only cost memory.
        if learnt.form.is_none() {
            learnt.form = Some(Arc::new(form));
            self.lay_out(&mut learnt);
        }
    }

    fn lay_out(&self, learnt: &mut Learnt) {
        let leaves = learnt.form.as_ref().map(|form| form.leaves.clone()).unwrap_or_default();
        // Without leaves only the number of slots changes. Arrays that are too large for a slab come as payload.
        let layouts =
            [leaves, Vec::new()].into_iter().map(|leaves| self.plan.layout().with_leaves(leaves, learnt.slots));
        learnt.layout = layouts.flatten().next().map(Arc::new);
    }
}

impl Supply for MakingSupply {
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        ready.ready(tasks);
    }

    fn load(&self, _: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        unreachable!("samples of this supply are made, not loaded: see Preparer::fill_all")
    }

    fn layout(&self) -> Option<Arc<BatchLayout>> {
        self.learnt.lock().layout.clone()
    }

    fn task_time(&self) -> Duration {
        // Another process has to wake up for each task.
        Duration::from_millis(1)
    }

    fn samples_ahead(&self) -> usize {
        // A worker may get a whole batch of small samples, so each needs one to work on and one to continue with.
        2 * self.plan.config().num_workers.count() * self.plan.settings().batch_size
    }

    fn makes_samples(&self) -> bool {
        true
    }

    fn make(&self, making: Making<'_>) -> Result<Vec<Made>, MakeError> {
        let Making { worker, samples, task, slots, cancel } = making;
        let form = self.form();
        let indices = task.given.as_ref().and_then(|given| given.indices.as_deref());
        let slab = task.writer.as_mut().and_then(SlotWriter::shared_slab);
        let slots = slab.zip(form).and_then(|(slab, form)| {
            // A slab that was opened before the form was known has no leaves.
            let first_region = slab.layout.regions().checked_sub(form.leaves.len())?;
            Some(LeafSlots { slab, first_region, first_slot: slots.start, form })
        });
        let made = self.maker.make(MakeRequest { worker, samples, indices, slots, cancel })?;
        if let Some(form) = made.form {
            self.learn(form);
        }
        Ok(made.samples)
    }
}

/// Samples of a task to make.
#[derive(Debug)]
pub struct Making<'a> {
    /// The number of the preparer thread.
    pub worker: usize,
    /// The samples, in slot order.
    pub samples: &'a [SampleRequest],
    /// Their slots.
    pub slots: std::ops::Range<usize>,
    /// Their task.
    pub task: &'a mut Task,
    /// Ends the call early.
    pub cancel: &'a Cancel,
}
