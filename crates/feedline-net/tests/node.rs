//! A node and jobs that attach to it, over a real socket and shared memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use feedline_core::batch::{Batch, FieldData};
use feedline_core::carousel::{Carousel, Memory, Ride};
use feedline_core::order::Epoch;
use feedline_core::sink::{Connect, Feed, Iteration, LocalFeed, SharedLoader};
use feedline_core::testing::open;
use feedline_core::{Error, Machine, Next, Plan, Registry};
use feedline_net::node::{AttachError, Node, NodeConfig, NodeFeed};

const SAMPLES: u64 = 300;
const PATIENCE: Duration = Duration::from_mins(1);

fn plan(batch_size: usize, seed: u64) -> Arc<Plan> {
    open(&format!(
        "batch_size = {batch_size}\nshuffle = true\nseed = {seed}\nreturns = [\"data\", \"index\", \"key\"]\n\
         [source]\nkind = \"synthetic\"\nn = {SAMPLES}\nshape = [24, 24, 3]\n[[ops]]\nop = \"RandomCrop\"\nsize = 8\non = \"data\"\n"
    ))
    .unwrap()
}

fn node(folder: &Path) -> Node {
    node_of(folder, 64 << 20).unwrap()
}

fn node_of(folder: &Path, memory_bytes: u64) -> Result<Node, feedline_net::node::NodeError> {
    let registry = Arc::new(Registry::core());
    let (socket, machine) = (folder.join("node.sock"), Machine::default());
    Node::start(NodeConfig { socket, memory_bytes, machine, registry })
}

fn attach(node: &Node, plan: &Arc<Plan>) -> SharedLoader {
    attach_at(node.path(), plan, None).unwrap()
}

fn attach_at(socket: &Path, plan: &Arc<Plan>, fallback: Option<Connect>) -> Result<SharedLoader, AttachError> {
    let feed: Arc<dyn Feed> = Arc::new(NodeFeed::attach(socket, plan, &Ride::new(&plan.segments()))?);
    let feed = Mutex::new(Some(feed));
    let connect = Box::new(move |ride: &Ride| {
        let feed = feed.lock().unwrap().take().expect("a stream connects once");
        feed.change(ride).map(|()| feed)
    });
    Ok(SharedLoader::new(Arc::clone(plan), connect, fallback).unwrap())
}

fn next(loader: &SharedLoader, iteration: Iteration) -> Result<Option<Batch>, Error> {
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

fn epoch(loader: &SharedLoader) -> Vec<Batch> {
    let iteration = loader.begin().unwrap();
    std::iter::from_fn(|| next(loader, iteration).unwrap()).collect()
}

fn ids(batches: &[Batch]) -> Vec<i64> {
    batches.iter().flat_map(Batch::ids).collect()
}

#[track_caller]
fn check_all_once(ids: &[i64]) {
    let all: BTreeSet<i64> = ids.iter().copied().collect();
    assert!(all.into_iter().eq(0..SAMPLES as i64) && ids.len() as u64 == SAMPLES, "{} ids", ids.len());
}

/// Waits for something that is bound to come.
#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn law_2_jobs_of_any_batch_size_and_seed_share_one_production_and_see_all_once() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path());
    std::thread::scope(|scope| {
        for (number, size) in [16, 32, 7, 100].into_iter().enumerate() {
            let node = &node;
            scope.spawn(move || {
                let loader = attach(node, &plan(size, number as u64));
                for _ in 0..4 {
                    let batches = epoch(&loader);
                    check_all_once(&ids(&batches));
                    let FieldData::List(keys) = batches[0].field("key").unwrap() else { panic!("keys are texts") };
                    assert_eq!(keys.len(), batches[0].len);
                    std::thread::sleep(Duration::from_millis(5 * number as u64));
                }
            });
        }
    });
    let stats = node.stats();
    assert_eq!(stats.jobs_attached_total, 4);
    wait_until("the jobs have left", || node.jobs().0 == 0);
    assert!(node.stats().runs.is_empty(), "what nobody reads is not produced");
}

#[test]
fn law_1_a_job_gets_the_bytes_that_a_carousel_of_its_own_would_give() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(16, 0));
    let own = Arc::new(Carousel::start(&plan, &Machine::default(), Memory::Heap, 64 << 20).unwrap());
    let board = Box::new(move |ride: &Ride| Ok(Arc::new(LocalFeed::board(&own, ride)?) as Arc<dyn Feed>));
    let alone = SharedLoader::new(Arc::clone(&plan), board, None).unwrap();
    let attached = attach(&node, &plan);
    for round in 1..3 {
        let by_id = |batches: Vec<Batch>| -> std::collections::BTreeMap<i64, Vec<u8>> {
            let samples = |batch: &Batch| {
                let bytes = batch.field("data").map(FieldData::bytes).unwrap();
                let each = bytes.chunks(bytes.len() / batch.len).map(<[u8]>::to_vec);
                batch.ids().into_iter().zip(each).collect::<Vec<_>>()
            };
            batches.iter().flat_map(samples).collect()
        };
        assert!(by_id(epoch(&attached)) == by_id(epoch(&alone)), "round {round}");
    }
}

#[test]
fn law_4_a_job_goes_on_at_another_node_from_its_state() {
    let plan = plan(16, 0);
    for taken in [0, 1, 5, 18] {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut before, state) = {
            let node = node(first.path());
            let loader = attach(&node, &plan);
            let iteration = loader.begin().unwrap();
            let before: Vec<Batch> = (0..taken).map(|_| next(&loader, iteration).unwrap().unwrap()).collect();
            (ids(&before), loader.state())
        };
        let node = node(second.path());
        let loader = attach(&node, &plan);
        loader.load_state(&state).unwrap();
        before.extend(ids(&epoch(&loader)));
        check_all_once(&before);
        check_all_once(&ids(&epoch(&loader)));
    }
}

#[test]
fn a_job_may_break_off_jump_and_close_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(16, 0));
    let loader = attach(&node, &plan);
    for _ in 0..20 {
        let iteration = loader.begin().unwrap();
        drop(next(&loader, iteration).unwrap());
    }
    assert_eq!(loader.upcoming_epoch(), Epoch(20));
    check_all_once(&ids(&epoch(&loader)));
    loader.set_epoch(Epoch(7)).unwrap();
    let batches = epoch(&loader);
    assert!(batches.iter().all(|batch| batch.epoch == Epoch(7)));
    check_all_once(&ids(&batches));
    let iteration = loader.begin().unwrap();
    drop(next(&loader, iteration).unwrap());
    loader.close();
    assert!(matches!(next(&loader, iteration), Err(Error::Closed)));
    wait_until("the job has left", || node.jobs().0 == 0);
    // What was delivered before stays.
    check_all_once(&ids(&batches));
}

#[test]
fn law_7_when_the_node_ends_jobs_go_on_alone_or_get_an_error_as_they_have_asked() {
    let plan = plan(16, 0);
    for goes_on in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path());
        let own = Arc::clone(&plan);
        let fallback: Connect = Box::new(move |ride| {
            let carousel = Carousel::start(&own, &Machine::default(), Memory::Heap, 64 << 20)?;
            Ok(Arc::new(LocalFeed::board(&Arc::new(carousel), ride)?))
        });
        let loader = attach_at(node.path(), &plan, goes_on.then_some(fallback)).unwrap();
        let iteration = loader.begin().unwrap();
        let mut seen: Vec<Batch> = (0..5).map(|_| next(&loader, iteration).unwrap().unwrap()).collect();
        let began = Instant::now();
        drop(node);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
        let rest: Result<Vec<Batch>, Error> = std::iter::from_fn(|| next(&loader, iteration).transpose()).collect();
        match rest {
            Ok(rest) => {
                assert!(goes_on);
                seen.extend(rest);
                check_all_once(&ids(&seen));
                check_all_once(&ids(&epoch(&loader)));
            }
            Err(error) => {
                assert!(!goes_on && matches!(error, Error::Node { .. }), "{error}");
            }
        }
    }
}

#[test]
fn jobs_that_cannot_be_served_hear_why() {
    let folder = tempfile::tempdir().unwrap();
    let (small, plan) = (node_of(folder.path(), 1000).unwrap(), plan(16, 0));
    let refused = attach_at(small.path(), &plan, None).unwrap_err().to_string();
    assert!(refused.contains("shared memory") && refused.contains("1000"), "{refused}");
    assert!(node_of(folder.path(), 1000).is_err(), "one node at a place");
    let nobody = attach_at(&folder.path().join("other.sock"), &plan, None).unwrap_err();
    assert!(matches!(nobody, AttachError::Place(_)), "{nobody}");
}

#[test]
fn law_7_a_job_that_holds_a_segment_and_reads_nothing_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(16, 0));
    let idle = attach(&node, &plan);
    let iteration = idle.begin().unwrap();
    let held = next(&idle, iteration).unwrap();
    let loader = attach(&node, &plan);
    for _ in 0..10 {
        check_all_once(&ids(&epoch(&loader)));
    }
    assert_eq!(held.unwrap().len, 16);
}

#[test]
fn junk_on_the_socket_harms_nobody() {
    use std::io::Write as _;
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(16, 0));
    let loader = attach(&node, &plan);
    for junk in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"FLN1", b""] {
        let mut stream = std::os::unix::net::UnixStream::connect(node.path()).unwrap();
        // The node may have hung up in the middle of it.
        stream.write_all(junk).unwrap_or_default();
    }
    check_all_once(&ids(&epoch(&loader)));
}
