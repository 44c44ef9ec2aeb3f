//! A job's connection to the node of its machine.
//!
//! In: the node's messages. Out: mapped memory of the node, each piece with a lease. A lease is returned when the last array over
//! its memory is dropped. A node that ends or stays silent is an error (law 7).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, process};

use feedline_data::failure::chain;
use feedline_data::plan::{Plan, PlanError};
use feedline_engine::error::Error;
use feedline_engine::machine::CoreWeight;
use feedline_memory::{Mutex, View, Views};

use super::channel::{Receiver, Sender, split};
use super::message::{FromJob, FromNode, JobPlan, PROTOCOL, Route};
use super::socket::{NodeSocket, SocketError};
use crate::wire::{WireError, engine_version};

/// How long a node may be silent. It sends a message every second.
const SILENCE: Duration = Duration::from_secs(20);
/// How long a node may take to open a plan.
const ATTACH_TIME: Duration = Duration::from_mins(2);

/// Why a job cannot attach to a node.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum AttachError {
    #[error(transparent)]
    NodeSocket(#[from] SocketError),
    #[error("the plan of this job cannot be sent to a node")]
    Plan(#[source] Box<PlanError>),
    #[error("the node at {socket:?} refuses this job: {reason}")]
    Refused { socket: PathBuf, reason: String },
    #[error("a node at {socket:?} could not be started: {reason}")]
    Start { socket: PathBuf, reason: String },
    #[error("the node at {socket:?} does not answer")]
    Wire { socket: PathBuf, source: WireError },
}

impl From<AttachError> for Error {
    /// A node that is missing, or ends while a job attaches, counts as lost.
    fn from(error: AttachError) -> Self {
        let reason = chain(&error);
        match error {
            AttachError::NodeSocket(SocketError::Nobody { path: socket, .. }) | AttachError::Wire { socket, .. } => {
                Self::Node { socket: socket.display().to_string(), reason }
            }
            _ => Self::Attach { reason },
        }
    }
}

/// A connection over which a job requests segments or batches.
pub(super) struct Attached {
    link: Arc<Link>,
    events: Mutex<mpsc::Receiver<NodeEvent>>,
    /// Number of requests without an answer.
    in_flight: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

/// Memory that a node lends, with its message.
#[derive(Debug)]
pub(super) struct Lent {
    pub message: FromNode,
    pub view: Arc<View>,
    pub lease: Arc<Lease>,
}

struct Link {
    sender: Sender,
    /// The process that attached. A forked child must not return leases.
    process: u32,
    socket: PathBuf,
    /// Number of calls of `change`. Memory with a smaller number was lent before the last change.
    generation: AtomicU64,
}

enum NodeEvent {
    /// Memory, and its generation.
    Lent(Box<Lent>, u64),
    Failed(String),
    /// The connection ended, or the node sent something invalid. With the reason, if it is known.
    Gone(Option<String>),
}

/// The right to read some memory of the node, until dropped.
pub(super) struct Lease {
    link: Weak<Link>,
    number: u64,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.number).finish()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A forked child shares the socket. If it returned leases too, the node would reuse memory that the parent still reads.
        if let Some(link) = self.link.upgrade().filter(|link| link.process == process::id()) {
            // A node that is gone needs nothing back.
            link.sender.send(&FromJob::GiveBack { number: self.number }, None).unwrap_or_default();
        }
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("socket", &self.link.socket).finish_non_exhaustive()
    }
}

impl Attached {
    /// Attaches to the node at `socket`. `key` identifies jobs that are served together; `route` says where this one continues.
    pub(super) fn attach(
        socket: &Path,
        plan: &Plan,
        key: u128,
        route: Route,
        weight: CoreWeight,
    ) -> Result<Self, AttachError> {
        let stream = NodeSocket::connect(socket)?;
        let wire = |source| AttachError::Wire { socket: socket.to_owned(), source };
        let (sender, mut receiver) = split(stream).map_err(|error| wire(error.into()))?;
        let document = plan.handed_over().map_err(|error| AttachError::Plan(Box::new(error)))?;
        // The node may run in another folder, so relative paths of the plan are made absolute before they are sent.
        let here = std::env::current_dir().unwrap_or_default();
        let hello = FromJob::Attach {
            protocol: PROTOCOL,
            engine: engine_version(),
            plan: JobPlan { text: document.seen_from(&here).to_toml(), rank: plan.config().rank, weight },
            key,
            route,
        };
        receiver.set_patience(Some(ATTACH_TIME)).map_err(|error| wire(error.into()))?;
        // A node that refuses may answer before it has received everything.
        let sent = sender.send(&hello, None);
        match receiver.receive().map_err(wire)? {
            Some((FromNode::Attached, _)) => sent.map_err(wire)?,
            Some((FromNode::Refused { reason }, _)) => {
                return Err(AttachError::Refused { socket: socket.to_owned(), reason });
            }
            // The node closed the connection, or sent another message. Both count as lost, so that a caller may start a new node.
            _ => return Err(wire(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into())),
        }
        receiver.set_patience(Some(SILENCE)).map_err(|error| wire(error.into()))?;
        let link =
            Arc::new(Link { sender, process: process::id(), socket: socket.to_owned(), generation: AtomicU64::new(0) });
        let (sender_of_events, events) = mpsc::channel();
        // Weak, so that arrays that outlive the loader do not keep the connection open.
        let leasing = Arc::downgrade(&link);
        let thread = thread::Builder::new().name("feedline-attached".to_owned()).spawn(move || {
            let why = forward_messages(&mut receiver, &leasing, &sender_of_events);
            // The receiver may be gone.
            drop(sender_of_events.send(NodeEvent::Gone(why)));
        });
        let thread = thread.map_err(|error| wire(error.into()))?;
        Ok(Self { link, events: Mutex::new(events), in_flight: AtomicU64::new(0), thread: Some(thread) })
    }

    fn gone(&self, reason: impl Into<String>) -> Error {
        Error::Node { socket: self.link.socket.display().to_string(), reason: reason.into() }
    }

    fn send(&self, message: &FromJob) -> Result<(), Error> {
        self.link.sender.send(message, None).map_err(|error| self.gone(chain(&error)))
    }

    /// Continues from another place. Memory that the node sent for the old place is returned unread.
    pub(super) fn change(&self, route: Route) -> Result<(), Error> {
        // Relaxed suffices: this only compares numbers, and the channel of events orders everything else.
        let generation = self.link.generation.fetch_add(1, Ordering::Relaxed) + 1;
        self.send(&FromJob::Change { generation, route })
    }

    /// Waits up to `timeout` for the next memory, with up to `ahead` requests in flight.
    pub(super) fn next_within(&self, ahead: u64, timeout: Duration) -> Result<Option<Lent>, Error> {
        let events = self.events.lock();
        let deadline = Instant::now() + timeout;
        // An error while sending is kept, and reported only if the node gave no reason itself.
        let mut send_error = None;
        loop {
            // Keeps `ahead` requests in flight, so that the node can send the next item while the user works on this one.
            while self.in_flight.load(Ordering::Relaxed) < ahead {
                self.in_flight.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = self.send(&FromJob::Next) {
                    // Ends the connection but does not return yet: messages that have arrived already may contain the reason.
                    self.link.sender.end();
                    send_error = Some(error);
                }
            }
            match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(NodeEvent::Lent(lent, generation)) => {
                    self.in_flight.fetch_sub(1, Ordering::Relaxed);
                    // Memory from before the last change is returned by dropping it.
                    if generation == self.link.generation.load(Ordering::Relaxed) {
                        return Ok(Some(*lent));
                    }
                }
                Ok(NodeEvent::Failed(reason)) => return Err(Error::Production { reason }),
                Ok(NodeEvent::Gone(Some(reason))) => return Err(self.gone(reason)),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Ok(NodeEvent::Gone(None)) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(send_error.unwrap_or_else(|| self.gone("it closed the connection")));
                }
            }
        }
    }
}

/// Forwards the node's messages until the connection ends. Returns the reason, if there is one.
fn forward_messages(receiver: &mut Receiver, link: &Weak<Link>, events: &mpsc::Sender<NodeEvent>) -> Option<String> {
    let views = Views::new();
    loop {
        let event = match receiver.receive() {
            Ok(Some((message, Some(memory)))) => {
                let (generation, number, bytes) = match &message {
                    FromNode::Segment(segment) => (segment.generation, segment.number, segment.bytes),
                    FromNode::Batch(batch) => (batch.generation, batch.number, batch.bytes),
                    _ => return Some("it sent memory that was not requested".to_owned()),
                };
                if let Some(link) = link.upgrade() {
                    // Acknowledges the message, not the memory: the node limits how many messages a job leaves unread. An error is
                    // ignored, because the next `receive` reports a node that is gone.
                    link.sender.send(&FromJob::Received, None).unwrap_or_default();
                }
                // The lease exists before the memory is mapped, so a failed mapping returns the memory too.
                let lease = Arc::new(Lease { link: Weak::clone(link), number });
                match views.view(&memory, usize::try_from(bytes).unwrap_or(usize::MAX)) {
                    Ok(view) => NodeEvent::Lent(Box::new(Lent { message, view: Arc::new(view), lease }), generation),
                    Err(error) => return Some(format!("its memory cannot be mapped: {error}")),
                }
            }
            Ok(Some((FromNode::Alive, _))) => {
                // The sign of life comes every second, which is a good rhythm to unmap views that are no longer used.
                views.sort_out();
                continue;
            }
            Ok(Some((FromNode::Failed { reason }, _))) => NodeEvent::Failed(reason),
            Ok(Some((FromNode::Refused { reason }, _))) => return Some(reason),
            Ok(Some(_)) => return Some("it sent an unexpected message".to_owned()),
            Ok(None) => return None,
            Err(error) => return Some(chain(&error)),
        };
        if events.send(event).is_err() {
            return None;
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Shuts the socket down, which wakes the thread that blocks in `receive`. Only then can it be joined.
        self.link.sender.end();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that receives the node's messages panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use feedline_data::testing::open;

    use super::*;

    const PATIENCE: Duration = Duration::from_mins(1);

    /// The errors that a job gets if the node attaches it, sends `last_word` and ends the connection.
    fn heard(last_word: FromNode) -> [Error; 2] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let socket = folder.path().join("node.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let node = thread::spawn(move || {
            let (sender, mut receiver) = split(listener.accept().unwrap().0).unwrap();
            assert!(matches!(receiver.receive().unwrap(), Some((FromJob::Attach { .. }, None))));
            sender.send(&FromNode::Attached, None).unwrap();
            sender.send(&last_word, None).unwrap();
            sender.end();
        });
        let plan = open("batch_size = 4\n[source]\nkind = \"synthetic\"\nn = 8\nshape = [8]\n").unwrap();
        let attached = Attached::attach(&socket, &plan, 0, Route::Share(String::new()), CoreWeight::ONE).unwrap();
        node.join().unwrap();
        [(); 2].map(|()| attached.next_within(2, PATIENCE).unwrap_err())
    }

    #[test]
    fn what_a_node_said_before_it_ended_is_heard_by_who_asks_too_late() {
        let [failed, gone] = heard(FromNode::Failed { reason: "the memory is full".to_owned() });
        assert!(matches!(&failed, Error::Production { reason } if reason == "the memory is full"), "{failed:?}");
        assert!(matches!(&gone, Error::Node { .. }), "{gone:?}");
        let [refused, gone] = heard(FromNode::Refused { reason: "no such epoch".to_owned() });
        assert!(matches!(&refused, Error::Node { reason, .. } if reason == "no such epoch"), "{refused:?}");
        assert!(matches!(&gone, Error::Node { .. }), "{gone:?}");
        let [broken, _] = heard(FromNode::Alive);
        assert!(matches!(&broken, Error::Node { reason, .. } if reason.contains("Broken pipe")), "{broken:?}");
    }
}
