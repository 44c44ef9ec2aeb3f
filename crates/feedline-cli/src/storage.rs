//! `feedline storage`: serves files and samples next to the data, until it is stopped.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use anyhow::{Context as _, Result};
use feedline_net::storage::{REPLY_MEMORY_BYTES, Root, SCHEME, SECURE_SCHEME, Server, ServerConfig, Token};
use feedline_net::tls::Identity;
use serde::Serialize;

use crate::arguments::StorageArguments;
use crate::interrupt::Interrupt;
use crate::output;

/// Interval between two checks whether to stop.
const POLL: Duration = Duration::from_millis(50);

/// The summary of a server that has ended.
#[derive(Debug, Serialize)]
pub(crate) struct Served {
    scheme: &'static str,
    listen: SocketAddr,
    seconds: f64,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "served on {}://{} for {:.0} s", self.scheme, self.listen, self.seconds)
    }
}

/// Serves until the user stops it.
pub(crate) fn storage(
    typed: &StorageArguments,
    cache_folder: Option<&Path>,
    interrupt: &Interrupt<'_>,
) -> Result<Served> {
    let token = match &typed.token_file {
        Some(path) => Some(Token::read(path).with_context(|| format!("cannot read the token in {path:?}"))?),
        None => None,
    };
    let identity = match (&typed.tls_cert, &typed.tls_key) {
        // clap ensures that both options are given, or none.
        (Some(certificate), Some(key)) => Some(Identity::read(certificate, key)?),
        _ => None,
    };
    let scheme = if identity.is_some() { SECURE_SCHEME } else { SCHEME };
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let server = Server::start(ServerConfig {
        root: Root::open(&typed.root)?,
        listen: typed.listen,
        cpus: typed.cpus.unwrap_or(cores as f64),
        token,
        identity,
        memory_bytes: typed.memory.map_or(REPLY_MEMORY_BYTES, |memory| memory.0),
        link_mbps: typed.link_mbps,
        http: typed.http,
        cache_folder: cache_folder.map(Path::to_owned),
    })?;
    let (listen, began) = (server.address(), Instant::now());
    output::say(&format!("serving {} on {scheme}://{listen}/", typed.root));
    if let Some(http) = server.http_address() {
        output::say(&format!("pages at http://{http}/health, /metrics and /stats"));
    }
    while interrupt.check().is_ok() {
        thread::sleep(POLL);
    }
    Ok(Served { scheme, listen, seconds: began.elapsed().as_secs_f64() })
}
