//! A user keeps, drops, breaks off and rewinds streams, with a node and other jobs beside.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};

use feedline_data::batch::{Batch, FieldData};
use feedline_data::plan::Plan;
use feedline_data::testing::open;
use feedline_engine::carousel::{Carousel, Memory};
use feedline_engine::loader::{Connect, Loader, LocalFeed};
use feedline_engine::machine::Machine;
use feedline_memory::Mutex;
use feedline_order::Epoch;
use jobs::{SAMPLES, attach, attach_at, check_all_once, epoch, ids, next, node, node_of, plan};

mod jobs;

fn crop_of(size: usize, settings: &str, samples: u64) -> Arc<Plan> {
    open(&format!(
        "batch_size = 7\nshuffle = true\nfields = [\"data\", \"index\"]\n{settings}\n[source]\nkind = \"synthetic\"\n\
         n = {samples}\nshape = [24, 24, 3]\n[[ops]]\nop = \"RandomCrop\"\nsize = {size}\non = \"data\"\n"
    ))
    .unwrap()
}

fn slab_bytes(plan: &Plan) -> u64 {
    plan.production().unwrap().layout().slab().total_bytes() as u64
}

fn bytes(batch: &Batch) -> Vec<u8> {
    batch.field("data").map(FieldData::bytes).unwrap().to_vec()
}

#[test]
fn law_2_what_drop_last_drops_does_not_come_in_the_next_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), crop_of(8, "drop_last = true", 256));
    let loader = attach(&node, &plan);
    for number in 0..4 {
        let ids = ids(&epoch(&loader));
        let all: BTreeSet<i64> = ids.iter().copied().collect();
        assert_eq!((ids.len(), all.len()), (252, 252), "epoch {number}");
    }
}

#[test]
fn law_7_the_first_batch_of_many_epochs_may_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (node, plan) = (node(folder.path()), plan(16, 0));
    let loader = attach(&node, &plan);
    let first = |_| {
        let iteration = loader.begin().unwrap();
        next(&loader, iteration).unwrap().unwrap()
    };
    let kept: Vec<Batch> = (0..8).map(first).collect();
    check_all_once(&ids(&epoch(&loader)));
    assert!((0..).zip(&kept).all(|(number, batch)| batch.epoch == Epoch(number)));
}

#[test]
fn law_7_a_node_that_is_lost_between_two_iterations_costs_nothing() {
    let (plan, folder) = (plan(16, 0), tempfile::tempdir().unwrap());
    let (node, own) = (node(folder.path()), Arc::clone(&plan));
    let fallback: Connect = Box::new(move |job_progress| {
        let carousel = Carousel::start(&own, &Machine::default(), Memory::Heap, 64 << 20)?;
        Ok(Arc::new(LocalFeed::join(&Arc::new(carousel), job_progress)?))
    });
    let loader = attach_at(node.path(), &plan, Some(fallback)).unwrap();
    let iteration = loader.begin().unwrap();
    drop(next(&loader, iteration).unwrap());
    drop(node);
    check_all_once(&ids(&epoch(&loader)));
    loader.set_epoch(Epoch(7)).unwrap();
    check_all_once(&ids(&epoch(&loader)));
}

/// Runs a second job beside the tested one, on a node with little memory.
fn crowded(plan: &Arc<Plan>, test: impl FnOnce(Loader, &mut dyn FnMut())) {
    let folder = tempfile::tempdir().unwrap();
    let node = node_of(folder.path(), 18 * slab_bytes(plan)).unwrap();
    let other = attach(&node, plan);
    let mut go_on = || (0..10).for_each(|_| drop(epoch(&other)));
    test(attach(&node, plan), &mut go_on);
}

#[test]
fn law_5_a_batch_stays_as_it_is_when_its_loader_is_gone() {
    crowded(&plan(16, 0), |loader, go_on| {
        let iteration = loader.begin().unwrap();
        let batch = next(&loader, iteration).unwrap().unwrap();
        let before = bytes(&batch);
        drop(loader);
        go_on();
        assert!(bytes(&batch) == before, "a delivered batch has changed");
    });
}

#[test]
fn law_5_a_batch_stays_as_it_is_when_the_same_segment_is_read_again_and_the_first_is_dropped() {
    crowded(&plan(8, 0), |loader, go_on| {
        let iteration = loader.begin().unwrap();
        let last = next(&loader, iteration).unwrap().unwrap();
        loader.load_state(&loader.state()).unwrap();
        let iteration = loader.begin().unwrap();
        let batch = next(&loader, iteration).unwrap().unwrap();
        let before = bytes(&batch);
        drop(last);
        go_on();
        assert!(bytes(&batch) == before, "a delivered batch has changed");
    });
}

#[test]
fn law_5_plans_that_come_at_once_get_no_more_memory_than_there_is() {
    let plans: Vec<_> = (10..18).map(|size| crop_of(size, "", SAMPLES)).collect();
    let memory = 12 * slab_bytes(&plans[7]);
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let (node, barrier) = (node_of(folder.path(), memory).unwrap(), Barrier::new(plans.len()));
        let loaders: Mutex<Vec<Loader>> = Mutex::default();
        std::thread::scope(|scope| {
            for plan in &plans {
                scope.spawn(|| {
                    barrier.wait();
                    // Jobs that come too late are rejected.
                    let Ok(loader) = attach_at(node.path(), plan, None) else { return };
                    drop(epoch(&loader));
                    loaders.lock().push(loader);
                });
            }
        });
        let live = node.stats().live_bytes;
        assert!(live <= memory, "{live} bytes live, {memory} allowed");
    }
}

#[test]
fn law_7_an_idle_job_stops_nobody_where_segments_are_short() {
    let plan = crop_of(8, "", 24);
    for segments in [8, 9, 10, 12, 20] {
        let folder = tempfile::tempdir().unwrap();
        // Half of the memory is reserved for other plans.
        let node = node_of(folder.path(), 2 * segments * slab_bytes(&plan)).unwrap();
        let (idle, active) = (attach(&node, &plan), attach(&node, &plan));
        let iteration = idle.begin().unwrap();
        let held = next(&idle, iteration).unwrap();
        for _ in 0..4 {
            let iteration = active.begin().unwrap();
            // Like a training loop, it keeps its last batch until it has the next.
            let mut last = None;
            while let Some(batch) = next(&active, iteration).unwrap() {
                drop(last.replace(batch));
            }
        }
        assert!(held.is_some());
    }
}
