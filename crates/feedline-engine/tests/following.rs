//! A stream that replaces another one takes over its memory, and gives the batches of its own plan.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::sync::Arc;

use feedline_data::batch::{Batch, FieldData};
use feedline_data::plan::Plan;
use feedline_data::testing::open;
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::testing::collect;
use feedline_order::Epoch;

fn plan(seed: u64, width: usize) -> Arc<Plan> {
    let source = format!("[source]\nkind = \"synthetic\"\nn = 64\nshape = [{width}]");
    open(&format!("batch_size = 8\nshuffle = true\nseed = {seed}\n{source}\n[run]\nnum_workers = 2")).unwrap()
}

fn epoch(loader: &Loader) -> Vec<Batch> {
    loader.set_epoch(Epoch(0)).unwrap();
    collect(loader).unwrap()
}

fn addresses(batches: &[Batch]) -> BTreeSet<usize> {
    batches.iter().map(|batch| data(batch).bytes().as_ptr() as usize).collect()
}

fn data(batch: &Batch) -> &FieldData {
    batch.field("data").unwrap()
}

fn ids(batches: &[Batch]) -> Vec<Vec<i64>> {
    batches.iter().map(Batch::ids).collect()
}

#[test]
fn a_stream_that_follows_another_one_uses_its_memory_again() {
    let first = Loader::new(plan(1, 65536), &Machine::default());
    let batches = epoch(&first);
    let used = addresses(&batches);
    drop(batches);
    let second = first.following(plan(2, 65536));
    first.close();
    let batches = epoch(&second);
    assert!(!used.is_disjoint(&addresses(&batches)), "no slab was used again");
    let alone = Loader::new(plan(2, 65536), &Machine::default());
    assert_eq!(ids(&batches), ids(&epoch(&alone)));
}

#[test]
fn a_stream_with_other_arrays_has_memory_of_its_own() {
    let first = Loader::new(plan(1, 16), &Machine::default());
    drop(epoch(&first));
    let second = first.following(plan(1, 32));
    first.close();
    let batches = epoch(&second);
    assert!(batches.iter().all(|batch| data(batch).bytes().len() == 8 * 32));
}
