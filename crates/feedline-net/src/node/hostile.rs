//! A hostile job: it must not harm the node or its other jobs.
//!
//! It sends messages of its own to a real node. Always true: it gets no more than a job may hold, and cannot change that memory.
//! Messages about segments, states and descriptors of others have no effect.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::plan::{Plan, Registry};
use feedline_data::testing::open;
use feedline_engine::machine::CoreWeight;
use feedline_engine::machine::Machine;
use feedline_engine::state::{Cursor, JobProgress, JobProgressState, SegmentRound};
use feedline_order::{Epoch, Rank};
use rustix::fs::{FallocateFlags, SealFlags};

use super::channel::{Receiver, Sender, split};
use super::message::{FromJob, FromNode, JobPlan, PROTOCOL, Route};
use super::{Node, NodeConfig, NodeSocket, NodeStats};
use crate::wire::engine_version;

const PATIENCE: Duration = Duration::from_mins(1);
/// Upper limit of segments that a job holds.
const MAX_SEGMENTS: usize = 4;
/// Upper limit of batches that a rank holds.
const MAX_BATCHES: usize = 8;

fn plan(samples: u64, more: &str) -> Arc<Plan> {
    open(&format!(
        "batch_size = 4\nshuffle = true\nfields = [\"data\", \"index\"]\n[source]\nkind = \"synthetic\"\n\
         n = {samples}\nshape = [8]\n{more}"
    ))
    .unwrap()
}

fn node(folder: &Path) -> Node {
    let (socket, machine, registry) = (folder.join("run/node.sock"), Machine::default(), Arc::new(Registry::core()));
    Node::start(NodeConfig { socket, memory_bytes: 1 << 20, machine, registry, http: None }).unwrap()
}

fn job_progress(plan: &Plan) -> JobProgressState {
    let segments = plan.segments();
    JobProgress::new(segments).to_state(plan, segments)
}

/// A connection to a node.
struct Hostile {
    sender: Sender,
    receiver: Receiver,
}

impl Hostile {
    fn attach(node: &Node, plan: &Plan, key: u128, route: Route) -> Self {
        let (sender, receiver) = split(NodeSocket::connect(node.path()).unwrap()).unwrap();
        receiver.set_patience(Some(PATIENCE)).unwrap();
        let mut this = Self { sender, receiver };
        let plan =
            JobPlan { text: plan.document().unwrap().to_toml(), rank: plan.config().rank, weight: CoreWeight::ONE };
        this.send(&FromJob::Attach { protocol: PROTOCOL, engine: engine_version(), plan, key, route });
        assert_eq!(this.receive().unwrap().0, FromNode::Attached);
        this
    }

    fn job_progress(node: &Node, plan: &Plan) -> Self {
        Self::attach(node, plan, plan.shared_key().0, Route::JobProgress(job_progress(plan)))
    }

    fn rank(node: &Node, plan: &Plan, cursor: &Cursor) -> Self {
        Self::attach(node, plan, plan.partition_key().0, Route::share(cursor, plan))
    }

    fn send(&self, message: &FromJob) {
        self.sender.send(message, None).unwrap();
    }

    fn receive(&mut self) -> Option<(FromNode, Option<OwnedFd>)> {
        self.receiver.receive().unwrap()
    }

    /// Requests without end and returns nothing. Waits for `least` pieces, and then until the node has twice said that it has no
    /// more.
    fn take_all(&mut self, least: usize) -> Vec<(u64, OwnedFd)> {
        self.send(&FromJob::Next);
        let (mut got, mut signs) = (Vec::new(), 0);
        while got.len() < least || signs < 2 {
            match self.receive().unwrap() {
                (FromNode::Segment(segment), Some(memory)) => got.push((segment.number, memory)),
                (FromNode::Batch(batch), Some(memory)) => got.push((batch.number, memory)),
                (FromNode::Alive, None) if got.len() >= least => {
                    signs += 1;
                    continue;
                }
                (FromNode::Alive, None) => continue,
                other => panic!("{other:?}"),
            }
            self.send(&FromJob::Received);
            self.send(&FromJob::Next);
        }
        got
    }

    /// The node's first message, apart from signs of life.
    fn first_message(mut self) -> FromNode {
        for _ in 0..PATIENCE.as_secs() {
            match self.receive() {
                Some((FromNode::Alive, _)) => {}
                Some((message, _)) => return message,
                None => panic!("the node closed the connection without a message"),
            }
        }
        panic!("the node sent no message")
    }

    /// The reason of the node's refusal, whatever it says before.
    fn refusal(mut self) -> String {
        loop {
            match self.receive().expect("the node closed the connection without a message").0 {
                FromNode::Refused { reason } => return reason,
                FromNode::Alive | FromNode::Segment(_) | FromNode::Batch(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Reads some segments like a correct job.
#[track_caller]
fn check_serves(node: &Node, plan: &Plan) {
    let mut job = Hostile::job_progress(node, plan);
    let mut portions = Vec::new();
    for _ in 0..plan.segments().count() {
        job.send(&FromJob::Next);
        let segment = loop {
            match job.receive().unwrap().0 {
                FromNode::Segment(segment) => break segment,
                FromNode::Alive => {}
                other => panic!("{other:?}"),
            }
        };
        portions.push(segment.segment_round.segment);
        job.send(&FromJob::Received);
        job.send(&FromJob::GiveBack { number: segment.number });
    }
    portions.sort_unstable();
    assert!(portions.into_iter().eq(0..plan.segments().count()), "an epoch has each segment once");
}

#[track_caller]
fn wait_until(node: &Node, what: &str, is_so: impl Fn(&NodeStats) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so(&node.stats()) {
        assert!(Instant::now() < deadline, "{what}: {:?}", node.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_asks_without_end_holds_no_more_than_others_may() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(300, ""));
    let mut greedy = Hostile::job_progress(&node, &plan);
    let held = greedy.take_all(MAX_SEGMENTS);
    assert_eq!((held.len(), node.stats().runs[0].carousel.leased_segments), (MAX_SEGMENTS, MAX_SEGMENTS));
    check_serves(&node, &plan);
    drop((greedy, held));
    wait_until(&node, "all is free", |stats| stats.jobs.is_empty() && stats.runs.is_empty());
}

#[test]
fn who_asks_more_often_than_a_job_may_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(300, ""));
    let greedy = Hostile::job_progress(&node, &plan);
    for _ in 0..1000 {
        // The node may have closed the connection by now.
        greedy.sender.send(&FromJob::Next, None).unwrap_or_default();
    }
    let reason = greedy.refusal();
    assert!(reason.contains("has 32 requests without an answer"), "{reason}");
    let liar = Hostile::job_progress(&node, &plan);
    liar.send(&FromJob::Received);
    assert!(liar.refusal().contains("than the node sent"));
    check_serves(&node, &plan);
}

#[test]
fn law_7_clients_that_read_nothing_starve_nobody_and_are_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(300, ""));
    let silent: Vec<Hostile> = (0..20).map(|_| Hostile::job_progress(&node, &plan)).collect();
    for client in &silent {
        (0..30).for_each(|_| client.send(&FromJob::Next));
    }
    wait_until(&node, "they are sent something", |stats| stats.jobs.iter().all(|job| job.segments > 0));
    assert!(node.stats().jobs.iter().all(|job| job.segments == 1), "what they have not read is all they get");
    // While they hold their segments, and afterwards.
    (0..3).for_each(|_| check_serves(&node, &plan));
    wait_until(&node, "they are let go", |stats| stats.jobs.is_empty());
    drop(silent);
    check_serves(&node, &plan);
}

#[test]
fn a_rank_that_asks_without_end_holds_no_more_than_others_may() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path());
    let plan = Arc::new(plan(300, "").for_rank(Rank { rank: 0, world: 2 }).unwrap());
    let mut greedy = Hostile::rank(&node, &plan, &Cursor::default());
    assert_eq!(greedy.take_all(MAX_BATCHES).len(), MAX_BATCHES);
    for number in (8..1000).chain([u64::MAX]) {
        greedy.send(&FromJob::GiveBack { number });
    }
    assert_eq!(greedy.take_all(0).len(), 0);
    greedy.send(&FromJob::GiveBack { number: 3 });
    assert_eq!(greedy.take_all(1).len(), 1);
    drop(greedy);
    let Route::Share(sound) = Route::share(&Cursor::default(), &plan) else { unreachable!("it is a share") };
    let sound: serde_json::Value = serde_json::from_str(&sound).unwrap();
    for (field, words) in [("batches", "the epoch has 38 batches"), ("seed", "seed"), ("epoch", "out of range")] {
        let mut state = sound.clone();
        state[field] = u64::MAX.into();
        let liar = Hostile::rank(&node, &plan, &Cursor::default());
        liar.send(&FromJob::Change { generation: 1, route: Route::Share(state.to_string()) });
        let reason = liar.refusal();
        assert!(reason.contains(words), "{reason}");
    }
}

#[test]
fn what_was_never_leased_cannot_be_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(300, ""));
    let mut other = Hostile::job_progress(&node, &plan);
    let theirs = other.take_all(MAX_SEGMENTS);
    let mut liar = Hostile::job_progress(&node, &plan);
    for number in (0..1000).chain([u64::MAX]) {
        liar.send(&FromJob::GiveBack { number });
    }
    let ours = liar.take_all(MAX_SEGMENTS);
    assert_eq!((theirs.len(), ours.len()), (MAX_SEGMENTS, MAX_SEGMENTS));
    let leased: std::collections::BTreeSet<u64> = theirs.iter().chain(&ours).map(|(number, _)| *number).collect();
    assert_eq!(node.stats().runs[0].carousel.leased_segments, leased.len(), "what the other holds stays leased");
}

#[test]
fn a_change_to_what_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(300, ""));
    let mine = job_progress(&plan);
    let rounds = |round| mine.rounds.iter().map(|_| round).collect::<Vec<u64>>();
    let segment = u64::MAX;
    let ways = [
        (Route::JobProgress(job_progress(&self::plan(200, ""))), "200 samples then, 300 now"),
        (Route::JobProgress(JobProgressState { rounds: Vec::new(), ..mine.clone() }), "one round for each segment"),
        (
            Route::JobProgress(JobProgressState { rounds: vec![1; 1 << 20], ..mine.clone() }),
            "one round for each segment",
        ),
        (
            Route::JobProgress(JobProgressState { order: vec![SegmentRound { segment, round: 1 }], ..mine.clone() }),
            "does not exist",
        ),
        (Route::JobProgress(JobProgressState { received: u64::MAX, ..mine.clone() }), "does not fit its segments"),
        (Route::JobProgress(JobProgressState { rounds: rounds(u64::MAX), ..mine.clone() }), "out of range"),
        (Route::JobProgress(JobProgressState { epoch: Epoch(u64::MAX), ..mine.clone() }), "out of range"),
        (Route::Share("{}".to_owned()), "has no rank"),
    ];
    let bystander = Hostile::job_progress(&node, &plan);
    for (route, words) in ways {
        let liar = Hostile::job_progress(&node, &plan);
        liar.send(&FromJob::Change { generation: 1, route });
        let reason = liar.refusal();
        assert!(reason.contains(words), "{reason}");
    }
    check_serves(&node, &plan);
    drop(bystander);
    let liar = Hostile::job_progress(&node, &plan);
    liar.send(&FromJob::GetStats { protocol: PROTOCOL });
    assert!(liar.refusal().contains("attached already"));
}

#[test]
fn a_job_that_changes_without_end_is_served_what_it_asked_for_last() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(300, ""));
    let fickle = Hostile::job_progress(&node, &plan);
    for generation in 1..=500 {
        let route = Route::JobProgress(JobProgressState { epoch: Epoch(generation), ..job_progress(&plan) });
        fickle.send(&FromJob::Change { generation, route });
    }
    fickle.send(&FromJob::Next);
    let FromNode::Segment(segment) = fickle.first_message() else { panic!("it gets what it asked for") };
    assert_eq!((segment.generation, segment.epoch), (500, Epoch(500)));
    check_serves(&node, &plan);
}

#[test]
fn what_a_job_is_lent_it_can_neither_write_to_nor_make_longer_or_shorter() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(300, ""));
    let mut job = Hostile::job_progress(&node, &plan);
    let lent = job.take_all(1);
    assert!(!lent.is_empty());
    for (_, memory) in &lent {
        let again = File::options().read(true).write(true).open(format!("/proc/self/fd/{}", memory.as_raw_fd()));
        for descriptor in [Some(memory.as_fd()), again.as_ref().ok().map(|file| file.as_fd())].into_iter().flatten() {
            let mut file = File::from(descriptor.try_clone_to_owned().unwrap());
            assert!(file.write_all(b"x").is_err());
            assert!(rustix::fs::ftruncate(descriptor, 1).is_err());
            assert!(rustix::fs::ftruncate(descriptor, 1 << 30).is_err());
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            assert!(rustix::fs::fallocate(descriptor, hole, 0, 4096).is_err());
            assert!(rustix::fs::fcntl_add_seals(descriptor, SealFlags::WRITE).is_err());
        }
    }
}

#[test]
fn descriptors_that_a_job_sends_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(300, ""));
    let job = Hostile::job_progress(&node, &plan);
    let (kept, sent) = std::io::pipe().unwrap();
    for number in 0..100 {
        job.sender.send(&FromJob::GiveBack { number }, Some(sent.as_fd())).unwrap();
    }
    drop(sent);
    // The pipe ends once its other end is closed everywhere. The job is still attached.
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut &kept, &mut rest).unwrap();
    assert_eq!(node.stats().jobs.len(), 1);
}
