//! Sequential shuffle through the whole engine, over real shards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::{Batch, FieldData, Unslotted};
use feedline_data::testing::{open, open_for};
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::state::SavedState;
use feedline_engine::testing::{collect, take};
use feedline_order::{Ordinal, Rank};
use tempfile::TempDir;

const SHARDS: u64 = 4;
const PER_SHARD: u64 = 60;
const SAMPLES: u64 = SHARDS * PER_SHARD;
const BATCH: usize = 7;

/// What is stored of a sample.
fn content(id: u64) -> Vec<u8> {
    let len = 200 + (id * 37 % 400) as usize;
    id.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn write_shards() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for shard in 0..SHARDS {
        let file = fs::File::create(folder.path().join(format!("{shard:03}.tar"))).unwrap();
        let mut builder = tar::Builder::new(file);
        for id in shard * PER_SHARD..(shard + 1) * PER_SHARD {
            for (ending, bytes) in [("bin", content(id)), ("cls", (id / 24).to_string().into_bytes())] {
                let mut header = tar::Header::new_gnu();
                header.set_size(bytes.len() as u64);
                header.set_mode(0o644);
                builder.append_data(&mut header, format!("{id:05}.{ending}"), bytes.as_slice()).unwrap();
            }
        }
        builder.into_inner().unwrap().flush().unwrap();
    }
    folder
}

fn plan(folder: &Path, settings: &str, run: &str) -> String {
    format!(
        "batch_size = {BATCH}\nseed = 5\nragged = [\"bin\"]\n{settings}\n\
         [source]\nkind = \"tar\"\nshards = \"{}/*.tar\"\n[run]\n{run}\n",
        folder.display()
    )
}

/// A reservoir of 40 samples from blocks of about 8.
const RESERVOIR: &str = "shuffle = { kind = \"reservoir\", size = 40, readers = 3, block = \"12kB\" }";

fn loader(folder: &Path, settings: &str, run: &str) -> Loader {
    Loader::new(open(&plan(folder, &format!("{RESERVOIR}\n{settings}"), run)).unwrap(), &Machine::default())
}

fn rank_loader(folder: &Path, rank: u32, world: u32) -> Loader {
    Loader::new(open_for(Rank { rank, world }, &plan(folder, RESERVOIR, "")).unwrap(), &Machine::default())
}

/// Ids and contents; each content is that of its id.
fn ids(batches: &[Batch]) -> Vec<u64> {
    let mut all = Vec::new();
    for batch in batches {
        let Some(FieldData::List(values)) = batch.field("bin") else { panic!("a list") };
        for (id, value) in batch.ids().iter().zip(values) {
            let Unslotted::Array { bytes, .. } = value else { panic!("bytes are an array") };
            assert_eq!(*bytes, content(*id as u64), "sample {id}");
            all.push(*id as u64);
        }
    }
    all
}

#[track_caller]
fn check_each_once(mut ids: Vec<u64>) {
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..SAMPLES));
}

#[test]
fn law_2_every_epoch_has_each_sample_once_with_its_own_bytes() {
    let data = write_shards();
    let loader = loader(data.path(), "", "num_workers = 2");
    let epochs: Vec<Vec<u64>> = (0..3).map(|_| ids(&collect(&loader).unwrap())).collect();
    assert_ne!(epochs[0], epochs[1]);
    epochs.into_iter().for_each(check_each_once);
}

#[test]
fn law_3_the_stream_is_the_same_for_1_2_and_8_threads_and_is_the_plans() {
    let data = write_shards();
    let expected = ids(&collect(&loader(data.path(), "", "num_workers = 1")).unwrap());
    for workers in [2, 8] {
        let loader = loader(data.path(), "", &format!("num_workers = {workers}"));
        assert_eq!(ids(&collect(&loader).unwrap()), expected, "{workers} threads");
        assert_eq!(loader.plan().ids(feedline_order::Epoch(0), SAMPLES), expected);
    }
}

#[test]
fn law_5_what_is_held_is_the_reservoir_and_a_little_ahead() {
    let data = write_shards();
    let run = "num_workers = 2\nmemory_budget = \"64kB\"\nprefetch_batches = 3\nstart = \"first-come\"";
    let loader = loader(data.path(), "", run);
    for _ in 0..2 {
        check_each_once(ids(&collect(&loader).unwrap()));
    }
    let reservoir = loader.snapshot().reservoir.unwrap();
    // 1.5 kB a sample with its headers; ahead an eighth of the budget, which is five samples, and what tasks ask for.
    let sample_bytes = (0..SAMPLES).map(|id| content(id).len() as u64).sum::<u64>() / SAMPLES;
    assert!(reservoir.peak_bytes > 30 * sample_bytes, "{reservoir:?}");
    assert!(reservoir.peak_bytes < (40 + 5 + 4 * BATCH as u64) * sample_bytes, "{reservoir:?} {sample_bytes}");
    assert_eq!(reservoir.size, 40);
}

#[test]
fn what_lies_together_is_read_in_one_go() {
    let data = write_shards();
    let settings = "shuffle = { kind = \"reservoir\", size = 40, readers = 1 }";
    let plan = open(&plan(data.path(), settings, "num_workers = 2")).unwrap();
    let loader = Loader::new(plan, &Machine::default());
    check_each_once(ids(&collect(&loader).unwrap()));
    let reservoir = loader.snapshot().reservoir.unwrap();
    let shard_bytes = fs::metadata(data.path().join("000.tar")).unwrap().len();
    assert!(reservoir.read_bytes / reservoir.reads > shard_bytes * 9 / 10, "{reservoir:?} of {shard_bytes}");
}

#[test]
fn law_4_resuming_after_any_batch_gives_the_rest() {
    let data = write_shards();
    let whole = ids(&collect(&loader(data.path(), "", "")).unwrap());
    for batches in [0, 1, 9, 27, 33, 34] {
        let first = loader(data.path(), "", "num_workers = 3");
        let received = ids(&take(&first, batches).unwrap());
        let state: SavedState = serde_json::from_str(&serde_json::to_string(&first.state()).unwrap()).unwrap();
        let second = loader(data.path(), "", "num_workers = 1");
        second.load_state(&state).unwrap();
        let rest = ids(&collect(&second).unwrap());
        assert_eq!([received, rest].concat(), whole, "after {batches} batches");
    }
}

#[test]
fn law_4_another_batch_size_goes_on_and_another_world_is_refused_within_an_epoch_only() {
    let data = write_shards();
    let first = rank_loader(data.path(), 0, 2);
    let begin = first.state();
    let received = ids(&take(&first, 5).unwrap());
    let state = first.state();
    let refused = rank_loader(data.path(), 0, 3).load_state(&state).unwrap_err();
    let text = feedline_data::failure::chain(&refused);
    assert!(text.contains("over 2 ranks") && text.contains("world_size 3"), "{text}");
    rank_loader(data.path(), 0, 3).load_state(&begin).unwrap();
    let other = plan(data.path(), RESERVOIR, "").replace("batch_size = 7", "batch_size = 4");
    let other = Loader::new(open_for(Rank { rank: 0, world: 2 }, &other).unwrap(), &Machine::default());
    other.load_state(&state).unwrap();
    let all = ids(&collect(&rank_loader(data.path(), 0, 2)).unwrap());
    assert_eq!([received, ids(&collect(&other).unwrap())].concat(), all);
}

#[test]
fn law_2_ranks_divide_the_epoch() {
    let data = write_shards();
    for world in [2_u32, 3, 8] {
        let mut all = Vec::new();
        for rank in 0..world {
            let loader = rank_loader(data.path(), rank, world);
            for batch in collect(&loader).unwrap() {
                let is_padded = batch.field("padded").unwrap().bytes();
                let own = batch.ids().into_iter().zip(is_padded).filter(|(_, padded)| **padded == 0);
                all.extend(own.map(|(id, _)| id as u64));
            }
        }
        check_each_once(all);
    }
}

#[test]
fn what_fills_no_batch_is_dropped_and_holds_up_nothing() {
    let data = write_shards();
    let loader = loader(data.path(), "drop_last = true", "num_workers = 2");
    for _ in 0..4 {
        let mut ids = ids(&collect(&loader).unwrap());
        assert_eq!(ids.len() as u64, SAMPLES / BATCH as u64 * BATCH as u64);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len() as u64, SAMPLES / BATCH as u64 * BATCH as u64);
    }
}

#[test]
fn planned_and_arrival_order_deliver_each_sample_once() {
    let data = write_shards();
    for order in ["planned", "arrival"] {
        let loader = loader(data.path(), &format!("order = \"{order}\""), "num_workers = 4");
        check_each_once(ids(&collect(&loader).unwrap()));
    }
}

#[test]
fn law_7_slow_samples_that_start_early_and_little_memory_hold_up_nothing() {
    let data = write_shards();
    let delays = "[[ops]]\nop = \"Delay\"\ncosts_ms = [0.0, 0.0, 0.0, 0.0, 30.0, 0.0, 0.0]\n";
    for (order, budget) in [("strict", "4kB"), ("planned", "4kB"), ("arrival", "1MB")] {
        let run = format!("num_workers = 4\nmemory_budget = \"{budget}\"\n{delays}");
        let loader = loader(data.path(), &format!("order = \"{order}\""), &run);
        for _ in 0..2 {
            check_each_once(ids(&collect(&loader).unwrap()));
        }
    }
}

#[test]
fn law_7_leaving_in_the_middle_and_closing_end_at_once() {
    let data = write_shards();
    let slow = format!("slow-disk://seek_ms=5,mb_per_second=2{}", data.path().display());
    let loader = loader(Path::new(&slow), "", "num_workers = 2");
    for _ in 0..3 {
        let begun = Instant::now();
        take(&loader, 2).unwrap();
        assert!(begun.elapsed() < Duration::from_mins(1));
    }
    let begun = Instant::now();
    loader.close();
    drop(loader);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn a_jump_to_another_epoch_gives_that_epoch() {
    let data = write_shards();
    let loader = loader(data.path(), "", "num_workers = 2");
    take(&loader, 3).unwrap();
    loader.set_epoch(feedline_order::Epoch(4)).unwrap();
    let ids = ids(&collect(&loader).unwrap());
    assert_eq!(ids, loader.plan().ids(feedline_order::Epoch(4), SAMPLES));
}

#[test]
fn law_6_samples_that_a_truncated_shard_lost_fail_by_name_and_others_are_delivered() {
    let data = write_shards();
    let loader = loader(data.path(), "on_error = { max_fraction = 0.5 }", "num_workers = 2");
    let shard = data.path().join("002.tar");
    let len = fs::metadata(&shard).unwrap().len();
    // The source has listed it, and its samples are read through files opened later.
    take(&loader, 1).unwrap();
    fs::OpenOptions::new().write(true).open(&shard).unwrap().set_len(len / 2).unwrap();
    let batches = collect(&loader).unwrap();
    assert_eq!(batches.iter().map(|batch| batch.len as u64).sum::<u64>(), SAMPLES);
    let snapshot = loader.snapshot();
    assert!(snapshot.substituted > 5 && snapshot.substituted <= PER_SHARD, "{}", snapshot.substituted);
    assert!(snapshot.substitutes.iter().all(|substitute| substitute.reason.contains("002.tar")), "{snapshot:?}");
}

#[test]
fn loose_files_are_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    feedline_data::testing::write_pictures(folder.path(), 3, 1).unwrap();
    let plan = format!(
        "batch_size = 2\nragged = [\"image\"]\n{RESERVOIR}\n[source]\nkind = \"folder\"\nroot = {:?}\n",
        folder.path().display().to_string()
    );
    let text = open(&plan).unwrap_err().to_string();
    assert!(text.contains("feedline pack") && text.contains("fl.tar"), "{text}");
}

#[test]
fn part_of_a_source_is_walked_too() {
    let data = write_shards();
    let text = format!(
        "batch_size = {BATCH}\nragged = [\"bin\"]\n{RESERVOIR}\n[source]\nkind = \"subset\"\nseed = 1\nfrom = 0.2\nto = 0.9\n\
         [source.of]\nkind = \"tar\"\nshards = \"{}/*.tar\"\n",
        data.path().display()
    );
    let loader = Loader::new(open(&text).unwrap(), &Machine::default());
    let mut seen = ids(&collect(&loader).unwrap());
    let source = Arc::clone(loader.plan().source());
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..source.len()).map(|ordinal| source.id_at(Ordinal(ordinal)).0)));
}
