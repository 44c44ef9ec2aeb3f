//! Batches that a sampler outside the engine chooses, made by workers outside the engine.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use feedline_data::batch::{Batch, FieldData, Leaf, Unslotted};
use feedline_data::dtype::Dtype;
use feedline_data::plan::{ByteSize, OnError, Plan, RunConfig, Settings, Workers};
use feedline_data::source::{DATASET_FIELD, DatasetSource};
use feedline_engine::error::Error;
use feedline_engine::loader::{ChosenBatch, GivenLoader};
use feedline_engine::machine::Machine;
use feedline_engine::supply::{
    LeafForm, Made, MadeContent, MadeSamples, MakeError, MakeRequest, MakingSupply, SampleMaker,
};
use feedline_memory::Mutex;
use feedline_order::{Epoch, Position, SampleId};

/// Generous: only a hang takes this long.
const LIMIT: Duration = Duration::from_mins(1);

/// A maker in this process. Sample `n` is the number `n`, in its slot if there is one.
#[derive(Debug, Default)]
struct TestMaker {
    calls: AtomicUsize,
    /// The thread that made each sample, and whether it had a slot.
    made: Mutex<BTreeMap<u64, (usize, bool)>>,
    /// A sample that fails, one whose worker is lost, and one that never ends.
    fails: Option<u64>,
    loses: Option<u64>,
    hangs: Option<u64>,
    /// Samples that take 20 ms.
    slow: Vec<u64>,
}

impl SampleMaker for TestMaker {
    fn make(&self, request: MakeRequest<'_>) -> Result<MadeSamples, MakeError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut samples = Vec::new();
        for (number, sample) in request.samples.iter().enumerate() {
            let id = sample.id.0;
            let time = Duration::from_micros(if self.slow.contains(&id) { 20_000 } else { 10 });
            if self.slow.contains(&id) {
                std::thread::sleep(time);
            }
            while self.hangs == Some(id) {
                if request.cancel.is_cancelled() {
                    return Err(MakeError::Cancelled);
                }
                std::thread::yield_now();
            }
            if self.loses == Some(id) {
                return Err(MakeError::WorkerLost { worker: request.worker, sample: number });
            }
            if self.fails == Some(id) {
                samples.push(Made { time, content: MadeContent::Failed(Arc::new(std::fmt::Error)) });
                break;
            }
            self.made.lock().insert(id, (request.worker, request.slots.is_some()));
            let content = match &request.slots {
                Some(slots) => {
                    let range = slots.slab.layout.slot_range(slots.first_region, slots.first_slot + number);
                    // As another process would: through the descriptor.
                    rustix::io::pwrite(slots.slab.descriptor, &id.to_le_bytes(), range.start as u64).unwrap();
                    MadeContent::InSlot(Vec::new())
                }
                None => MadeContent::Payload(id.to_le_bytes().to_vec()),
            };
            samples.push(Made { time, content });
        }
        let leaves = vec![Leaf { dtype: Dtype::U64, shape: Vec::new() }];
        Ok(MadeSamples { samples, form: Some(LeafForm { leaves, schema: b"schema".to_vec() }) })
    }
}

fn start(maker: &Arc<TestMaker>, workers: usize, on_error: OnError) -> GivenLoader {
    let fields = vec![DATASET_FIELD.to_owned()];
    let settings = Settings { fields: Some(fields.clone()), ragged: fields, on_error, ..Settings::of_batches(4) };
    let config = RunConfig {
        num_workers: Workers::Count(workers),
        memory_budget: Some(ByteSize(1 << 20)),
        ..RunConfig::default()
    };
    let source = Arc::new(DatasetSource::new(1000, "Numbers".to_owned()));
    let plan = Arc::new(Plan::new(source, Vec::new(), settings, config).unwrap());
    let own: Arc<dyn SampleMaker> = Arc::<TestMaker>::clone(maker);
    let supply = Arc::new(MakingSupply::new(Arc::clone(&plan), own, 4));
    GivenLoader::start(plan, supply, &Machine::default()).unwrap()
}

fn batch(first: u64, ids: impl IntoIterator<Item = u64>) -> ChosenBatch {
    let ids = ids.into_iter().map(SampleId).collect();
    ChosenBatch { epoch: Epoch(0), first: Position(first), ids, indices: None, worker: None }
}

fn take(loader: &GivenLoader) -> Result<Batch, Error> {
    let began = Instant::now();
    loop {
        if loader.wait_within(Duration::from_millis(50))?
            && let Some(batch) = loader.take()?
        {
            return Ok(batch);
        }
        assert!(began.elapsed() < LIMIT, "no batch comes");
    }
}

/// The numbers of a batch, from slots and payloads.
fn numbers(batch: &Batch) -> Vec<u64> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let leaf = batch.field("0").map(FieldData::bytes);
    let Some(FieldData::List(rest)) = batch.field(DATASET_FIELD) else { panic!("no samples") };
    let one = |(slot, value): (usize, &Unslotted)| match value {
        Unslotted::Array { bytes, .. } if !bytes.is_empty() => number(bytes),
        _ => number(&leaf.expect("an empty payload is in its slot")[slot * 8..]),
    };
    rest.iter().enumerate().map(one).collect()
}

#[test]
fn law_3_batches_come_in_the_order_of_their_requests_whatever_size_they_have() {
    let maker = Arc::new(TestMaker { slow: vec![2, 33, 70], ..TestMaker::default() });
    let loader = start(&maker, 3, OnError::Raise);
    let sizes = [4, 1, 7, 4, 4, 9, 2, 4, 4, 4, 4, 20, 4, 3];
    let mut first = 0;
    for size in sizes {
        loader.request(batch(first, first..first + size));
        first += size;
    }
    let mut next = 0;
    for size in sizes {
        assert_eq!(numbers(&take(&loader).unwrap()), (next..next + size).collect::<Vec<_>>());
        next += size;
    }
    let made = maker.made.lock();
    assert_eq!(made.len() as u64, first, "each sample is made");
    assert!(made.values().any(|(_, in_slot)| *in_slot) && made.values().any(|(_, in_slot)| !in_slot));
}

#[test]
fn law_5_a_delivered_batch_does_not_change_while_others_are_made() {
    let maker = Arc::new(TestMaker::default());
    let loader = start(&maker, 2, OnError::Raise);
    let mut kept = Vec::new();
    for number in 0..50 {
        loader.request(batch(number * 4, number * 4..number * 4 + 4));
        kept.push(take(&loader).unwrap());
    }
    for (number, batch) in kept.iter().enumerate() {
        let first = number as u64 * 4;
        assert_eq!(numbers(batch), (first..first + 4).collect::<Vec<_>>());
    }
}

#[test]
fn a_batch_that_is_bound_to_a_worker_is_made_by_it_in_order() {
    let maker = Arc::new(TestMaker::default());
    let loader = start(&maker, 3, OnError::Raise);
    for number in 0..30 {
        loader.request(ChosenBatch { worker: Some(number as usize % 3), ..batch(number, [number]) });
    }
    for number in 0..30 {
        assert_eq!(numbers(&take(&loader).unwrap()), [number]);
    }
    assert!(maker.made.lock().iter().all(|(id, (worker, _))| *id as usize % 3 == *worker));
}

#[test]
fn indices_of_another_kind_keep_their_batch_together() {
    let maker = Arc::new(TestMaker::default());
    let loader = start(&maker, 2, OnError::Raise);
    for number in 0..20 {
        let indices = Some(b"pickled".to_vec());
        loader.request(ChosenBatch { indices, ..batch(number * 4, number * 4..number * 4 + 4) });
    }
    for number in 0..20 {
        assert_eq!(numbers(&take(&loader).unwrap())[0], number * 4);
    }
    assert_eq!(maker.calls.load(Ordering::Relaxed), 20);
}

#[test]
fn law_6_a_sample_that_fails_is_named_and_so_is_the_one_of_a_lost_worker() {
    for (fails, loses) in [(Some(9), None), (None, Some(9))] {
        let maker = Arc::new(TestMaker { fails, loses, ..TestMaker::default() });
        let loader = start(&maker, 2, OnError::Raise);
        for number in 0..4 {
            loader.request(batch(number * 4, number * 4..number * 4 + 4));
        }
        assert_eq!(numbers(&take(&loader).unwrap()), [0, 1, 2, 3]);
        assert_eq!(numbers(&take(&loader).unwrap()), [4, 5, 6, 7]);
        let Err(Error::Sample(failure)) = take(&loader) else { panic!("sample 9 cannot be made") };
        assert_eq!((failure.id, &*failure.key), (SampleId(9), "Numbers[9]"));
        let is_lost = failure.cause.downcast_ref::<MakeError>().is_some();
        assert_eq!(is_lost, loses.is_some());
    }
}

#[test]
fn law_6_a_bad_sample_is_replaced_if_the_plan_allows_it() {
    let maker = Arc::new(TestMaker { fails: Some(9), ..TestMaker::default() });
    let loader = start(&maker, 2, OnError::Substitute { max_fraction: 0.1 });
    (0..4).for_each(|number| loader.request(batch(number * 4, number * 4..number * 4 + 4)));
    let all: Vec<u64> = (0..4).flat_map(|_| numbers(&take(&loader).unwrap())).collect();
    assert!(all.iter().enumerate().all(|(at, &number)| (at == 9) != (number == at as u64)), "{all:?}");
}

#[test]
fn law_7_closing_does_not_wait_for_a_sample_that_never_ends() {
    let maker = Arc::new(TestMaker { hangs: Some(1), ..TestMaker::default() });
    let loader = start(&maker, 2, OnError::Raise);
    loader.request(batch(0, 0..4));
    let began = Instant::now();
    while maker.calls.load(Ordering::Relaxed) == 0 {
        assert!(began.elapsed() < LIMIT);
        std::thread::yield_now();
    }
    loader.close();
    assert!(matches!(loader.wait_within(Duration::ZERO), Err(Error::Closed)));
    assert!(began.elapsed() < LIMIT);
}

#[test]
fn after_a_reset_only_new_requests_count() {
    let maker = Arc::new(TestMaker { fails: Some(5), ..TestMaker::default() });
    let loader = start(&maker, 2, OnError::Raise);
    (0..6).for_each(|number| loader.request(batch(number * 4, number * 4..number * 4 + 4)));
    take(&loader).unwrap();
    assert!(take(&loader).is_err());
    loader.reset();
    loader.request(batch(0, [40, 41]));
    assert_eq!(numbers(&take(&loader).unwrap()), [40, 41]);
}
