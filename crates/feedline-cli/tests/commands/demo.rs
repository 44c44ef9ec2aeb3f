//! `feedline demo`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Running, command, fail, wait_until};

#[test]
fn demo_reports_two_epochs_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let ran =
        command(&["demo", "--images", "20", "--json"], folder.path()).env("TMPDIR", folder.path()).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["epochs"].as_array().unwrap().len(), 2);
    assert!(report["samples_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(report["kept"], Value::Null);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn ctrl_c_ends_the_demo_and_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = command(&["demo", "--images", "100000"], folder.path());
    let running = Running::start(demo.env("TMPDIR", folder.path()));
    wait_until(|| has_pictures(folder.path()));
    running.interrupt();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn has_pictures(folder: &Path) -> bool {
    let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    below(folder.to_owned()).flat_map(below).flat_map(below).flat_map(below).next().is_some()
}

#[test]
fn demo_refuses_to_keep_its_data_where_something_is() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("kept/images")).unwrap();
    fs::write(folder.path().join("kept/images/mine.jpg"), "mine").unwrap();
    fail(&["demo", "--images", "20", "--keep", "kept"], folder.path(), &["is not empty"]);
    assert_eq!(fs::read(folder.path().join("kept/images/mine.jpg")).unwrap(), b"mine");
}
