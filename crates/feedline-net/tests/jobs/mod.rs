//! A node and jobs on it, for tests.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::Batch;
use feedline_data::plan::{Plan, Registry};
use feedline_data::testing::open;
use feedline_engine::error::Error;
use feedline_engine::loader::{Connect, Feed, Iteration, Loader, Next};
use feedline_engine::machine::CoreWeight;
use feedline_engine::machine::Machine;
use feedline_engine::state::JobProgress;
use feedline_memory::Mutex;
use feedline_net::node::{AttachError, Node, NodeConfig, NodeError, NodeFeed};

/// Number of samples of the plans here.
pub(crate) const SAMPLES: u64 = 300;
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn plan(batch_size: usize, seed: u64) -> Arc<Plan> {
    open(&format!(
        "batch_size = {batch_size}\nshuffle = true\nseed = {seed}\nfields = [\"data\", \"index\", \"key\"]\n\
         [source]\nkind = \"synthetic\"\nn = {SAMPLES}\nshape = [24, 24, 3]\n[[ops]]\nop = \"RandomCrop\"\nsize = 8\non = \"data\"\n"
    ))
    .unwrap()
}

pub(crate) fn node(folder: &Path) -> Node {
    node_of(folder, 64 << 20).unwrap()
}

pub(crate) fn node_of(folder: &Path, memory_bytes: u64) -> Result<Node, NodeError> {
    Node::start(NodeConfig { memory_bytes, ..config(folder) })
}

pub(crate) fn config(folder: &Path) -> NodeConfig {
    let (socket, machine, registry) = (folder.join("run/node.sock"), Machine::default(), Arc::new(Registry::core()));
    NodeConfig { socket, memory_bytes: 64 << 20, machine, registry, http: None }
}

pub(crate) fn attach(node: &Node, plan: &Arc<Plan>) -> Loader {
    attach_at(node.path(), plan, None).unwrap()
}

pub(crate) fn attach_at(socket: &Path, plan: &Arc<Plan>, fallback: Option<Connect>) -> Result<Loader, AttachError> {
    let feed: Arc<dyn Feed> =
        Arc::new(NodeFeed::attach(socket, plan, &JobProgress::new(plan.segments()), CoreWeight::ONE)?);
    let feed = Mutex::new(Some(feed));
    let connect = Box::new(move |job_progress: &JobProgress| {
        let feed = feed.lock().take().expect("a stream connects once");
        feed.change(job_progress).map(|()| feed)
    });
    Ok(Loader::shared(plan, connect, fallback).unwrap())
}

pub(crate) fn next(loader: &Loader, iteration: Iteration) -> Result<Option<Batch>, Error> {
    let deadline = Instant::now() + PATIENCE;
    while !loader.wait_within(iteration, Duration::from_millis(100))? {
        assert!(Instant::now() < deadline, "no batch within {PATIENCE:?}");
    }
    match loader.take(iteration)? {
        Next::Batch(batch) => Ok(Some(*batch)),
        Next::End => Ok(None),
        Next::NotYet => panic!("a batch that was ready is gone"),
    }
}

pub(crate) fn epoch(loader: &Loader) -> Vec<Batch> {
    let iteration = loader.begin().unwrap();
    std::iter::from_fn(|| next(loader, iteration).unwrap()).collect()
}

pub(crate) fn ids(batches: &[Batch]) -> Vec<i64> {
    batches.iter().flat_map(Batch::ids).collect()
}

#[track_caller]
pub(crate) fn check_all_once(ids: &[i64]) {
    let all: BTreeSet<i64> = ids.iter().copied().collect();
    assert!(all.into_iter().eq(0..SAMPLES as i64) && ids.len() as u64 == SAMPLES, "{} ids", ids.len());
}

/// Waits for a condition that must become true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
