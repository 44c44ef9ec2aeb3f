//! The Rust example of a job, beside another job on the same run.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;

use feedline_data::plan::Registry;
use feedline_engine::machine::Machine;
use feedline_net::node::{Node, NodeConfig};

#[path = "../examples/shared_job.rs"]
#[allow(dead_code, reason = "its main function is for the command line")]
mod shared_job;

const SAMPLES: usize = 300;

fn write_plan(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("plan.toml");
    let text =
        format!("batch_size = 16\nshuffle = true\n[source]\nkind = \"synthetic\"\nn = {SAMPLES}\nshape = [50]\n");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn jobs_in_rust_read_an_epoch_through_the_crate_and_share_it() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, socket) = (write_plan(folder.path()), folder.path().join("run/node.sock"));
    let (machine, registry) = (Machine::default(), Arc::new(Registry::core()));
    let config = NodeConfig { socket: socket.clone(), memory_bytes: 1 << 20, machine, registry, http: None };
    let node = Node::start(config).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let epoch = shared_job::read_epoch(&plan, &socket).unwrap();
                assert_eq!((epoch.samples, epoch.bytes), (SAMPLES, SAMPLES * (50 + size_of::<i64>())));
            });
        }
    });
    assert_eq!(node.stats().jobs_attached_total, 2);
}

#[test]
fn a_job_in_rust_hears_that_there_is_no_node() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, socket) = (write_plan(folder.path()), folder.path().join("run/node.sock"));
    let problem = shared_job::read_epoch(&plan, &socket).unwrap_err().to_string();
    assert!(problem.contains("no node listens"), "{problem}");
}
