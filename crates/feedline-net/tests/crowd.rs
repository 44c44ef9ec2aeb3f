//! Fifty jobs that attach, read at their own speed, crash and return at random. A model says what each may receive.
//!
//! `FEEDLINE_SOAK_SECONDS` sets the duration. The default is a few seconds.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use feedline_data::batch::Batch;
use feedline_data::plan::{Plan, Registry};
use feedline_data::testing::open;
use feedline_engine::error::Error;
use feedline_engine::loader::{Feed, Loader, Next};
use feedline_engine::machine::{CoreWeight, Machine};
use feedline_engine::state::{JobProgress, SavedState};
use feedline_net::node::{Node, NodeConfig, NodeFeed};
use feedline_order::{Epoch, Position, Segments};

const JOBS: u64 = 50;
const SAMPLES: u64 = 300;
/// Memory for about 70 segments, for fifty jobs.
const MEMORY: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_mins(1);

fn plan(batch_size: u64) -> Arc<Plan> {
    open(&format!(
        "batch_size = {batch_size}\nshuffle = true\nfields = [\"data\", \"index\"]\n[source]\nkind = \"synthetic\"\n\
         n = {SAMPLES}\nshape = [24, 24, 3]\n[[ops]]\nop = \"RandomCrop\"\nsize = 8\non = \"data\"\n"
    ))
    .unwrap()
}

/// Reproducible random numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// One job over all its lives, and the samples that it received.
#[derive(Default)]
struct Life {
    state: Option<SavedState>,
    /// Samples of the current epoch.
    ids: Vec<u64>,
    /// The last received round of each segment.
    rounds: BTreeMap<u64, u64>,
    epochs: u64,
}

impl Life {
    /// Compares an epoch with the model: each segment comes once and whole, in a later round than before, and in the order of that
    /// round.
    fn end_epoch(&mut self, rounds: &[u64], segments: &Segments) {
        let ids = std::mem::take(&mut self.ids);
        let mut by_first = BTreeMap::new();
        for (segment, &round) in (0..).zip(rounds) {
            let expected: Vec<u64> =
                segments.positions(segment).map(|position| segments.at(Epoch(round), Position(position)).0).collect();
            by_first.insert(expected[0], (segment, round, expected));
        }
        let mut rest = &ids[..];
        while let Some(first) = rest.first() {
            let (segment, round, expected) = by_first.remove(first).expect("each segment begins once an epoch");
            assert_eq!(rest[..expected.len()], expected, "segment {segment} in round {round}");
            let before = self.rounds.insert(segment, round).unwrap_or(0);
            assert!(round > before, "segment {segment} came in round {round} after {before}");
            rest = &rest[expected.len()..];
        }
        assert!(by_first.is_empty(), "segments are missing: {:?}", by_first.keys());
        self.epochs += 1;
    }
}

/// Attaches, reads some batches, and leaves in the middle of the epoch.
fn live(life: &mut Life, socket: &Path, chance: &mut Chance) {
    let plan = plan([1, 7, 16, 32, 100][chance.below(5) as usize]);
    let (path, connecting) = (socket.to_owned(), Arc::clone(&plan));
    let connect = Box::new(move |job_progress: &JobProgress| {
        let feed = NodeFeed::attach(&path, &connecting, job_progress, CoreWeight::ONE);
        feed.map(|feed| Arc::new(feed) as Arc<dyn Feed>).map_err(|error| Error::Attach { reason: error.to_string() })
    });
    let loader = Loader::shared(&plan, connect, None).unwrap();
    if let Some(state) = &life.state {
        loader.load_state(state).unwrap();
    }
    let mut iteration = loader.begin().unwrap();
    let mut kept: Vec<Batch> = Vec::new();
    let (batches, pause) = (chance.below(60), Duration::from_micros(chance.below(4) * 500));
    for _ in 0..batches {
        let deadline = Instant::now() + PATIENCE;
        while !loader.wait_within(iteration, Duration::from_millis(100)).unwrap() {
            assert!(Instant::now() < deadline, "no batch within {PATIENCE:?}");
        }
        match loader.take(iteration).unwrap() {
            Next::Batch(batch) => {
                life.ids.extend(batch.ids().into_iter().map(|id| id as u64));
                // One in eight batches is kept until the end of this life.
                if chance.below(8) == 0 {
                    kept.push(*batch);
                }
                if life.ids.len() as u64 == SAMPLES {
                    life.end_epoch(&loader.state().job_progress().unwrap().rounds, plan.segments());
                }
            }
            Next::End => iteration = loader.begin().unwrap(),
            Next::NotYet => panic!("a batch that was ready is gone"),
        }
        std::thread::sleep(pause);
    }
    life.state = Some(loader.state());
}

#[test]
fn law_2_fifty_jobs_that_come_and_go_each_get_what_the_model_says() {
    let seconds = std::env::var("FEEDLINE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("run/node.sock");
    let config = NodeConfig {
        socket: socket.clone(),
        memory_bytes: MEMORY,
        machine: Machine::default(),
        registry: Arc::new(Registry::core()),
        http: None,
    };
    let node = Node::start(config).unwrap();
    let (deadline, epochs) = (Instant::now() + Duration::from_secs(seconds), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..JOBS {
            let (socket, epochs) = (&socket, &epochs);
            scope.spawn(move || {
                let (mut life, mut chance) = (Life::default(), Chance(number));
                while Instant::now() < deadline {
                    live(&mut life, socket, &mut chance);
                    std::thread::sleep(Duration::from_millis(chance.below(20)));
                }
                epochs.fetch_add(life.epochs, Ordering::Relaxed);
            });
        }
    });
    assert!(epochs.into_inner() >= JOBS, "each job has been through an epoch, on the whole");
    let deadline = Instant::now() + PATIENCE;
    while node.jobs().0 > 0 || !node.stats().runs.is_empty() {
        assert!(Instant::now() < deadline, "jobs that have left are still there");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(node);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}
