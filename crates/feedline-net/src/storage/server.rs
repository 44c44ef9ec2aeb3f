//! The server: connections, workers, limits.
//!
//! In: a root and an address. Out: replies to whoever may ask. Dropping it ends all connections.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use feedline_core::engine::Cancel;
use feedline_core::supply::NearWorkspace;

use super::cpu::Cpu;
use super::plans::Plans;
use super::root::Root;
use super::session::{self, Shared};
use super::tally::ServerStats;
use super::throttle::Throttle;
use super::token::Token;
use crate::http::{HttpError, HttpServer, Routes};
use crate::tls::{Identity, Stream};
use crate::wire::{Frame, Reply, WireError};

/// Connections at once; further ones are told so and closed.
const MOST_CONNECTIONS: usize = 256;
/// Connections that wait to be taken; one that finds no room is tried again by its system only after a second.
const BACKLOG: i32 = 4096;
/// How long a client may be silent before its machine is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_mins(1);
/// How long the server waits after the system could not give it a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What to serve, to whom.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// What is served.
    pub root: Root,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Cores to use; a part of one is possible.
    pub cpus: f64,
    /// The secret that clients have to know.
    pub token: Option<Token>,
    /// Who the server is, where it speaks TLS.
    pub identity: Option<Identity>,
    /// The most to send, in megabits per second.
    pub link_mbps: Option<f64>,
    /// Where to keep what is found out about the data, such as seek indexes.
    pub cache_folder: Option<PathBuf>,
    /// Where to say how it is doing, over HTTP.
    pub http: Option<SocketAddr>,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ServerError {
    #[error(
        "without a token only this machine may ask, but {listen} is for others too; give --token-file, or listen on 127.0.0.1"
    )]
    NeedsToken { listen: SocketAddr },
    #[error("a server needs a part of a core at least, but it may use {cpus} cores")]
    Cpus { cpus: f64 },
    #[error("cannot listen on {listen}")]
    Listen { listen: SocketAddr, source: io::Error },
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// What is needed to say what a server has done.
#[derive(Clone, Debug)]
struct StatsSource {
    shared: Shared,
    cpus: f64,
    began: Instant,
}

impl StatsSource {
    fn read(&self) -> ServerStats {
        ServerStats {
            uptime_seconds: self.began.elapsed().as_secs_f64(),
            connections: self.shared.fair.connections(),
            cpu_seconds: self.shared.cpu.spent().as_secs_f64(),
            cpus: self.cpus,
            ..self.shared.tally.stats()
        }
    }
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stats: StatsSource,
    http: Option<HttpServer>,
    is_closed: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve.
    pub fn start(config: ServerConfig) -> Result<Self, ServerError> {
        let ServerConfig { root, listen, cpus, token, identity, link_mbps, http, cache_folder } = config;
        if !(cpus > 0.0 && cpus.is_finite()) {
            return Err(ServerError::Cpus { cpus });
        }
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
            fair: Arc::default(),
            tally: Arc::default(),
            cpu: Arc::new(Cpu::new(cpus)),
            throttle,
            token,
            identity,
            plans,
            cancel: Cancel::default(),
        };
        let is_closed = Arc::new(AtomicBool::new(false));
        let stats = StatsSource { shared: shared.clone(), cpus, began: Instant::now() };
        let mut server = Self { address, stats, http: None, is_closed: Arc::clone(&is_closed), threads: Vec::new() };
        let of_pages = server.stats.clone();
        let routes = Routes::of_numbers(move || of_pages.read());
        server.http = http.map(|http| HttpServer::start(http, routes)).transpose()?;
        for number in 0..cpus.ceil() as usize {
            let (shared, root) = (shared.clone(), root.clone());
            server.begin(format!("feedline-storage-{number}"), move || work(&shared, &root))?;
        }
        server.begin("feedline-accept".to_owned(), move || accept(&listener, &shared, &is_closed))?;
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
        self.stats.shared.fair.connections()
    }

    /// What it has done so far.
    pub fn stats(&self) -> ServerStats {
        self.stats.read()
    }

    /// Where its pages are, if it has some.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpServer::address)
    }

    /// Changes how much is sent at most, in megabits per second, where that was limited from the start.
    pub fn set_link_mbps(&self, megabits_per_second: f64) {
        if let Some(throttle) = &self.stats.shared.throttle {
            throttle.set(megabits_per_second);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        self.stats.shared.fair.close();
        self.stats.shared.cancel.cancel();
        // Wakes the thread that accepts.
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
    while let Some((number, request)) = shared.fair.next_request() {
        let answered =
            catch_unwind(AssertUnwindSafe(|| session::answer((number, &request), root, shared, &mut workspace)));
        let answered = answered.unwrap_or_else(|_| {
            // What an op panics on is a bug, but one of this request only.
            workspace = NearWorkspace::new(shared.cancel.clone());
            session::failed(&request)
        });
        match answered {
            Ok(reply) => shared.fair.put_reply(number, reply),
            Err(error) => {
                tracing::error!(%error, "a reply cannot be written");
                shared.fair.leave(number);
            }
        }
        meter.charge();
    }
}

fn accept(listener: &TcpListener, shared: &Shared, is_closed: &AtomicBool) {
    while !is_closed.load(Ordering::Acquire) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be taken");
                thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        shared.tally.connections.fetch_add(1, Ordering::Relaxed);
        let Some(number) = shared.fair.enter(MOST_CONNECTIONS) else {
            if is_closed.load(Ordering::Acquire) {
                return;
            }
            shared.tally.refused.fetch_add(1, Ordering::Relaxed);
            turn_away(&stream);
            continue;
        };
        let of_connection = shared.clone();
        let started = thread::Builder::new().name(format!("feedline-client-{number}")).spawn(move || {
            if let Err(error) = serve(stream, number, &of_connection) {
                tracing::info!(error = %feedline_core::error::chain(&error), "a connection has ended");
            }
            of_connection.fair.leave(number);
        });
        if let Err(error) = started {
            tracing::warn!(%error, "a connection cannot be served");
            shared.fair.leave(number);
        }
    }
}

/// Finds out who has connected; tells somebody who may not ask so.
fn welcome(socket: TcpStream, shared: &Shared) -> Result<Stream, WireError> {
    socket.set_nodelay(true)?;
    let keep_alive = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 6);
    socket2::SockRef::from(&socket).set_tcp_keepalive(&keep_alive)?;
    socket.set_write_timeout(Some(session::SEND_TIME))?;
    let greeted =
        Stream::accept(socket, session::HANDSHAKE_TIME, shared.identity.as_ref()).and_then(
            |stream| match session::greet(&stream, shared.token.as_ref()) {
                Ok(()) => Ok(stream),
                Err(error) => Err((stream, error)),
            },
        );
    greeted.map_err(|(stream, error)| {
        shared.tally.refused.fetch_add(1, Ordering::Relaxed);
        if let WireError::Refused(reason) = &error
            && let Err(error) = session::refuse(&stream, reason)
        {
            tracing::debug!(%error, "the reason was not told");
        }
        error
    })
}

fn turn_away(mut stream: &TcpStream) {
    let reason = format!("the server has {MOST_CONNECTIONS} connections, which is all it takes");
    let told = Frame::new(0, &Reply::Busy { reason }, Vec::new());
    let written = stream.set_write_timeout(Some(ACCEPT_PAUSE)).map(|()| told.map(|frame| frame.write(&mut stream)));
    tracing::debug!(?written, "turned a connection away");
}

fn serve(socket: TcpStream, number: u64, shared: &Shared) -> Result<(), WireError> {
    let stream = Arc::new(welcome(socket, shared)?);
    let (sending, of_sender) = (Arc::clone(&stream), shared.clone());
    let sender = thread::Builder::new().name(format!("feedline-send-{number}")).spawn(move || {
        session::send(&sending, number, &of_sender);
    })?;
    let received = session::receive(&stream, number, shared);
    shared.fair.leave(number);
    if sender.join().is_err() {
        tracing::error!("a thread that sends panicked");
    }
    received
}
