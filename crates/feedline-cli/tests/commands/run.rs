//! `feedline run`.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use feedline_data::plan::Registry;

use crate::support::{CROP, DECODE, fail, json, pictures, succeed, write_plan};

#[test]
fn run_reports_the_right_counts() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 8\nshuffle = true", CROP);
    let report = json(&["run", "plan.toml", "--epochs", "2", "--num-workers", "3", "--json"], folder.path());
    assert_eq!((&report["samples"], &report["batches"]), (&60.into(), &8.into()));
    assert_eq!(report["epochs"].as_array().unwrap().len(), 2);
    assert_eq!((&report["epochs"][1]["samples"], &report["epochs"][1]["epoch"]), (&30.into(), &1.into()));
    assert_eq!(report["snapshot"]["num_workers"], 3);
    assert_eq!(report["snapshot"]["ops"][1]["name"], "RandomResizedCrop");
    for name in ["seconds", "samples_per_second", "store_mb_per_second", "delivered_mb_per_second"] {
        assert!(report[name].as_f64().unwrap() > 0.0, "{name}");
    }
    let (first, seconds) = (report["first_batch_seconds"].as_f64().unwrap(), report["seconds"].as_f64().unwrap());
    assert!(0.0 < first && first < seconds);
    assert!((0.0..=1.0).contains(&report["stall_share"].as_f64().unwrap()));
}

#[test]
fn run_stops_after_the_batches_asked_for() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 4", CROP);
    let report = json(&["--json", "run", "plan.toml", "--batches", "2", "--epochs", "3"], folder.path());
    assert_eq!((&report["samples"], &report["batches"]), (&24.into(), &6.into()));
    let epochs: Vec<u64> = report["epochs"].as_array().unwrap().iter().map(|e| e["epoch"].as_u64().unwrap()).collect();
    assert_eq!(epochs, [0, 1, 2]);
}

#[test]
fn run_prints_a_table_for_people_and_nothing_on_stderr() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 4", CROP);
    let ran = succeed(&["run", "plan.toml"], folder.path());
    for part in ["samples           30 in 8 batches, 1 epoch", "stalled", "DecodeImage", "memory"] {
        assert!(ran.stdout.contains(part), "{part:?} is not in {}", ran.stdout);
    }
    assert_eq!(ran.stderr, "");
}

#[test]
fn run_names_substitutes() {
    let folder = pictures();
    fs::write(folder.path().join("pictures/class-1/broken.jpg"), b"not a picture").unwrap();
    write_plan(folder.path(), "plan.toml", "batch_size = 4\non_error = { max_fraction = 0.1 }", CROP);
    let ran = succeed(&["run", "plan.toml"], folder.path());
    assert!(ran.stdout.contains("substitutes       1, e.g. \"class-1/broken.jpg\" by "), "{}", ran.stdout);
    write_plan(folder.path(), "strict.toml", "batch_size = 4", CROP);
    fail(&["run", "strict.toml"], folder.path(), &["class-1/broken.jpg", "DecodeImage"]);
}

#[test]
fn a_wrong_plan_fails_with_one_line_that_names_the_problem() {
    let folder = pictures();
    let check = |settings: &str, ops: &str, parts: &[&str]| {
        write_plan(folder.path(), "plan.toml", settings, ops);
        fail(&["run", "plan.toml"], folder.path(), parts);
        fail(&["show", "plan.toml", "out.png", "--json"], folder.path(), parts);
    };
    check("batch_size = 4\nbatchsize = 3", CROP, &["plan.toml", "unknown field `batchsize`"]);
    check("batch_size = 4", "[[ops]]\nop = \"Crop\"\n", &["op \"Crop\" is unknown", "RandomResizedCrop"]);
    check("batch_size = 4", "[[ops]]\nop = \"Resize\"\nsize = 8\n", &["Resize", "encoded bytes", "DecodeImage"]);
    check("batch_size = 4\nshuffle = maybe", CROP, &["not valid TOML", "line 2"]);
    check("batch_size = 4", "[[ops]]\nop = \"DecodeImage\"\nspeed = 1\n", &["op DecodeImage", "unknown field `speed`"]);
    fail(&["run", "missing.toml"], folder.path(), &["cannot read plan \"missing.toml\"", "No such file"]);
    write_plan(folder.path(), "ragged.toml", "batch_size = 4", DECODE);
    fail(&["run", "ragged.toml"], folder.path(), &["\"image\" has shape"]);
    assert!(!folder.path().join("out.png").exists());
}

#[test]
fn an_interrupted_run_ends_soon_with_130() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    fs::write(&plan, "batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 1000000000\nshape = [64]\n").unwrap();
    let arguments: Vec<OsString> = vec!["feedline".into(), "run".into(), plan.into()];
    let asked_at = Cell::new(None);
    let questions = Cell::new(0);
    let code = feedline_cli::run(arguments, Registry::core(), &|| {
        questions.set(questions.get() + 1);
        let wants_to_stop = questions.get() > 50;
        if wants_to_stop {
            asked_at.set(asked_at.get().or(Some(Instant::now())));
        }
        wants_to_stop
    });
    assert_eq!(code, 130);
    assert!(asked_at.get().unwrap().elapsed() < Duration::from_secs(30));
}

#[test]
fn a_plan_with_a_python_function_is_sent_to_the_wheel() {
    let folder = pictures();
    let ops = format!("{DECODE}\n[[ops]]\nop = \"Map\"\nfn = \"module:function\"\n");
    write_plan(folder.path(), "plan.toml", "batch_size = 4", &ops);
    fail(&["run", "plan.toml"], folder.path(), &["Map", "pip install feedline"]);
}
