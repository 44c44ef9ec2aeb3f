//! Reading ahead from a peer that answers late and in any order, with errors, or never.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use feedline_data::batch::{Batch, FieldData, FieldTypes, Kind};
use feedline_data::dtype::Dtype;
use feedline_data::plan::{Document, Registry};
use feedline_data::source::{Origin, Source, SourceError};
use feedline_data::store::{Answer, Done, Fetch, Object, Remote, StoreError, Traffic};
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;
use feedline_engine::testing::{collect, take};
use feedline_memory::Mutex;
use feedline_order::{Epoch, SampleId};

const SAMPLES: u64 = 200;
const SAMPLE_BYTES: u64 = 100;
/// Between samples, so that no two are fetched together.
const STRIDE: u64 = 1 << 20;

/// What a peer does.
#[derive(Debug, Default)]
struct Peer {
    longest_wait: Duration,
    never_answers: bool,
    missing: HashSet<u64>,
    begun: AtomicU64,
    ended: AtomicU64,
    /// Fetches that wait for their answer now, and the most that ever did at once.
    waiting: AtomicU64,
    most_waiting: AtomicU64,
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

#[derive(Debug)]
struct FarObject(Arc<Peer>);

impl Object for FarObject {
    fn len(&self) -> u64 {
        SAMPLES * STRIDE
    }

    fn address(&self) -> String {
        "far://object".to_owned()
    }

    fn read_at(&self, _offset: u64, _target: &mut [u8]) -> Result<(), StoreError> {
        panic!("what is with a peer is fetched")
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl Remote for FarObject {
    fn fetch(&self, range: Range<u64>, done: Done) -> Fetch {
        let peer = Arc::clone(&self.0);
        let number = peer.begun.fetch_add(1, Ordering::Relaxed);
        let sample = range.start / STRIDE;
        if peer.never_answers {
            peer.kept.lock().push(Box::new(done));
        } else {
            let waiting = peer.waiting.fetch_add(1, Ordering::Relaxed) + 1;
            peer.most_waiting.fetch_max(waiting, Ordering::Relaxed);
            let wait = peer.longest_wait * (number.wrapping_mul(2_654_435_761) % 100) as u32 / 100;
            thread::spawn(move || {
                thread::sleep(wait);
                peer.waiting.fetch_sub(1, Ordering::Relaxed);
                let bytes = if peer.missing.contains(&sample) {
                    Err(StoreError::Content { path: "far://object".to_owned(), problem: "is gone".to_owned() })
                } else {
                    Ok(vec![sample as u8; (range.end - range.start) as usize])
                };
                done(Answer { bytes, traffic: Traffic { bytes: range.end - range.start, requests: 1, retries: 0 } });
            });
        }
        let peer = Arc::clone(&self.0);
        Fetch::new(move || {
            peer.ended.fetch_add(1, Ordering::Relaxed);
        })
    }
}

#[derive(Debug)]
struct FarSource(Arc<FarObject>);

impl Source for FarSource {
    fn len(&self) -> u64 {
        SAMPLES
    }

    fn fields(&self) -> FieldTypes {
        let mut types = FieldTypes::new();
        types.set("data", Kind::tensor(Dtype::U8, &[SAMPLE_BYTES as usize]));
        types
    }

    fn origin(&self, id: SampleId, _field: &str) -> Origin<'_> {
        let start = id.0 * STRIDE;
        Origin::Part { object: Arc::clone(&self.0) as Arc<dyn Object>, range: start..start + SAMPLE_BYTES }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn make(&self, _id: SampleId, _field: &str, _target: &mut [u8]) {
        unreachable!("all is stored")
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        id.0.to_string().into()
    }

    fn class_of(&self, _id: SampleId) -> Option<i64> {
        None
    }

    fn identity(&self) -> u128 {
        7
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        Err(SourceError::Unserialisable("a test".to_owned()))
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }
}

/// A loader of samples that `peer` has; `settings` and `run` are lines of its plan.
fn loader(peer: &Arc<Peer>, settings: &str, run: &str) -> Loader {
    let object = Arc::new(FarObject(Arc::clone(peer)));
    let mut registry = Registry::core();
    registry.source("far", move |_, _| Ok(Arc::new(FarSource(Arc::clone(&object)))));
    let text = format!("batch_size = 10\n{settings}\n[source]\nkind = \"far\"\n[run]\n{run}");
    let plan = Document::parse(&text).unwrap().open(&registry).unwrap();
    Loader::new(Arc::new(plan), &Machine::default())
}

#[track_caller]
fn check_bytes(batch: &Batch) {
    let data = batch.field("data").map(FieldData::bytes).unwrap();
    for (id, bytes) in batch.ids().iter().zip(data.chunks(SAMPLE_BYTES as usize)) {
        assert!(bytes.iter().all(|&byte| i64::from(byte) == id % 256), "sample {id}");
    }
}

/// Fetches end soon after their loader has: the thread that holds them hears of it.
#[track_caller]
fn check_all_end(peer: &Peer) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while peer.begun.load(Ordering::Relaxed) != peer.ended.load(Ordering::Relaxed) {
        assert!(
            Instant::now() < deadline,
            "{} of {} fetches ended",
            peer.ended.load(Ordering::Relaxed),
            peer.begun.load(Ordering::Relaxed)
        );
        thread::yield_now();
    }
}

#[test]
fn law_3_answers_in_any_order_give_batches_in_order_with_many_fetches_at_once() {
    let peer = Arc::new(Peer { longest_wait: Duration::from_millis(20), ..Peer::default() });
    let loader = loader(&peer, "", "num_workers = 2");
    for _ in 0..2 {
        let batches = collect(&loader).unwrap();
        batches.iter().for_each(check_bytes);
        assert!(batches.iter().flat_map(Batch::ids).eq(0..SAMPLES as i64));
    }
    let most = peer.most_waiting.load(Ordering::Relaxed);
    assert!(most >= 8, "at most {most} fetches were under way at once");
    let store = loader.snapshot().store;
    assert_eq!(store.bytes_received_epoch, SAMPLES * SAMPLE_BYTES);
    assert!(store.requests >= 2 * SAMPLES && store.requests <= 2 * SAMPLES + 300, "{}", store.requests);
}

#[test]
fn who_waits_for_a_peer_is_told_that_it_is_the_reads() {
    let peer = Arc::new(Peer { longest_wait: Duration::from_millis(60), ..Peer::default() });
    let loader = loader(&peer, "", "num_workers = 2\nprefetch_batches = 1");
    collect(&loader).unwrap();
    let stalls = loader.snapshot().stall_seconds;
    assert!(stalls["read"] > stalls["prepare"] && stalls["read"] > 0.2, "{stalls:?}");
}

#[test]
fn law_6_what_cannot_be_fetched_is_a_sample_that_fails_by_name() {
    let peer = Arc::new(Peer { missing: HashSet::from([57]), ..Peer::default() });
    let error = collect(&loader(&peer, "", "")).unwrap_err();
    let text = feedline_data::failure::chain(&error);
    assert!(text.contains("sample 57") && text.contains("far://object") && text.contains("is gone"), "{text}");
    let skipping = loader(&peer, "on_error = { max_fraction = 0.1 }", "");
    assert_eq!(collect(&skipping).unwrap().iter().map(|batch| batch.len).sum::<usize>(), SAMPLES as usize);
}

#[test]
fn law_5_bytes_that_wait_for_threads_stay_below_their_limit() {
    let peer = Arc::new(Peer::default());
    // An eighth of it is the limit: ten samples.
    let run = "num_workers = 1\nmemory_budget = 8000\nprefetch_batches = 5\n[[ops]]\nop = \"Delay\"\ncosts_ms = [4.0]\np = 1.0";
    let loader = loader(&peer, "", run);
    let iteration = loader.begin().unwrap();
    let mut count = 0;
    loop {
        // Both only grow, so the one that is limited is read first.
        let begun = peer.begun.load(Ordering::Relaxed);
        let prepared = loader.snapshot().ops[0].samples;
        assert!(begun <= prepared + 10 + 2, "{begun} fetched, {prepared} prepared");
        match loader.next_within(iteration, Duration::from_millis(1)).unwrap() {
            Next::Batch(batch) => count += batch.len,
            Next::End => break,
            Next::NotYet => {}
        }
    }
    assert_eq!(count, SAMPLES as usize);
}

#[test]
fn a_limit_below_one_sample_lets_the_one_that_is_needed_pass() {
    let peer = Arc::new(Peer { longest_wait: Duration::from_millis(1), ..Peer::default() });
    for order in ["strict", "arrival"] {
        let loader = loader(&peer, &format!("order = {order:?}"), "num_workers = 4\nmemory_budget = 700");
        assert_eq!(collect(&loader).unwrap().iter().map(|batch| batch.len).sum::<usize>(), SAMPLES as usize);
    }
}

#[test]
fn law_7_a_peer_that_never_answers_keeps_nobody_from_closing_and_its_fetches_end() {
    let peer = Arc::new(Peer { never_answers: true, ..Peer::default() });
    let loader = loader(&peer, "", "");
    let iteration = loader.begin().unwrap();
    assert!(matches!(loader.next_within(iteration, Duration::from_millis(50)).unwrap(), Next::NotYet));
    let deadline = Instant::now() + Duration::from_mins(1);
    while peer.begun.load(Ordering::Relaxed) < 64 {
        assert!(Instant::now() < deadline, "{} fetches have begun", peer.begun.load(Ordering::Relaxed));
        thread::yield_now();
    }
    let start = Instant::now();
    loader.close();
    drop(loader);
    assert!(start.elapsed() < Duration::from_secs(30));
    check_all_end(&peer);
}

#[test]
fn law_7_jumps_end_what_they_make_useless_and_lose_nothing() {
    let peer = Arc::new(Peer { longest_wait: Duration::from_millis(5), ..Peer::default() });
    let loader = loader(&peer, "shuffle = true", "num_workers = 3");
    for jump in 0..15_u64 {
        take(&loader, 1 + jump as usize % 4).unwrap().iter().for_each(check_bytes);
        loader.set_epoch(Epoch(jump % 3)).unwrap();
    }
    loader.set_epoch(Epoch(9)).unwrap();
    let batches = collect(&loader).unwrap();
    batches.iter().for_each(check_bytes);
    let mut ids: Vec<i64> = batches.iter().flat_map(Batch::ids).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..SAMPLES as i64));
    loader.close();
    drop(loader);
    check_all_end(&peer);
}
