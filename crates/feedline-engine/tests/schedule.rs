//! Slow samples start early: the stream stays what it is, memory stays bounded, nothing is lost.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::time::Duration;

use feedline_data::batch::{Batch, FieldData};
use feedline_data::testing::open;
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;
use feedline_engine::testing::{collect, take};
use feedline_order::Epoch;

const SAMPLES: usize = 240;
const BATCH: usize = 4;

/// Every 24th sample takes 60 ms, the others half a millisecond; a third delay falls on a tenth of all, drawn anew each epoch.
fn plan(run: &str) -> String {
    let costs: Vec<String> = (0..SAMPLES).map(|n| if n % 24 == 7 { "60.0" } else { "0.5" }.to_owned()).collect();
    format!(
        "batch_size = {BATCH}\nshuffle = true\nseed = 3\n[source]\nkind = \"synthetic\"\nn = {SAMPLES}\nshape = [32, 32]\n[run]\n{run}\n\
         [[ops]]\nop = \"Delay\"\ncosts_ms = [{}]\n[[ops]]\nop = \"Delay\"\ncosts_ms = [20.0]\np = 0.1\n",
        costs.join(", ")
    )
}

fn loader(run: &str) -> Loader {
    Loader::new(open(&plan(run)).unwrap(), &Machine::default())
}

type Seen = Vec<(u64, Vec<i64>, Vec<u8>)>;

fn seen(batches: &[Batch]) -> Seen {
    let image = |batch: &Batch| batch.field("data").map(FieldData::bytes).unwrap().to_vec();
    batches.iter().map(|batch| (batch.epoch.0, batch.ids(), image(batch))).collect()
}

/// Three epochs, and the most samples that were started early at any time.
fn three_epochs(loader: &Loader) -> (Seen, usize) {
    let (mut all, mut most) = (Vec::new(), 0);
    for _ in 0..3 {
        let iteration = loader.begin().unwrap();
        loop {
            match loader.next_within(iteration, Duration::from_mins(1)).unwrap() {
                Next::Batch(batch) => all.push(*batch),
                Next::End => break,
                Next::NotYet => panic!("no batch within a minute"),
            }
            most = most.max(loader.snapshot().queue.early_samples);
        }
    }
    (seen(&all), most)
}

#[test]
fn law_3_slow_samples_start_early_and_the_stream_is_the_same() {
    let (expected, none) = three_epochs(&loader("num_workers = 8\nstart = \"first-come\""));
    assert_eq!((expected.len(), none), (3 * SAMPLES / BATCH, 0));
    for run in ["num_workers = 1", "num_workers = 2", "num_workers = 8", "num_workers = 8\nprefetch_batches = 12"] {
        let (stream, early) = three_epochs(&loader(run));
        assert!(stream == expected, "{run}");
        assert!(early > 0 || !run.contains("prefetch"), "{run}: no sample was started early");
    }
}

#[test]
fn law_5_memory_stays_within_the_budget_while_slow_samples_run_early() {
    // A slab has 4 KB; the budget holds a few samples beside two batches.
    let budget = 24 * 1024;
    let loader = loader(&format!("num_workers = 4\nmemory_budget = {budget}"));
    let (stream, _) = three_epochs(&loader);
    let ids: BTreeSet<i64> =
        stream.iter().filter(|(epoch, ..)| *epoch == 2).flat_map(|(_, ids, _)| ids.clone()).collect();
    assert_eq!(ids.len(), SAMPLES);
    let peak = loader.snapshot().memory.peak_bytes;
    assert!(peak <= budget, "peak {peak} of {budget}");
}

#[test]
fn law_4_resume_at_every_seventh_batch_with_slow_samples_gives_the_rest_of_the_stream() {
    let (expected, _) = three_epochs(&loader("num_workers = 4"));
    let first = loader("num_workers = 4");
    collect(&first).unwrap();
    for received in (1..SAMPLES / BATCH).step_by(7) {
        let first = loader("num_workers = 4");
        first.set_epoch(Epoch(1)).unwrap();
        take(&first, received).unwrap();
        let second = loader("num_workers = 2");
        second.load_state(&first.state()).unwrap();
        let rest = seen(&collect(&second).unwrap());
        let epoch = SAMPLES / BATCH;
        assert!(rest == expected[epoch + received..2 * epoch], "after {received} batches");
    }
}

#[test]
fn law_7_jumps_with_slow_samples_in_flight_never_hang_and_lose_nothing() {
    let loader = loader("num_workers = 4");
    let (expected, _) = three_epochs(&loader);
    for jump in 0..12 {
        take(&loader, 3 + jump % 5).unwrap();
        loader.set_epoch(Epoch(jump as u64 % 2)).unwrap();
    }
    loader.set_epoch(Epoch(2)).unwrap();
    assert!(seen(&collect(&loader).unwrap()) == expected[2 * SAMPLES / BATCH..]);
    loader.close();
    assert_eq!(loader.snapshot().memory.used_bytes, 0);
}

#[test]
fn costs_are_learnt_and_kept_for_the_next_run_and_damage_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine { cache_folder: Some(folder.path().to_owned().into()), ..Machine::default() };
    let plan = open(&plan("num_workers = 8")).unwrap();
    let first = Loader::new(plan.clone(), &machine);
    assert!(first.costs().iter().all(Duration::is_zero), "nothing is known yet");
    collect(&first).unwrap();
    first.close();
    let next = Loader::new(plan.clone(), &machine);
    let costs = next.costs();
    // A machine that others use too may stop a fast sample for a moment, but not many of them.
    let seems_slow = |cost: &Duration| cost.as_secs_f64() > 0.055;
    assert!(costs.iter().skip(7).step_by(24).all(seems_slow), "{costs:?}");
    let slow = costs.iter().filter(|cost| seems_slow(cost)).count();
    assert!(slow < SAMPLES / 24 + SAMPLES / 4, "{slow} samples seem slow: {costs:?}");
    let file = std::fs::read_dir(folder.path().join("costs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(Loader::new(plan, &machine).costs().iter().all(Duration::is_zero), "damage is noticed");
}

#[test]
fn costs_that_were_learnt_in_an_epoch_that_was_left_are_kept_too() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine { cache_folder: Some(folder.path().to_owned().into()), ..Machine::default() };
    let plan = open(&plan("num_workers = 8")).unwrap();
    let first = Loader::new(plan.clone(), &machine);
    let iteration = first.begin().unwrap();
    let next = first.next_within(iteration, Duration::from_mins(1)).unwrap();
    assert!(matches!(next, Next::Batch(_)));
    first.abandon(iteration);
    first.close();
    assert!(Loader::new(plan, &machine).costs().iter().any(|cost| !cost.is_zero()), "nothing was kept");
}

#[test]
fn draws_that_fire_are_known_before() {
    let loader = loader("num_workers = 8");
    collect(&loader).unwrap();
    let of_epoch = |epoch: u64| {
        loader.set_epoch(Epoch(epoch)).unwrap();
        let slow = |cost: &Duration| (0.015..0.055).contains(&cost.as_secs_f64());
        loader.costs().iter().enumerate().filter(|(_, cost)| slow(cost)).map(|(n, _)| n).collect::<Vec<_>>()
    };
    let (fifth, sixth) = (of_epoch(5), of_epoch(6));
    assert!((10..SAMPLES / 2).contains(&fifth.len()), "a tenth of {SAMPLES} samples: {}", fifth.len());
    assert_ne!(fifth, sixth);
}
