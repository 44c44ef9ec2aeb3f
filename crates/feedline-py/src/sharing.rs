//! How a loader that shares gets to a node, and goes on without one.
//!
//! Always true: to attach may take as long as a node takes to open the plan, but Ctrl-C ends the wait within a moment.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use feedline_data::plan::Plan;
use feedline_engine::carousel::{Carousel, Memory};
use feedline_engine::error::Error;
use feedline_engine::loader::{Connect, Deliverer, Feed, LocalFeed, Open};
use feedline_engine::machine::Machine;
use feedline_engine::metrics::Metrics;
use feedline_engine::state::{JobProgress, Received};
use feedline_memory::Mutex;
use feedline_net::node::{AttachError, NodeBatches, NodeFeed, attach_or_start};
use pyo3::prelude::*;

use crate::signals::SIGNAL_CHECK;

/// The part of the machine's memory for segments of a job that goes on alone.
const ALONE_SHARE: u64 = 4;
/// And how many: what it reads, what arrays are kept over, and what is prepared ahead.
const ALONE_SEGMENTS: u64 = 12;

/// The way of one loader to a node.
pub(crate) struct Way {
    plan: Arc<Plan>,
    socket: PathBuf,
    /// Starts a node where there is none.
    command: Option<Vec<String>>,
    /// What a signal raised while the loader waited for the node.
    raised: Mutex<Option<PyErr>>,
}

impl Way {
    /// The way to the node at `socket`, which `command` starts where there is none.
    pub(crate) fn new(plan: Arc<Plan>, socket: PathBuf, command: Option<Vec<String>>) -> Self {
        Self { plan, socket, command, raised: Mutex::default() }
    }

    /// Attaches when the first batch is asked for.
    pub(crate) fn connect(self: &Arc<Self>) -> Connect {
        let way = Arc::clone(self);
        Box::new(move |job_progress: &JobProgress| {
            let job_progress = job_progress.clone();
            let feed = way.reach(move |socket, plan| NodeFeed::attach(socket, plan, &job_progress))?;
            Ok(Arc::new(feed) as Arc<dyn Feed>)
        })
    }

    /// Attaches for the share of a rank when its first batch is asked for.
    pub(crate) fn open(self: &Arc<Self>) -> Open {
        let way = Arc::clone(self);
        Box::new(move |received: &Received, metrics: &Arc<Metrics>| {
            let (cursor, metrics) = (received.cursor().clone(), Arc::clone(metrics));
            let batches = way.reach(move |socket, plan| NodeBatches::attach(socket, plan, &cursor, &metrics))?;
            Ok(Arc::new(batches) as Arc<dyn Deliverer>)
        })
    }

    /// Raises what a signal raised while the loader waited for the node.
    pub(crate) fn check_interrupt(&self) -> PyResult<()> {
        self.raised.lock().take().map_or(Ok(()), Err)
    }

    /// Attaches in another thread, so that signals are heard meanwhile. One that is left alone ends by itself.
    fn reach<T: Send + 'static>(
        self: &Arc<Self>,
        attach: impl Fn(&Path, &Arc<Plan>) -> Result<T, AttachError> + Send + 'static,
    ) -> Result<T, Error> {
        let (told, heard) = mpsc::sync_channel(1);
        let way = Arc::clone(self);
        let body = move || {
            let attach = |socket: &Path| attach(socket, &way.plan);
            let attached = match &way.command {
                Some(command) => attach_or_start(&way.socket, command, attach),
                None => attach(&way.socket),
            };
            // Whoever asked may be gone.
            drop(told.send(attached));
        };
        let failed = |reason: String| Error::Attach { reason };
        thread::Builder::new().name("feedline-attach".to_owned()).spawn(body).map_err(Error::Thread)?;
        loop {
            match heard.recv_timeout(SIGNAL_CHECK) {
                Ok(attached) => return attached.map_err(Error::from),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(failed("the thread that attaches panicked".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(raised) = Python::try_attach(|py| py.check_signals().err()).flatten() {
                *self.raised.lock() = Some(raised);
                return Err(failed("interrupted".to_owned()));
            }
        }
    }
}

/// Goes on without a node.
pub(crate) fn alone(plan: Arc<Plan>, machine: Machine) -> Connect {
    Box::new(move |job_progress: &JobProgress| {
        let most = machine.memory_bytes.unwrap_or(u64::MAX) / ALONE_SHARE;
        let slab_bytes = plan.production().map_or(0, |production| production.layout().slab().total_bytes() as u64);
        // One that is alone has no use for segments that it has read.
        let memory_bytes = most.min(ALONE_SEGMENTS * slab_bytes);
        let carousel = Carousel::start(&plan, &machine, Memory::Heap, memory_bytes)?;
        Ok(Arc::new(LocalFeed::join(&Arc::new(carousel), job_progress)?))
    })
}
