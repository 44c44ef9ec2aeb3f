//! The node of a machine.
//!
//! In: connections of jobs. Out: leased segments. The node runs until it is dropped. Then its socket disappears, and its jobs
//! continue as they are configured. Everything in a job's message is checked: sizes, numbers and plans. On request it serves its
//! metrics over HTTP, to this machine only.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use feedline_data::plan::{Registry, Workers};
use feedline_engine::machine::{Cores, Machine};
use feedline_memory::Mutex;

use super::attached::AttachError;
use super::channel::split;
use super::message::{FromJob, FromNode, PROTOCOL};
use super::meter::JobMeter;
use super::page;
use super::runs::Runs;
use super::session::serve;
use super::socket::{NodeSocket, SocketError};
use super::stats::NodeStats;
use crate::http::{HttpError, HttpServer};

/// How long a node may take to send its metrics.
const STATS_TIME: Duration = Duration::from_secs(5);
/// Upper limit of jobs.
const MAX_JOBS: usize = 1024;

/// The configuration of a node.
#[derive(Debug)]
pub struct NodeConfig {
    /// The path of its socket.
    pub socket: PathBuf,
    /// Upper limit of bytes for all segments.
    pub memory_bytes: u64,
    /// The resources of the machine.
    pub machine: Machine,
    /// What plans may name.
    pub registry: Arc<Registry>,
    /// The address of its HTTP pages, if wanted.
    pub http: Option<SocketAddr>,
}

/// Why a node cannot be started.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the causes say it")]
pub enum NodeError {
    #[error(transparent)]
    NodeSocket(#[from] SocketError),
    #[error(
        "the pages of a node are for this machine only, but {listen} is for others too; listen on 127.0.0.1 and forward the port (ssh -L)"
    )]
    HttpForOthers { listen: SocketAddr },
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("cannot start a thread of the node")]
    Thread(#[source] io::Error),
}

/// A node that runs until it is dropped.
#[derive(Debug)]
pub struct Node {
    shared: Arc<NodeShared>,
    http: Option<HttpServer>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct NodeShared {
    socket: NodeSocket,
    runs: Runs,
    memory_bytes: u64,
    began: Instant,
    jobs: Mutex<BTreeMap<u64, ConnectedJob>>,
    attached: AtomicU64,
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct ConnectedJob {
    stream: UnixStream,
    meter: Option<Arc<JobMeter>>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Starts the node.
    pub fn start(config: NodeConfig) -> Result<Self, NodeError> {
        let NodeConfig { socket, memory_bytes, machine, registry, http } = config;
        // The pages have no authentication, so they are refused for any address that other machines can reach.
        if let Some(listen) = http.filter(|listen| !listen.ip().is_loopback()) {
            return Err(NodeError::HttpForOthers { listen });
        }
        // All productions share the cores and the cached samples.
        let cores = Some(Cores::new(Workers::Auto.count()));
        let machine = Machine { cores, memories: Some(Arc::default()), ..machine };
        let shared = Arc::new(NodeShared {
            socket: NodeSocket::take(&socket)?,
            runs: Runs::new(registry, machine, memory_bytes),
            memory_bytes,
            began: Instant::now(),
            jobs: Mutex::default(),
            attached: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        });
        let of_pages = Arc::clone(&shared);
        let routes = page::routes(move || of_pages.stats());
        let http = http.map(|listen| HttpServer::start(listen, routes)).transpose()?;
        let accepting = Arc::clone(&shared);
        let thread = thread::Builder::new().name("feedline-node".to_owned()).spawn(move || accepting.accept());
        Ok(Self { shared, http, thread: Some(thread.map_err(NodeError::Thread)?) })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        self.shared.socket.path()
    }

    /// Where its pages are, if it has some.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpServer::address)
    }

    /// Number of connected jobs, and of all jobs so far.
    pub fn jobs(&self) -> (usize, u64) {
        (self.shared.jobs.lock().len(), self.shared.attached.load(Ordering::Relaxed))
    }

    /// Its metrics.
    pub fn stats(&self) -> NodeStats {
        self.shared.stats()
    }
}

/// The metrics of the node at a socket, as JSON of [`NodeStats`].
pub fn fetch_stats(socket: &Path) -> Result<String, AttachError> {
    let wire = |source| AttachError::Wire { socket: socket.to_owned(), source };
    let (sender, mut receiver) = split(NodeSocket::connect(socket)?).map_err(|error| wire(error.into()))?;
    receiver.set_patience(Some(STATS_TIME)).map_err(|error| wire(error.into()))?;
    sender.send(&FromJob::GetStats { protocol: PROTOCOL }, None).map_err(wire)?;
    match receiver.receive().map_err(wire)? {
        Some((FromNode::Stats { json }, _)) => Ok(json),
        Some((FromNode::Refused { reason }, _)) => Err(AttachError::Refused { socket: socket.to_owned(), reason }),
        _ => Err(wire(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
    }
}

impl NodeShared {
    fn stats(&self) -> NodeStats {
        let job = |(number, job): (&u64, &ConnectedJob)| Some(job.meter.as_ref()?.stats(*number));
        let jobs = self.jobs.lock().iter().filter_map(job).collect();
        let runs = self.runs.stats();
        NodeStats {
            seconds: self.began.elapsed().as_secs_f64(),
            jobs_attached_total: self.attached.load(Ordering::Relaxed),
            memory_bytes: self.memory_bytes,
            live_bytes: runs.iter().map(|run| run.carousel.live_bytes).sum(),
            runs,
            jobs,
        }
    }

    fn accept(self: &Arc<Self>) {
        for (number, stream) in (0..).zip(self.socket.listener().incoming()) {
            if self.is_closed.load(Ordering::Relaxed) {
                return;
            }
            let taken = stream.and_then(|stream| self.take(number, stream));
            if let Err(error) = taken {
                tracing::warn!(%error, "could not accept a job");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn take(self: &Arc<Self>, number: u64, stream: UnixStream) -> io::Result<()> {
        // Locked until the job is inserted. The new thread removes its entry at its end, so the entry must exist first.
        let mut jobs = self.jobs.lock();
        if jobs.len() >= MAX_JOBS {
            return Err(io::Error::other(format!("there are {MAX_JOBS} jobs already")));
        }
        let kept = stream.try_clone()?;
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name(format!("feedline-job-{number}")).spawn(move || {
            let meter = |process, key| shared.attach(number, JobMeter::new(process, key));
            let stats = || serde_json::to_string(&shared.stats()).expect("numbers are plain data");
            if let Err(error) = serve(stream, &shared.runs, meter, stats) {
                tracing::debug!(%error, "the connection of a job broke");
            }
            // The thread of the job is this one, so its handle is dropped without a join.
            // Dropped after the lock is released, because dropping a connection may take time.
            let left = shared.jobs.lock().remove(&number);
            drop(left);
        })?;
        jobs.insert(number, ConnectedJob { stream: kept, meter: None, thread: Some(thread) });
        Ok(())
    }

    fn attach(&self, number: u64, meter: JobMeter) -> Arc<JobMeter> {
        self.attached.fetch_add(1, Ordering::Relaxed);
        let meter = Arc::new(meter);
        if let Some(job) = self.jobs.lock().get_mut(&number) {
            job.meter = Some(Arc::clone(&meter));
        }
        meter
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.http.take());
        let shared = &*self.shared;
        // Relaxed suffices: the thread checks the flag after `accept` returns, which the connection below causes.
        shared.is_closed.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let woken = UnixStream::connect(shared.socket.path());
        let mut threads: Vec<JoinHandle<()>> = self.thread.take().filter(|_| woken.is_ok()).into_iter().collect();
        for job in shared.jobs.lock().values_mut() {
            // It may have ended already.
            job.stream.shutdown(Shutdown::Both).unwrap_or_default();
            threads.extend(job.thread.take());
        }
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the node panicked");
            }
        }
    }
}
