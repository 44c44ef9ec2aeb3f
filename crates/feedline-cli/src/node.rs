//! `feedline node`: prepares samples once for all jobs of the machine, until it is stopped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use anyhow::{Context as _, Result};
use feedline_data::plan::Registry;
use feedline_data::source::Opener;
use feedline_engine::machine::Machine;
use feedline_net::node::{Node, NodeConfig};
use serde::Serialize;

use crate::arguments::NodeArguments;
use crate::interrupt::Interrupt;
use crate::{environment, output};

/// Upper limit of the default memory.
const MAX_DEFAULT_MEMORY: u64 = 8_000_000_000;
/// Interval between two checks whether to stop.
const POLL: Duration = Duration::from_millis(50);
/// With `--until-idle`: how long the node waits for its first job, and for another one after the last.
const FIRST_JOB: Duration = Duration::from_secs(30);
const NEXT_JOB: Duration = Duration::from_secs(1);

/// The summary of a node that has ended.
#[derive(Debug, Serialize)]
pub(crate) struct Served {
    socket: PathBuf,
    jobs: u64,
    seconds: f64,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "served {} jobs at {} for {:.0} s", self.jobs, self.socket.display(), self.seconds)
    }
}

/// Serves until the user stops it or, with `--until-idle`, until its last job has left.
pub(crate) fn node(typed: &NodeArguments, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Served> {
    let machine_bytes = environment::memory_bytes();
    let default_bytes = machine_bytes.map(|bytes| (bytes / 2).min(MAX_DEFAULT_MEMORY));
    let memory_bytes = typed.memory.map(|bytes| bytes.0).or(default_bytes);
    let memory_bytes = memory_bytes.context("the system does not report its memory; give --memory")?;
    let socket = typed.socket.clone().unwrap_or_else(environment::node_socket);
    let machine = Machine {
        memory_bytes: machine_bytes,
        cache_folder: registry.cache_folder().map(|folder| folder.to_owned().into()),
        ..Machine::default()
    };
    let node =
        Node::start(NodeConfig { socket, memory_bytes, machine, registry: Arc::clone(registry), http: typed.http })?;
    let (socket, began) = (node.path().to_owned(), Instant::now());
    output::say(&format!("node at {}, {:.1} GB for samples", socket.display(), memory_bytes as f64 / 1e9));
    if let Some(http) = node.http_address() {
        output::say(&format!("page at http://{http}/, metrics at /metrics and /stats"));
    }
    let mut busy = began;
    while interrupt.check().is_ok() {
        let (now, ever) = node.jobs();
        // The job that started this node needs time to attach. Later jobs of the same script follow each other quickly.
        let patience = if ever == 0 { FIRST_JOB } else { NEXT_JOB };
        if now > 0 {
            busy = Instant::now();
        } else if typed.until_idle && busy.elapsed() > patience {
            break;
        }
        thread::sleep(POLL);
    }
    let jobs = node.jobs().1;
    // Ends all connections and removes the socket before the summary is printed.
    drop(node);
    Ok(Served { socket, jobs, seconds: began.elapsed().as_secs_f64() })
}
