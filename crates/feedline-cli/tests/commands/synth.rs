//! `feedline synth`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Running, command, decode, fail, files, json, succeed, wait_until};

/// Arguments for small pictures, which are generated quickly even without optimisation.
fn synth<'a>(folder: &'a str, images: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["synth", folder, "--images", images, "--size", "32-64", "--classes", "4"], more].concat()
}

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let name = |path: &PathBuf| path.strip_prefix(folder).unwrap().to_owned();
    files(folder).iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
}

#[test]
fn synth_gives_the_same_bytes_for_any_number_of_workers_and_others_for_another_seed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, more) in [("one", ["--workers", "1", "--seed", "3"]), ("four", ["--workers", "4", "--seed", "3"])] {
        succeed(&synth(name, "24", &more), folder.path());
    }
    succeed(&synth("other", "24", &["--seed", "4"]), folder.path());
    let [one, four, other] = ["one", "four", "other"].map(|name| contents(&folder.path().join(name)));
    assert_eq!(one.len(), 24);
    assert_eq!(one, four);
    assert!(one.iter().zip(&other).all(|((_, a), (_, b))| a != b));
}

#[test]
fn synth_reports_what_is_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let report = json(&synth("out", "10", &["--json"]), folder.path());
    let made = contents(&folder.path().join("out"));
    let bytes: usize = made.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!((&report["images"], &report["bytes"]), (&10.into(), &bytes.into()));
    assert_eq!(made[0].0, Path::new("class-00/00000000.jpg"));
    assert_eq!(made.iter().filter(|(name, _)| name.starts_with("class-01")).count(), 3);
}

#[test]
fn synth_refuses_a_folder_with_something_in_it_unless_forced() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("out")).unwrap();
    fs::write(folder.path().join("out/mine.txt"), "mine").unwrap();
    fail(&synth("out", "4", &[]), folder.path(), &["\"out\" is not empty", "--force"]);
    assert_eq!(files(&folder.path().join("out")).len(), 1);
    succeed(&synth("out", "4", &["--force"]), folder.path());
    assert_eq!(files(&folder.path().join("out")).len(), 5);
}

#[test]
fn a_failed_synth_names_the_file_and_leaves_no_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("out/class-02/00000002.jpg");
    fs::create_dir_all(&in_the_way).unwrap();
    fail(&synth("out", "8", &["--force"]), folder.path(), &["cannot write picture", "00000002.jpg"]);
    assert!(files(&folder.path().join("out")).iter().all(|path| path.extension().unwrap() == "jpg"));
}

/// Starts a long run and waits until it has written some pictures.
fn started(folder: &Path) -> Running {
    let arguments = synth("out", "1000000", &["--workers", "2"]);
    let running = Running::start(&mut command(&arguments, folder));
    wait_until(|| folder.join("out/class-03/00000007.jpg").exists());
    running
}

/// Decodes all pictures. Returns the other files.
fn others(folder: &Path) -> Vec<PathBuf> {
    let (pictures, others): (Vec<_>, Vec<_>) =
        files(folder).into_iter().partition(|path| path.extension().is_some_and(|extension| extension == "jpg"));
    assert!(pictures.len() >= 7);
    for path in pictures {
        decode(&path);
    }
    others
}

#[test]
fn a_killed_synth_leaves_no_half_picture() {
    let folder = tempfile::tempdir().unwrap();
    started(folder.path()).kill();
    let others = others(&folder.path().join("out"));
    assert!(others.iter().all(|path| path.to_str().unwrap().ends_with(".jpg.part")), "{others:?}");
}

#[test]
fn ctrl_c_ends_synth_within_a_second_with_130_and_leaves_no_part() {
    let folder = tempfile::tempdir().unwrap();
    started(folder.path()).interrupt();
    assert_eq!(others(&folder.path().join("out")), Vec::<PathBuf>::new());
}

#[test]
fn a_set_has_grey_pictures_and_both_kinds_of_chroma() {
    let folder = tempfile::tempdir().unwrap();
    succeed(&["synth", "out", "--images", "400", "--size", "16-24"], folder.path());
    let kinds: Vec<_> = contents(&folder.path().join("out")).iter().map(|(_, bytes)| components(bytes)).collect();
    let share = |kind: (u8, u8)| kinds.iter().filter(|found| **found == kind).count();
    let (grey, full, half) = (share((1, 0x11)), share((3, 0x11)), share((3, 0x22)));
    assert_eq!(grey + full + half, 400);
    assert!((3..30).contains(&grey) && (50..110).contains(&full), "{grey} grey, {full} with full chroma");
}

/// Number of components of a baseline JPEG and the sampling factors of the first.
fn components(jpeg: &[u8]) -> (u8, u8) {
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    (jpeg[frame + 9], jpeg[frame + 11])
}
