//! `feedline pack`.

use std::fs;
use std::path::{Path, PathBuf};

use feedline_data::testing::write_pictures;
use tempfile::TempDir;

use crate::support::{Running, command, fail, files, json, pictures, succeed, wait_until, write_plan};

/// The shards in a folder, by name.
fn shards(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let is_shard = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "tar");
    let shards = files(folder).into_iter().filter(is_shard);
    shards.map(|path| (path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

#[test]
fn pack_gives_the_same_shards_for_any_number_of_workers() {
    let folder = pictures();
    let shard_size = ["--shard-size", "20kB"];
    succeed(&[&["pack", "pictures", "one", "--workers", "1"], &shard_size[..]].concat(), folder.path());
    let report =
        json(&[&["pack", "pictures", "four", "--workers", "4", "--json"], &shard_size[..]].concat(), folder.path());
    let (one, four) = (shards(&folder.path().join("one")), shards(&folder.path().join("four")));
    assert!(one.len() > 2);
    assert_eq!(one, four);
    let bytes: usize = four.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!((&report["samples"], &report["shards"]), (&30.into(), &four.len().into()));
    assert_eq!((&report["bytes"], &report["damaged"]), (&bytes.into(), &0.into()));
    for name in ["seconds", "mb_per_second"] {
        assert!(report[name].as_f64().unwrap() > 0.0, "{name}");
    }
}

#[test]
fn shards_are_no_larger_than_asked_unless_a_sample_is() {
    let folder = pictures();
    succeed(&["pack", "pictures", "out", "--shard-size", "20kB"], folder.path());
    let found = shards(&folder.path().join("out"));
    // A tar file ends with two blocks of zeros.
    assert!(found.iter().all(|(_, bytes)| bytes.len() <= 20_000 + 1024));
    succeed(&["pack", "pictures", "single", "--shard-size", "1"], folder.path());
    assert_eq!(shards(&folder.path().join("single")).len(), 30);
}

#[test]
fn a_plan_over_shards_runs_and_a_plan_names_a_source_to_pack() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 4", "");
    succeed(&["pack", "plan.toml", "out"], folder.path());
    let ops = "[[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 16\n";
    let plan = format!("batch_size = 8\n[source]\nkind = \"tar\"\nshards = \"out/*.tar\"\n{ops}");
    fs::write(folder.path().join("shards.toml"), plan).unwrap();
    let report = json(&["run", "shards.toml", "--json"], folder.path());
    assert_eq!(report["samples"], 30);
}

#[test]
fn pack_tells_people_what_it_did() {
    let folder = pictures();
    fs::write(folder.path().join("pictures/class-1/broken.1.jpg"), b"not a picture").unwrap();
    let said = succeed(&["pack", "pictures", "out", "--max-side", "50"], folder.path()).stdout;
    for part in [
        "packed 31 samples into 1 shards",
        "1 keys differ",
        "pictures were shrunk",
        "1 pictures are damaged and were kept",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert!(said.contains("\"class-1/broken.1.jpg\": not a JPEG"), "{said}");
}

#[test]
fn wrong_arguments_of_pack_are_refused() {
    let folder = pictures();
    fail(&["pack", "nothing", "out"], folder.path(), &["no such file or folder", "nothing"]);
    fail(&["pack", "nothing/*.tar", "out"], folder.path(), &["nothing"]);
    fail(&["pack", "missing.toml", "out"], folder.path(), &["cannot read plan \"missing.toml\""]);
    fs::write(folder.path().join("file"), b"").unwrap();
    fail(&["pack", "pictures", "file"], folder.path(), &["cannot write", "file"]);
}

/// Number of pictures. Each becomes a separate shard.
const MANY: u64 = 600;

/// Starts a long run and waits until it has written some shards.
fn started() -> (TempDir, Running) {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("pictures"), MANY, 3).unwrap();
    let arguments = ["pack", "pictures", "out", "--shard-size", "1", "--workers", "2"];
    let running = Running::start(&mut command(&arguments, folder.path()));
    wait_until(|| folder.path().join("out/shard-000019.tar").exists());
    (folder, running)
}

/// Runs the same command to the end, and compares with an uninterrupted run.
fn check_goes_on(folder: &Path) {
    let done = shards(&folder.join("out"));
    assert!((20..MANY as usize).contains(&done.len()), "{} shards when it was stopped", done.len());
    let report = json(&["pack", "pictures", "out", "--shard-size", "1", "--json"], folder);
    let resumed = report["resumed_samples"].as_u64().unwrap() as usize;
    assert!((done.len() - 1..=done.len()).contains(&resumed), "{resumed} of {} shards were used", done.len());
    succeed(&["pack", "pictures", "fresh", "--shard-size", "1"], folder);
    assert!(shards(&folder.join("out")) == shards(&folder.join("fresh")), "shards differ");
    let names = |name: &str| -> Vec<PathBuf> {
        files(&folder.join(name)).iter().map(|path| path.file_name().unwrap().into()).collect()
    };
    assert_eq!(names("out"), names("fresh"), "nothing else is left");
}

#[test]
fn a_killed_pack_goes_on_behind_the_last_finished_shard() {
    let (folder, running) = started();
    running.kill();
    check_goes_on(folder.path());
}

#[test]
fn ctrl_c_ends_pack_within_a_second_with_130_and_it_goes_on() {
    let (folder, running) = started();
    running.interrupt();
    check_goes_on(folder.path());
}
