//! The laws of the design, each held by a test that names it, on real pictures through the whole engine.
#![allow(
    clippy::unwrap_used,
    clippy::unnecessary_debug_formatting,
    reason = "a test may panic; TOML quotes as Debug does"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::{Batch, FieldData};
use feedline_data::plan::Plan;
use feedline_data::testing::{open, open_for, picture, write_pictures};
use feedline_engine::error::Error;
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;
use feedline_engine::testing::{collect, take};
use feedline_order::{Epoch, Rank};

const OPS: &str = r#"
[[ops]]
op = "DecodeImage"
[[ops]]
op = "RandomResizedCrop"
size = 24
[[ops]]
op = "RandomHorizontalFlip"
[[ops]]
op = "ColorJitter"
brightness = 0.4
hue = 0.1
[[ops]]
op = "Normalize"
[[ops]]
op = "RandomErasing"
value = "random"
"#;

fn plan_for(rank: Rank, folder: &Path, settings: &str, run: &str) -> Arc<Plan> {
    let text = format!(
        "shuffle = true\nseed = 7\n{settings}\n[source]\nkind = \"folder\"\nroot = {folder:?}\n[run]\n{run}\n{OPS}"
    );
    open_for(rank, &text).unwrap()
}

fn plan(folder: &Path, settings: &str, run: &str) -> Arc<Plan> {
    plan_for(Rank::ALONE, folder, settings, run)
}

fn loader(folder: &tempfile::TempDir, settings: &str, run: &str) -> Loader {
    Loader::new(plan(folder.path(), settings, run), &Machine::default())
}

fn rank_loader(rank: u32, world: u32, folder: &tempfile::TempDir, settings: &str) -> Loader {
    Loader::new(plan_for(Rank { rank, world }, folder.path(), settings, ""), &Machine::default())
}

fn pictures(count: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(folder.path(), count, 3).unwrap();
    folder
}

/// Everything a user could see of the batches.
fn seen(batches: &[Batch]) -> Vec<(u64, Vec<i64>, Vec<u8>)> {
    let image = |batch: &Batch| batch.field("image").map(FieldData::bytes).unwrap().to_vec();
    batches.iter().map(|batch| (batch.epoch.0, batch.ids(), image(batch))).collect()
}

fn two_epochs(loader: &Loader) -> Vec<(u64, Vec<i64>, Vec<u8>)> {
    let mut batches = collect(loader).unwrap();
    batches.extend(collect(loader).unwrap());
    seen(&batches)
}

#[test]
fn law_1_values_do_not_depend_on_threads_window_or_simd() {
    let folder = pictures(40);
    let expected = two_epochs(&loader(&folder, "batch_size = 8", "num_workers = 1"));
    assert_eq!(expected.len(), 10);
    for run in ["num_workers = 2", "num_workers = 4", "num_workers = 8", "simd = false", "prefetch_batches = 7"] {
        assert_eq!(two_epochs(&loader(&folder, "batch_size = 8", run)), expected, "{run}");
    }
}

#[test]
fn law_1_values_do_not_depend_on_rank_or_batch_size() {
    let folder = pictures(24);
    let by_id = |settings: &str, world: u32| {
        let mut samples: Vec<(i64, Vec<u8>)> = Vec::new();
        for rank in 0..world {
            for (_, ids, bytes) in seen(&collect(&rank_loader(rank, world, &folder, settings)).unwrap()) {
                let each = bytes.len() / ids.len();
                samples.extend(ids.into_iter().zip(bytes.chunks(each).map(<[u8]>::to_vec)));
            }
        }
        samples.sort();
        samples
    };
    assert_eq!(by_id("batch_size = 5", 3), by_id("batch_size = 8", 1));
}

#[test]
fn law_2_exactly_once_over_ranks_1_2_3_8() {
    let folder = pictures(29);
    for world in [1, 2, 3, 8] {
        let mut ids = Vec::new();
        let mut batch_counts = Vec::new();
        for rank in 0..world {
            let batches = collect(&rank_loader(rank, world, &folder, "batch_size = 4")).unwrap();
            batch_counts.push(batches.len());
            for batch in &batches {
                let padded = batch.field("padded").map(|field| field.bytes().to_vec());
                let padded = padded.unwrap_or_else(|| vec![0; batch.len]);
                ids.extend(batch.ids().into_iter().zip(padded).filter(|(_, padded)| *padded == 0).map(|(id, _)| id));
            }
        }
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..29), "world {world}");
        assert!(batch_counts.iter().all(|count| *count == batch_counts[0]), "{batch_counts:?}");
    }
}

#[test]
fn law_2_a_samplers_sequence_is_the_epoch_and_repeats_are_drawn_anew() {
    let folder = pictures(6);
    let text = format!(
        "batch_size = 8\nsampler = {{ kind = \"list\", indices = [3, 1, 3, 3, 0] }}\n\
         [source]\nkind = \"folder\"\nroot = {:?}\n{OPS}",
        folder.path()
    );
    let batches = collect(&Loader::new(open(&text).unwrap(), &Machine::default())).unwrap();
    assert_eq!(batches[0].ids(), [3, 1, 3, 3, 0]);
    let image = batches[0].field("image").unwrap().bytes();
    let each = image.len() / 5;
    assert_ne!(image[..each], image[2 * each..3 * each], "a repeat has its own draws");
}

#[test]
fn law_2_a_new_iterator_takes_over_without_losing_a_batch() {
    let folder = pictures(24);
    for _ in 0..20 {
        let loader = loader(&folder, "batch_size = 2", "num_workers = 2");
        let first = loader.begin().unwrap();
        let by_first = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| loader.next_within(first, Duration::from_secs(30)));
            let second = loader.begin().unwrap();
            let received = waiting.join().unwrap();
            let mut ids: Vec<i64> = Vec::new();
            while let Next::Batch(batch) = loader.next_within(second, Duration::from_secs(30)).unwrap() {
                ids.extend(batch.ids());
            }
            assert_eq!(ids.len(), 24, "the iterator that took over sees a whole epoch");
            received
        });
        assert!(matches!(by_first, Ok(Next::Batch(_)) | Err(Error::Superseded)), "{by_first:?}");
    }
}

#[test]
fn law_3_strict_order_is_the_plans_order() {
    let folder = pictures(30);
    let plan = plan(folder.path(), "batch_size = 7", "num_workers = 4");
    let loader = Loader::new(Arc::clone(&plan), &Machine::default());
    for epoch in 0..3 {
        let ids: Vec<i64> = collect(&loader).unwrap().iter().flat_map(Batch::ids).collect();
        let expected: Vec<i64> = plan.ids(Epoch(epoch), u64::MAX).into_iter().map(|id| id as i64).collect();
        assert_eq!(ids, expected, "epoch {epoch}");
    }
}

#[test]
fn law_4_resume_at_every_batch_gives_the_rest_of_the_stream() {
    let folder = pictures(26);
    let whole = two_epochs(&loader(&folder, "batch_size = 4", "num_workers = 2"));
    for stop in 0..whole.len() {
        let first = loader(&folder, "batch_size = 4", "num_workers = 2");
        let mut left = stop;
        while left > 0 {
            left -= take(&first, left).unwrap().len();
        }
        let state = serde_json::to_string(&first.state()).unwrap();
        let second = loader(&folder, "batch_size = 4", "num_workers = 3");
        second.load_state(&serde_json::from_str(&state).unwrap()).unwrap();
        let mut rest = seen(&collect(&second).unwrap());
        if stop < 7 {
            rest.extend(seen(&collect(&second).unwrap()));
        }
        assert_eq!(rest, whole[stop..], "resumed after {stop} batches");
    }
}

#[test]
fn law_4_resume_with_another_world_and_batch_size_completes_the_epoch() {
    let folder = pictures(50);
    let mut ids = Vec::new();
    let mut state = None;
    for rank in 0..2 {
        let loader = rank_loader(rank, 2, &folder, "batch_size = 5");
        ids.extend(take(&loader, 2).unwrap().iter().flat_map(Batch::ids));
        state = Some(loader.state());
    }
    for rank in 0..3 {
        let loader = rank_loader(rank, 3, &folder, "batch_size = 4");
        loader.load_state(state.as_ref().unwrap()).unwrap();
        ids.extend(collect(&loader).unwrap().iter().flat_map(Batch::ids));
    }
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..50));
}

#[test]
fn law_4_a_state_of_another_stream_is_refused_by_name() {
    let folder = pictures(8);
    let state = loader(&folder, "batch_size = 4", "").state().stream().unwrap().clone();
    let other = pictures(9);
    let check = |state: feedline_engine::state::State, folder: &tempfile::TempDir, settings: &str, words: &str| {
        let text = loader(folder, settings, "").load_state(&state.into()).unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    };
    check(state.clone(), &other, "batch_size = 4", "8 samples then, 9 now");
    let mut seed = state.clone();
    seed.seed = 5;
    check(seed, &folder, "batch_size = 4", "seed 5");
    let mut beyond = state;
    beyond.batches = 99;
    check(beyond, &folder, "batch_size = 4", "batch 99");
}

#[test]
fn law_5_delivered_batches_never_change() {
    let folder = pictures(32);
    let loader = loader(&folder, "batch_size = 4", "num_workers = 2");
    let kept = collect(&loader).unwrap();
    let before = seen(&kept);
    for _ in 0..3 {
        collect(&loader).unwrap();
    }
    assert_eq!(seen(&kept), before);
}

#[test]
fn law_5_memory_stays_within_the_budget_also_for_samples_larger_than_it() {
    let folder = pictures(12);
    let big = picture(1, 900, 800);
    let jpeg = feedline_codec::encode_jpeg(&big, 900, 800, 3, 90, feedline_codec::Subsampling::S444).unwrap();
    for number in 0..4 {
        std::fs::write(folder.path().join(format!("class-0/big-{number}.jpg")), &jpeg).unwrap();
    }
    let check = |budget: u64, most: u64| {
        let loader = loader(&folder, "batch_size = 4", &format!("num_workers = 4\nmemory_budget = {budget}"));
        assert_eq!(collect(&loader).unwrap().iter().map(|batch| batch.len).sum::<usize>(), 16);
        let peak = loader.snapshot().memory.peak_bytes;
        assert!(peak <= most, "budget {budget}: peak {peak}");
    };
    check(12_000_000, 12_000_000);
    // One big sample alone: its pixels and encoded bytes, beside what others hold while they wait.
    check(1_000_000, 1_000_000 + 900 * 800 * 3 + 4 * jpeg.len() as u64);
}

#[test]
fn law_6_a_bad_sample_is_named_and_never_ends_the_epoch() {
    let folder = pictures(20);
    std::fs::write(folder.path().join("class-1/00004.jpg"), b"not a picture").unwrap();
    let loader = loader(&folder, "batch_size = 4", "num_workers = 2");
    let iteration = loader.begin().unwrap();
    let mut batches = 0;
    let error = loop {
        match loader.next_within(iteration, Duration::from_secs(30)) {
            Ok(Next::Batch(_)) => batches += 1,
            Ok(other) => panic!("{other:?} instead of the failure"),
            Err(error) => break error,
        }
    };
    let text = feedline_data::failure::chain(&error);
    assert!(text.contains("class-1/00004.jpg") && text.contains("DecodeImage"), "{text}");
    assert_eq!(
        loader.state().stream().unwrap().batches,
        batches,
        "the state stays before the batch that was not delivered"
    );
    assert!(loader.next_within(iteration, Duration::from_secs(30)).is_err(), "the failure stays");
}

#[test]
fn law_6_after_an_error_iterating_goes_on_before_what_was_not_delivered() {
    let folder = pictures(20);
    let bad = folder.path().join("class-1/00004.jpg");
    let good = std::fs::read(&bad).unwrap();
    let whole = seen(&collect(&loader(&folder, "batch_size = 4", "num_workers = 2")).unwrap());
    std::fs::write(&bad, b"not a picture").unwrap();
    let loader = loader(&folder, "batch_size = 4", "num_workers = 2");
    let iteration = loader.begin().unwrap();
    let mut received = Vec::new();
    while let Ok(Next::Batch(batch)) = loader.next_within(iteration, Duration::from_secs(30)) {
        received.push(*batch);
    }
    assert!(received.len() < whole.len());
    std::fs::write(&bad, good).unwrap();
    received.extend(collect(&loader).unwrap());
    assert_eq!(seen(&received), whole);
}

#[test]
fn law_7_jumps_with_a_tiny_budget_never_hang() {
    let folder = pictures(24);
    let loader = loader(&folder, "batch_size = 3", "num_workers = 1\nmemory_budget = 1000\nprefetch_batches = 4");
    for round in 0..60 {
        if round % 3 == 0 {
            loader.set_epoch(Epoch(round)).unwrap();
        }
        assert_eq!(take(&loader, 1 + round as usize % 4).unwrap().len(), 1 + round as usize % 4);
    }
}

#[test]
fn law_6_skipping_fills_the_slot_with_a_named_substitute_in_the_same_way_each_time() {
    let folder = pictures(20);
    std::fs::write(folder.path().join("class-1/00004.jpg"), b"").unwrap();
    let settings = "batch_size = 4\non_error = { max_fraction = 0.1 }";
    let stream = |run: &str| {
        let loader = loader(&folder, settings, run);
        (seen(&collect(&loader).unwrap()), loader.snapshot())
    };
    let (expected, snapshot) = stream("num_workers = 1");
    assert_eq!(expected.iter().map(|batch| batch.1.len()).sum::<usize>(), 20);
    assert_eq!((snapshot.substituted, snapshot.substitutes[0].bad.as_str()), (1, "class-1/00004.jpg"));
    assert_eq!(stream("num_workers = 4").0, expected);
}

#[test]
fn law_6_past_its_budget_skipping_raises() {
    let folder = pictures(20);
    for number in [1, 4, 7, 10] {
        std::fs::write(folder.path().join(format!("class-1/{number:05}.jpg")), b"").unwrap();
    }
    let loader = loader(&folder, "batch_size = 4\non_error = { max_fraction = 0.1 }", "num_workers = 2");
    let error = collect(&loader).unwrap_err();
    assert!(error.to_string().contains("at most 2 may be replaced"), "{error}");
}

#[test]
fn law_7_closing_mid_epoch_ends_soon_and_is_final() {
    let folder = pictures(60);
    let loader = loader(&folder, "batch_size = 2", "num_workers = 4");
    take(&loader, 3).unwrap();
    let start = Instant::now();
    loader.close();
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(matches!(loader.begin(), Err(Error::Closed)));
}

#[test]
fn law_8_normalize_in_one_step_gives_the_bytes_of_two() {
    let folder = pictures(8);
    let stream = |ops: &str| {
        let text = format!(
            "batch_size = 4\n[source]\nkind = \"folder\"\nroot = {:?}\n[[ops]]\nop = \"DecodeImage\"\n\
             [[ops]]\nop = \"Resize\"\nsize = [20, 33]\n{ops}",
            folder.path()
        );
        seen(&collect(&Loader::new(open(&text).unwrap(), &Machine::default())).unwrap())
    };
    let unfused = stream("[[ops]]\nop = \"ToTensor\"\n[[ops]]\nop = \"Normalize\"\n");
    assert_eq!(stream("[[ops]]\nop = \"Normalize\"\n"), unfused);
}

#[test]
fn iterating_again_is_the_next_epoch_and_set_epoch_follows_the_rules() {
    let folder = pictures(12);
    let loader = loader(&folder, "batch_size = 4", "num_workers = 2");
    let epoch_of = |batches: &[Batch]| batches[0].epoch.0;
    assert_eq!(epoch_of(&take(&loader, 1).unwrap()), 0);
    assert_eq!(epoch_of(&collect(&loader).unwrap()), 1, "after a break comes the next epoch");
    loader.set_epoch(Epoch(2)).unwrap();
    assert_eq!(epoch_of(&take(&loader, 2).unwrap()), 2);
    let state = loader.state();
    loader.set_epoch(Epoch(3)).unwrap();
    assert_eq!(loader.state(), state, "the epoch that would come anyway changes nothing");
    loader.set_epoch(Epoch(2)).unwrap();
    assert_eq!(collect(&loader).unwrap().len(), 3, "any other starts at its beginning");
    loader.load_state(&state).unwrap();
    loader.set_epoch(Epoch(2)).unwrap();
    let rest = collect(&loader).unwrap();
    assert_eq!((epoch_of(&rest), rest.len()), (2, 1), "a loaded position is kept by set_epoch of its epoch");
}
