//! The server: connections, workers, limits.
//!
//! In: a root and an address. Out: replies to authenticated clients. Dropping it ends all connections.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use feedline_data::memory::Cancel;
use feedline_engine::supply::NearWorkspace;

use super::answer::{self, Answered};
use super::cpu::Cpu;
use super::fair::FairQueue;
use super::greeting::{Greeted, greet};
use super::half_open::{HalfOpen, HalfOpenPlace};
use super::plans::Plans;
use super::root::Root;
use super::session::{self, Shared};
use super::tally::ServerStats;
use super::throttle::Throttle;
use super::token::Token;
use crate::http::{HttpError, HttpServer, Routes};
use crate::tls::Identity;
use crate::wire::WireError;

/// Upper limit of clients. Further ones are rejected with the reason.
const MAX_CONNECTIONS: usize = 256;
/// The default memory for the replies of all connections.
pub const REPLY_MEMORY_BYTES: u64 = 1 << 30;
/// Length of the listen queue. A client that finds it full tries again only after a second.
const BACKLOG: i32 = 4096;
/// How long a client may be silent before TCP checks whether its machine is still there.
const KEEP_ALIVE: Duration = Duration::from_mins(1);
/// Pause after the system could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// What is served.
    pub root: Root,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Number of cores to use. It may be fractional.
    pub cpus: f64,
    /// The secret that clients must know.
    pub token: Option<Token>,
    /// Certificate and key, for TLS.
    pub identity: Option<Identity>,
    /// Upper limit of bytes for the replies of all connections, from preparation to sending.
    pub memory_bytes: u64,
    /// Upper limit of the sending speed, in megabits per second.
    pub link_mbps: Option<f64>,
    /// Where to keep what is found out about the data, such as seek indexes.
    pub cache_folder: Option<PathBuf>,
    /// The address of its HTTP pages, if wanted.
    pub http: Option<SocketAddr>,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ServerError {
    #[error(
        "without a token only clients on this machine are served, but other machines can reach {listen}; give --token-file, or listen on 127.0.0.1"
    )]
    NeedsToken { listen: SocketAddr },
    #[error("a server needs more than 0 cores, but it may use {cpus}")]
    Cpus { cpus: f64 },
    #[error("cannot listen on {listen}")]
    Listen { listen: SocketAddr, source: io::Error },
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// What is needed to read the metrics of a server.
#[derive(Clone, Debug)]
struct StatsSource {
    shared: Shared,
    cpus: f64,
    began: Instant,
}

impl StatsSource {
    fn read(&self) -> ServerStats {
        let (connections, reply_bytes) = self.shared.fair.usage();
        ServerStats {
            uptime_seconds: self.began.elapsed().as_secs_f64(),
            connections,
            reply_bytes,
            cpu_seconds: self.shared.cpu.spent().as_secs_f64(),
            cpus: self.cpus,
            ..self.shared.tally.stats()
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stats: StatsSource,
    http: Option<HttpServer>,
    half_open: Arc<HalfOpen>,
    is_closed: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts the server.
    pub fn start(config: ServerConfig) -> Result<Self, ServerError> {
        let ServerConfig { root, listen, cpus, token, identity, memory_bytes, link_mbps, http, cache_folder } = config;
        if !(cpus > 0.0 && cpus.is_finite()) {
            return Err(ServerError::Cpus { cpus });
        }
        // Without a token only the loopback interface is allowed, also for the HTTP pages.
        for listen in [Some(listen), http].into_iter().flatten() {
            if token.is_none() && !listen.ip().is_loopback() {
                return Err(ServerError::NeedsToken { listen });
            }
        }
        let failed = |source| ServerError::Listen { listen, source };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        socket2::SockRef::from(&listener).listen(BACKLOG).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let throttle = link_mbps.map(Throttle::new).map(Arc::new);
        let plans = Arc::new(Plans::new(&Arc::new(root.clone()), cache_folder));
        let shared = Shared {
            fair: Arc::new(FairQueue::new(memory_bytes)),
            tally: Arc::default(),
            cpu: Arc::new(Cpu::new(cpus)),
            throttle,
            token,
            identity,
            plans,
            longest_listing: Arc::default(),
            cancel: Cancel::default(),
        };
        let is_closed = Arc::new(AtomicBool::new(false));
        let stats = StatsSource { shared: shared.clone(), cpus, began: Instant::now() };
        let half_open = Arc::<HalfOpen>::default();
        let mut server = Self {
            address,
            stats,
            http: None,
            half_open: Arc::clone(&half_open),
            is_closed: Arc::clone(&is_closed),
            threads: Vec::new(),
        };
        let of_pages = server.stats.clone();
        let routes = Routes::of_numbers(move || of_pages.read());
        server.http = http.map(|http| HttpServer::start(http, routes)).transpose()?;
        // A fraction of a core needs a thread too. The allowance of `Cpu` limits them together.
        for number in 0..cpus.ceil() as usize {
            let (shared, root) = (shared.clone(), root.clone());
            server.begin(format!("feedline-storage-{number}"), move || work(&shared, &root))?;
        }
        server.begin("feedline-accept".to_owned(), move || accept(&listener, &half_open, &shared, &is_closed))?;
        Ok(server)
    }

    fn begin(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
        self.threads.push(thread::Builder::new().name(name).spawn(body).map_err(ServerError::Thread)?);
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.stats.shared.fair.usage().0
    }

    /// Its metrics.
    pub fn stats(&self) -> ServerStats {
        self.stats.read()
    }

    /// Where its pages are, if it has some.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpServer::address)
    }

    /// Changes the limit of the sending speed, in megabits per second, if there was one from the start.
    pub fn set_link_mbps(&self, megabits_per_second: f64) {
        if let Some(throttle) = &self.stats.shared.throttle {
            throttle.set(megabits_per_second);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The flag first: the accepting thread checks it after each connection, including the one below.
        self.is_closed.store(true, Ordering::Release);
        self.stats.shared.fair.close();
        self.half_open.close();
        self.stats.shared.cancel.cancel();
        // Wakes the accepting thread.
        if let Err(error) = TcpStream::connect_timeout(&self.address, Duration::from_millis(200)) {
            tracing::debug!(%error, "the listener had ended");
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the server panicked");
            }
        }
    }
}

fn work(shared: &Shared, root: &Root) {
    let mut meter = shared.cpu.meter();
    let mut workspace = NearWorkspace::new(shared.cancel.clone());
    while let Some((mut reservation, request)) = shared.fair.next_request() {
        let answered = catch_unwind(AssertUnwindSafe(|| {
            answer::answer(&request.0, root, shared, &mut reservation, &mut workspace)
        }));
        let answered = match answered {
            Ok(Ok(answered)) => Ok(answered),
            Ok(Err(error)) => {
                tracing::error!(error = %feedline_data::failure::chain(&error), "could not encode a reply");
                answer::failed(&request.0, &error.to_string()).map(Answered::Reply)
            }
            Err(_) => {
                // A panic in an op is a bug, but affects only this request.
                workspace = NearWorkspace::new(shared.cancel.clone());
                let reason = "the server panicked while it served this request, which is a bug; see its log";
                answer::failed(&request.0, reason).map(Answered::Reply)
            }
        };
        match answered {
            Ok(Answered::Reply(reply)) => shared.fair.put_reply(reservation, reply),
            Ok(Answered::NoRoom(bytes)) => shared.fair.put_back(reservation, request, bytes),
            Err(error) => tracing::error!(%error, "could not answer a request"),
        }
        meter.charge();
    }
}

fn accept(listener: &TcpListener, half_open: &Arc<HalfOpen>, shared: &Shared, is_closed: &AtomicBool) {
    while !is_closed.load(Ordering::Acquire) {
        let taken = listener.accept().and_then(|(socket, peer)| {
            // Takes a place among the half-open connections before a thread is started, so their number is bounded.
            let (place, ended) = half_open.enter(peer.ip(), &socket)?;
            shared.tally.connections.fetch_add(1, Ordering::Relaxed);
            shared.tally.refused.fetch_add(ended, Ordering::Relaxed);
            let of_connection = shared.clone();
            thread::Builder::new().name("feedline-client".to_owned()).spawn(move || {
                if let Err(error) = serve(socket, place, &of_connection) {
                    tracing::info!(error = %feedline_data::failure::chain(&error), "a connection has ended");
                }
            })
        });
        if let Err(error) = taken
            && !is_closed.load(Ordering::Acquire)
        {
            tracing::warn!(%error, "could not accept a connection");
            thread::sleep(ACCEPT_PAUSE);
        }
    }
}

/// Authenticates a client and gives its connection a number. A rejected client is told why.
fn welcome(socket: TcpStream, place: HalfOpenPlace, shared: &Shared) -> Result<(Greeted, u64), WireError> {
    socket.set_nodelay(true)?;
    let keep_alive = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 6);
    socket2::SockRef::from(&socket).set_tcp_keepalive(&keep_alive)?;
    socket.set_write_timeout(Some(session::SEND_TIME))?;
    let mut greeted = greet(socket, shared.token.as_ref(), shared.identity.as_ref())?;
    let Some(number) = shared.fair.enter(MAX_CONNECTIONS) else {
        let reason = format!("the server already has {MAX_CONNECTIONS} connections, which is the limit");
        let error = WireError::Busy(reason);
        greeted.reject(&error);
        return Err(error);
    };
    // The client is authenticated, so it no longer counts as half open.
    drop(place);
    match greeted.welcome() {
        Ok(()) => Ok((greeted, number)),
        Err(error) => {
            shared.fair.leave(number);
            Err(error)
        }
    }
}

fn serve(socket: TcpStream, place: HalfOpenPlace, shared: &Shared) -> Result<(), WireError> {
    let (greeted, number) = welcome(socket, place, shared).inspect_err(|_| {
        shared.tally.refused.fetch_add(1, Ordering::Relaxed);
    })?;
    let Greeted { stream, mut incoming, mut outgoing } = greeted;
    let stream = Arc::new(stream);
    let (sending, of_sender) = (Arc::clone(&stream), shared.clone());
    let sender = thread::Builder::new().name(format!("feedline-send-{number}")).spawn(move || {
        session::send(&sending, &mut outgoing, number, &of_sender);
    });
    let served = sender.map_err(WireError::from).map(|sender| {
        let received = session::receive(&stream, &mut incoming, number, shared);
        // Wakes the sending thread, which otherwise waits for replies.
        shared.fair.leave(number);
        if sender.join().is_err() {
            tracing::error!("the sending thread of a connection panicked");
        }
        received
    });
    // For the case that the sending thread could not start. Removing a connection twice does nothing.
    shared.fair.leave(number);
    served?
}
