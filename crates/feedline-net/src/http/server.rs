//! The HTTP server.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time;

/// Upper limit of connections. Further ones wait in the listen queue.
const MAX_CONNECTIONS: usize = 32;
/// Upper limit of the time to send a request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Upper limit of the duration of a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(30);
/// Upper limit of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// How long closing waits for a page in progress.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Pause after the system could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The content security policy: pages use only what this server sends, and no other site may embed them.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The HTTP status.
    pub status: u16,
    /// The value of the `Content-Type` header.
    pub content_type: &'static str,
    /// The text.
    pub body: String,
}

impl Page {
    /// A page of plain text.
    pub fn text(body: impl Into<String>) -> Self {
        Self { status: 200, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    /// A page in Prometheus' text format.
    pub fn metrics(body: String) -> Self {
        Self { status: 200, content_type: "text/plain; version=0.0.4; charset=utf-8", body }
    }

    /// A page of JSON.
    pub fn of_data(data: &impl Serialize) -> Self {
        match serde_json::to_string_pretty(data) {
            Ok(text) => Self { status: 200, content_type: "application/json", body: text + "\n" },
            Err(error) => Self { status: 500, ..Self::text(error.to_string()) },
        }
    }
}

/// Pages by path.
#[derive(Default)]
pub struct Routes(BTreeMap<&'static str, Box<dyn Fn() -> Page + Send + Sync>>);

impl Routes {
    /// Adds a page. `make` renders it for each request and must be fast.
    #[must_use]
    pub fn with(mut self, path: &'static str, make: impl Fn() -> Page + Send + Sync + 'static) -> Self {
        self.0.insert(path, Box::new(make));
        self
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            let mut refused = respond(Page { status: 405, ..Page::text("only GET and HEAD\n") });
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        if let Some(make) = self.0.get(path) {
            return respond(make());
        }
        let known: Vec<&str> = self.0.keys().copied().collect();
        respond(Page { status: 404, ..Page::text(format!("no such page; there are {}\n", known.join(" "))) })
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn respond(page: Page) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(page.body)));
    *response.status_mut() = StatusCode::from_u16(page.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type));
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Why pages cannot be served.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum HttpError {
    #[error("cannot listen on {listen} for HTTP")]
    Listen { listen: SocketAddr, source: io::Error },
    #[error("cannot start a thread for HTTP")]
    Thread(#[source] io::Error),
}

/// A server of pages that runs until it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    descriptor: RawFd,
    runtime: Option<Runtime>,
}

impl HttpServer {
    /// Starts to serve.
    pub fn start(listen: SocketAddr, routes: Routes) -> Result<Self, HttpError> {
        let failed = |source| HttpError::Listen { listen, source };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let (address, descriptor) = (listener.local_addr().map_err(failed)?, listener.as_raw_fd());
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("feedline-http").enable_all().build();
        let runtime = runtime.map_err(HttpError::Thread)?;
        // `from_std` registers the socket with the current runtime, so this thread has to enter it.
        let entered = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        drop(entered);
        runtime.spawn(accept(listener, Arc::new(routes)));
        Ok(Self { address, descriptor, runtime: Some(runtime) })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The descriptor of the listening socket. A forked child has a copy, which keeps the port in use.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // `shutdown_timeout` takes the runtime by value. A page that is being rendered may finish, an idle client is cut off.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(CLOSE_TIME);
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, routes: Arc<Routes>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // Takes a permit before accepting. Clients beyond the limit wait in the listen queue of the system, without memory here.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "could not accept an HTTP connection");
                time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let routes = Arc::clone(&routes);
        tokio::spawn(async move {
            let answer = |request: Request<Incoming>| {
                let answered = routes.answer(request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(answered) }
            };
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIME).max_buf_size(MAX_HEAD_BYTES);
            // One page per connection, which the header `Connection: close` tells the client. A child that is forked meanwhile has
            // a copy of the connection, and a client that reused it would wait for ever.
            builder.keep_alive(false);
            let connection = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
            match time::timeout(CONNECTION_TIME, connection).await {
                // A connection that reaches its time limit is dropped without a log line, because any client can cause that.
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection broke"),
            }
            drop(permit);
        });
    }
}
