//! `feedline shuffle`.

use std::fs;
use std::path::Path;

use crate::support::{fail, json, pictures, succeed, write_plan};

/// Packs the pictures, which are sorted by class, and writes a plan over the shards.
fn pack(folder: &Path, shuffle: &str) {
    if !folder.join("shards").exists() {
        succeed(&["pack", "pictures", "shards"], folder);
    }
    let text =
        format!("batch_size = 5\n{shuffle}\nragged = [\"image\"]\n[source]\nkind = \"tar\"\nshards = \"shards\"\n");
    fs::write(folder.join("plan.toml"), text).unwrap();
}

#[test]
fn a_full_shuffle_is_as_good_as_a_full_shuffle() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 5\nshuffle = true\nragged = [\"image\"]", "");
    let report = json(&["shuffle", "plan.toml", "--json"], folder.path());
    assert_eq!(report["plan"], report["full"]);
    assert_eq!((&report["samples"], &report["warning"]), (&30.into(), &serde_json::Value::Null));
}

#[test]
fn sorted_classes_and_a_small_reservoir_call_for_a_warning_and_a_large_one_does_not() {
    let folder = pictures();
    pack(folder.path(), "shuffle = { kind = \"reservoir\", size = 2, readers = 1 }");
    let small = json(&["shuffle", "plan.toml", "--json"], folder.path());
    let warning = small["warning"].as_str().unwrap();
    assert!(warning.contains("sorted by class") && warning.contains("larger reservoir"), "{warning}");
    assert_eq!((&small["reservoir"], &small["blocks"]), (&2.into(), &1.into()));
    let text = succeed(&["shuffle", "plan.toml"], folder.path()).stdout;
    assert!(text.contains("through a reservoir of 2") && text.contains("warning: "), "{text}");
    pack(folder.path(), "shuffle = { kind = \"reservoir\", size = 1.0 }");
    let large = json(&["shuffle", "plan.toml", "--json"], folder.path());
    let classes = |report: &serde_json::Value| report["plan"]["labels"]["classes_per_batch"].as_f64().unwrap();
    assert!(classes(&large) > classes(&small), "{large}");
}

#[test]
fn plots_are_written_as_a_page_and_as_a_picture() {
    let folder = pictures();
    pack(folder.path(), "shuffle = { kind = \"reservoir\", size = 0.5 }");
    succeed(&["shuffle", "plan.toml", "--svg", "plots.svg", "--html", "page.html"], folder.path());
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("classes in a batch"), "the numbers are told, too");
    let picture = fs::read_to_string(folder.path().join("plots.svg")).unwrap();
    assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"840\""), "{picture}");
    for plot in page.split("<svg ").skip(1) {
        let marks = plot.split_once('>').and_then(|(_, rest)| rest.split_once("</svg>")).unwrap().0;
        assert!(picture.contains(marks), "both show the same");
    }
    fail(&["shuffle", "plan.toml", "--svg", "no/such/plots.svg"], folder.path(), &["no/such/plots.svg"]);
}

#[test]
fn a_reservoir_over_loose_files_says_what_to_do() {
    let folder = pictures();
    let settings = "batch_size = 5\nragged = [\"image\"]\nshuffle = { kind = \"reservoir\" }";
    write_plan(folder.path(), "plan.toml", settings, "");
    fail(&["shuffle", "plan.toml"], folder.path(), &["feedline pack"]);
}
