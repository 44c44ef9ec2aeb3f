//! Runs all targets with their seeds and a fixed number of mutations.

use feedline_fuzz::{Mutations, TARGETS, Target};

#[track_caller]
fn check(name: &str, rounds: usize) {
    let Target { run, seeds, .. } = TARGETS.iter().find(|target| target.name == name).expect("targets have names");
    let seeds = seeds();
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| run(seed));
    for (round, bytes) in Mutations::new(&seeds).take(rounds).enumerate() {
        let failed = std::panic::catch_unwind(|| run(&bytes)).is_err();
        assert!(!failed, "{name} broke its promise in round {round}, by {} bytes: {bytes:?}", bytes.len());
    }
}

#[test]
fn headers_of_changed_files_are_read_or_refused() {
    check("header", 20_000);
}

#[test]
fn parts_of_changed_tiff_files_are_those_of_the_whole_or_errors() {
    check("tiff", 20_000);
}

#[test]
fn crops_by_the_index_of_a_changed_file_are_those_without_it() {
    check("index_build", 20_000);
}

#[test]
fn forged_indexes_give_pixels_or_errors() {
    check("index_read", 20_000);
}

#[test]
fn files_changed_behind_their_index_give_pixels_or_errors() {
    check("cut", 20_000);
}

#[test]
fn changed_progressive_files_are_read_as_by_libjpeg() {
    check("progressive", 20_000);
}

#[test]
fn forged_trimmed_pictures_give_pixels_or_errors() {
    check("trimmed", 20_000);
}

#[test]
fn changed_shards_give_samples_inside_them_or_errors() {
    check("tar", 4_000);
}

#[test]
fn changed_and_forged_shard_indexes_give_samples_inside_the_shard_or_errors() {
    check("shard_index", 2_000);
}

#[test]
fn regions_of_changed_volumes_are_those_of_the_whole_or_errors() {
    check("volume", 20_000);
}

#[test]
fn changed_frames_and_messages_are_read_or_refused() {
    check("wire", 20_000);
}

#[test]
fn changed_plans_are_refused_or_run() {
    check("plan", 1_000);
}

#[test]
fn changed_states_are_refused_or_continued() {
    check("state", 2_000);
}

#[test]
fn changed_and_forged_costs_are_refused_or_give_an_order() {
    check("costs", 500);
}

#[test]
fn changed_cache_files_give_what_was_put_or_nothing() {
    check("shelf", 4_000);
}

#[test]
fn forged_samples_of_a_cache_are_used_or_made_anew() {
    check("kept_sample", 500);
}
