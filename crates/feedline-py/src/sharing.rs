//! Connects a loader to a node, and lets it continue without one.
//!
//! Always true: attaching may take as long as the node needs to open the plan, but Ctrl-C ends the wait at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use feedline_data::plan::Plan;
use feedline_engine::carousel::{Carousel, Memory};
use feedline_engine::error::Error;
use feedline_engine::loader::{Connect, Deliverer, Feed, LocalFeed, Open};
use feedline_engine::machine::{CoreWeight, Machine};
use feedline_engine::metrics::Metrics;
use feedline_engine::state::{JobProgress, Received};
use feedline_memory::Mutex;
use feedline_net::node::{AttachError, NodeBatches, NodeFeed, attach_or_start};
use pyo3::prelude::*;

use crate::signals::SIGNAL_CHECK;

/// Divisor of the machine's memory: a job that continues alone gets one part of this many for segments.
const ALONE_DIVISOR: u64 = 4;
/// Upper limit of segments of a job that continues alone: those being read, those kept by arrays, and those prepared ahead.
const ALONE_SEGMENTS: u64 = 12;

/// Connects one loader to a node.
pub(crate) struct NodeConnection {
    plan: Arc<Plan>,
    socket: PathBuf,
    /// Starts a node if there is none.
    command: Option<Vec<String>>,
    weight: CoreWeight,
    /// The exception of a signal that came while the loader waited for the node.
    raised: Mutex<Option<PyErr>>,
}

impl NodeConnection {
    /// For the node at `socket`. If there is none, `command` starts it.
    pub(crate) fn new(plan: Arc<Plan>, socket: PathBuf, command: Option<Vec<String>>, weight: CoreWeight) -> Self {
        Self { plan, socket, command, weight, raised: Mutex::default() }
    }

    /// Attaches at the request for the first batch.
    pub(crate) fn connect(self: &Arc<Self>) -> Connect {
        let connection = Arc::clone(self);
        Box::new(move |job_progress: &JobProgress| {
            let (job_progress, weight) = (job_progress.clone(), connection.weight);
            let attach = move |socket: &Path, plan: &Arc<Plan>| NodeFeed::attach(socket, plan, &job_progress, weight);
            let feed = connection.attach_with(attach)?;
            Ok(Arc::new(feed) as Arc<dyn Feed>)
        })
    }

    /// Attaches for the share of a rank at the request for its first batch.
    pub(crate) fn open(self: &Arc<Self>) -> Open {
        let connection = Arc::clone(self);
        Box::new(move |received: &Received, metrics: &Arc<Metrics>| {
            let (cursor, metrics, weight) = (received.cursor().clone(), Arc::clone(metrics), connection.weight);
            let attach =
                move |socket: &Path, plan: &Arc<Plan>| NodeBatches::attach(socket, plan, &cursor, &metrics, weight);
            let batches = connection.attach_with(attach)?;
            Ok(Arc::new(batches) as Arc<dyn Deliverer>)
        })
    }

    /// Raises the exception of a signal that came while the loader waited for the node.
    pub(crate) fn check_interrupt(&self) -> PyResult<()> {
        self.raised.lock().take().map_or(Ok(()), Err)
    }

    /// Attaches in another thread, so that this one can check for signals. After a signal, the other thread ends by itself.
    fn attach_with<T: Send + 'static>(
        self: &Arc<Self>,
        attach: impl Fn(&Path, &Arc<Plan>) -> Result<T, AttachError> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let connection = Arc::clone(self);
        let body = move || {
            let attach = |socket: &Path| attach(socket, &connection.plan);
            let attached = match &connection.command {
                Some(command) => attach_or_start(&connection.socket, command, attach),
                None => attach(&connection.socket),
            };
            // After a signal the receiver is gone.
            drop(sender.send(attached));
        };
        let failed = |reason: String| Error::Attach { reason };
        thread::Builder::new().name("feedline-attach".to_owned()).spawn(body).map_err(Error::Thread)?;
        loop {
            match receiver.recv_timeout(SIGNAL_CHECK) {
                Ok(attached) => return attached.map_err(Error::from),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(failed("the thread that attaches panicked".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(raised) = Python::try_attach(|py| py.check_signals().err()).flatten() {
                // The engine's error has no place for a Python exception, so it is kept here until `check_interrupt` raises it.
                *self.raised.lock() = Some(raised);
                return Err(failed("interrupted".to_owned()));
            }
        }
    }
}

/// Produces the samples in this process, without a node.
pub(crate) fn alone(plan: Arc<Plan>, machine: Machine) -> Connect {
    Box::new(move |job_progress: &JobProgress| {
        let most = machine.memory_bytes.unwrap_or(u64::MAX) / ALONE_DIVISOR;
        let slab_bytes = plan.production().map_or(0, |production| production.layout().slab().total_bytes() as u64);
        // A single job never reads a segment twice, so more memory would not help.
        let memory_bytes = most.min(ALONE_SEGMENTS * slab_bytes);
        let carousel = Carousel::start(&plan, &machine, Memory::Heap, memory_bytes)?;
        Ok(Arc::new(LocalFeed::join(&Arc::new(carousel), job_progress)?))
    })
}
