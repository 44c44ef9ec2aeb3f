//! All orders of delivery, while every stage is disturbed: requests are answered late and out of order, loading and ops take
//! random times, and so does the consumer.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use feedline_data::batch::{Batch, FieldData};
use feedline_data::cut::Cut;
use feedline_data::plan::Plan;
use feedline_data::testing::open;
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;
use feedline_engine::supply::{Loading, LocalSupply, Ready, Supply, SupplyError, Task};
use feedline_order::Epoch;

const SAMPLES: usize = 120;
const BATCH: usize = 5;

/// Random times, mostly short.
#[derive(Debug, Default)]
struct Disturbance(AtomicU64);

impl Disturbance {
    fn wait(&self) {
        let step = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let bits = (step ^ (step >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        match bits >> 60 {
            0 => thread::sleep(Duration::from_micros(bits % 9000)),
            1..4 => thread::sleep(Duration::from_micros(bits % 700)),
            _ => {}
        }
    }
}

/// The local supply, whose answers come late and in any order.
#[derive(Debug)]
struct Disturbed {
    local: LocalSupply,
    disturbance: Arc<Disturbance>,
}

/// Takes what the local supply has ready.
#[derive(Default)]
struct Taken(feedline_memory::Mutex<Vec<Task>>);

impl Ready for Taken {
    fn ready(&self, tasks: Vec<Task>) {
        self.0.lock().extend(tasks);
    }
}

impl Supply for Disturbed {
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        let taken = Arc::new(Taken::default());
        self.local.request(tasks, &(Arc::clone(&taken) as Arc<dyn Ready>));
        let mut tasks = std::mem::take(&mut *taken.0.lock());
        let half = tasks.split_off(tasks.len() / 2);
        for mut tasks in [half, tasks] {
            let (ready, disturbance) = (Arc::clone(ready), Arc::clone(&self.disturbance));
            thread::spawn(move || {
                while let Some(task) = tasks.pop() {
                    disturbance.wait();
                    ready.ready(vec![task]);
                }
            });
        }
    }

    fn load(&self, loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        self.disturbance.wait();
        self.local.load(loading)
    }
}

fn plan(order: &str, run: &str) -> Arc<Plan> {
    open(&format!(
        "batch_size = {BATCH}\nshuffle = true\nseed = 9\norder = \"{order}\"\n[source]\nkind = \"synthetic\"\nn = {SAMPLES}\nshape = [16, 16]\n\
         [run]\n{run}\n[[ops]]\nop = \"Delay\"\ncosts_ms = [3.0]\np = 0.2\n[[ops]]\nop = \"Delay\"\ncosts_ms = [30.0]\np = 0.02\n"
    ))
    .unwrap()
}

type Seen = (u64, Vec<i64>, Vec<u8>);

fn seen(batch: &Batch) -> Seen {
    (batch.epoch.0, batch.ids(), batch.field("data").map(FieldData::bytes).unwrap().to_vec())
}

/// Two epochs; with a disturbance everything is slowed down by it now and then.
fn stream(plan: &Arc<Plan>, disturbance: Option<u64>) -> Vec<Seen> {
    let machine = Machine::default();
    let disturbance = disturbance.map(|start| Arc::new(Disturbance(AtomicU64::new(start))));
    let loader = match &disturbance {
        Some(disturbance) => {
            let local = LocalSupply::new(Arc::clone(plan), &machine);
            let supply = Disturbed { local, disturbance: Arc::clone(disturbance) };
            Loader::with_supply(Arc::clone(plan), Arc::new(supply), &machine)
        }
        None => Loader::new(Arc::clone(plan), &machine),
    };
    let mut all = Vec::new();
    for _ in 0..2 {
        let iteration = loader.begin().unwrap();
        loop {
            match loader.next_within(iteration, Duration::from_mins(1)).unwrap() {
                Next::Batch(batch) => all.push(seen(&batch)),
                Next::End => break,
                Next::NotYet => panic!("no batch within a minute"),
            }
            if let Some(disturbance) = &disturbance {
                disturbance.wait();
            }
        }
    }
    all
}

#[test]
fn law_3_random_delays_in_every_stage_change_neither_strict_nor_planned_order() {
    for order in ["strict", "planned"] {
        let expected = stream(&plan(order, "num_workers = 2"), None);
        assert_eq!(expected.len(), 2 * SAMPLES / BATCH);
        for workers in [1, 2, 4, 8] {
            let disturbed = stream(&plan(order, &format!("num_workers = {workers}")), Some(workers));
            assert!(disturbed == expected, "{order} order with {workers} workers");
        }
    }
}

#[test]
fn law_2_random_delays_in_every_stage_lose_nothing_in_arrival_order_whatever_the_memory() {
    let expected = samples(&stream(&plan("strict", "num_workers = 2"), None));
    for run in ["num_workers = 1", "num_workers = 4", "num_workers = 8", "num_workers = 4\nmemory_budget = 6000"] {
        assert!(samples(&stream(&plan("arrival", run), Some(7))) == expected, "{run}");
    }
}

/// The samples of each epoch with their bytes, sorted.
fn samples(stream: &[Seen]) -> Vec<(u64, i64, Vec<u8>)> {
    let of_batch = |(epoch, ids, data): &Seen| {
        let values = data.chunks(data.len() / ids.len()).map(<[u8]>::to_vec);
        ids.iter().zip(values).map(|(&id, value)| (*epoch, id, value)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = stream.iter().flat_map(of_batch).collect();
    all.sort();
    all
}

#[test]
fn law_4_arrival_order_resumed_at_every_fifth_batch_gives_what_is_left() {
    for received in (1..SAMPLES / BATCH).step_by(5) {
        let first = Loader::new(plan("arrival", "num_workers = 4"), &Machine::default());
        let mut ids: Vec<i64> =
            feedline_engine::testing::take(&first, received).unwrap().iter().flat_map(Batch::ids).collect();
        let second = Loader::new(plan("arrival", "num_workers = 2"), &Machine::default());
        second.load_state(&first.state()).unwrap();
        ids.extend(feedline_engine::testing::collect(&second).unwrap().iter().flat_map(Batch::ids));
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..SAMPLES as i64), "after {received} batches");
    }
}

#[test]
fn law_7_jumps_in_arrival_order_never_hang_and_leave_no_memory() {
    let loader = Loader::new(plan("arrival", "num_workers = 4\nmemory_budget = 20000"), &Machine::default());
    for jump in 0..20 {
        feedline_engine::testing::take(&loader, 1 + jump % 6).unwrap();
        loader.set_epoch(Epoch(jump as u64 % 3)).unwrap();
    }
    loader.set_epoch(Epoch(5)).unwrap();
    let mut ids: Vec<i64> = feedline_engine::testing::collect(&loader).unwrap().iter().flat_map(Batch::ids).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..SAMPLES as i64));
    loader.close();
    assert_eq!(loader.snapshot().memory.used_bytes, 0);
}
