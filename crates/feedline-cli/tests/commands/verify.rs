//! `feedline verify`.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use feedline_data::batch::{FieldTypes, Sample, Value};
use feedline_data::memory::Workspace;
use feedline_data::op::{CheckError, On, Op, OpError, PlannedOp};
use feedline_data::plan::Registry;
use feedline_order::Draw;

use crate::support::{CROP, fail, json, pictures, succeed, write_plan};

#[test]
fn verify_says_of_each_law_that_it_holds() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 4\nshuffle = true", CROP);
    let report = json(&["verify", "plan.toml", "--json"], folder.path());
    assert_eq!((&report["passed"], &report["samples"]), (&true.into(), &30.into()));
    let laws = report["laws"].as_array().unwrap();
    let said: Vec<_> =
        laws.iter().map(|law| (law["law"].as_u64().unwrap(), law["verdict"].as_str().unwrap())).collect();
    let expected = [(1, "pass"), (2, "pass"), (3, "pass"), (2, "pass"), (4, "pass"), (6, "pass"), (8, "pass")];
    assert_eq!(said[..7], expected);
    assert_eq!((said[7], laws[7]["name"].as_str().unwrap()), ((1, "not applicable"), "offloaded = local"));
    assert!(laws[7]["detail"].as_str().unwrap().contains("feedline://"));
    assert!(laws.iter().all(|law| law["seconds"].as_f64().is_some() && law.get("counterexample").is_none()));
    // The indexes that the first configuration built were used.
    assert!(!laws[6]["detail"].as_str().unwrap().contains("(0 samples used one)"), "{}", laws[6]);
    let text = succeed(&["verify", "plan.toml", "--samples", "16", "--epochs", "1"], folder.path());
    assert!(text.stdout.starts_with("\"plan.toml\": the first 16 of 30 samples, 1 epoch"), "{}", text.stdout);
    assert_eq!((text.stdout.lines().last(), &*text.stderr), (Some("all laws hold"), ""));
}

#[test]
fn a_damaged_file_is_named_and_breaks_no_law() {
    let folder = pictures();
    fs::write(folder.path().join("pictures/class-1/broken.jpg"), b"not a picture").unwrap();
    write_plan(folder.path(), "plan.toml", "batch_size = 4\nshuffle = true", CROP);
    let text = succeed(&["verify", "plan.toml"], folder.path()).stdout;
    let finding = text.lines().find(|line| line.starts_with("finding: bad sample \"class-1/broken.jpg\" (")).unwrap();
    assert!(finding.contains("/pictures/class-1/broken.jpg\"): not a JPEG"), "{text}");
    assert!(text.ends_with("all laws hold\n"), "{text}");
}

#[test]
fn a_plan_that_cannot_run_is_an_error_and_no_verdict() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 4", "[[ops]]\nop = \"DecodeImage\"\n");
    fail(&["verify", "plan.toml"], folder.path(), &["plan.toml", "\"image\" has shape"]);
    write_plan(folder.path(), "plan.toml", "batch_size = 4000\ndrop_last = true", CROP);
    fail(&["verify", "plan.toml", "--json"], folder.path(), &["nothing to check"]);
    fail(&["verify", "missing.toml"], folder.path(), &["cannot read plan \"missing.toml\""]);
}

/// Adds the time to a sample.
#[derive(Debug)]
struct Clock(On);

impl Op for Clock {
    fn on(&self) -> &On {
        &self.0
    }

    fn check(&self, _: &mut FieldTypes) -> Result<(), CheckError> {
        Ok(())
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, _: &mut Workspace) -> Result<(), OpError> {
        let Value::Tensor(tensor) = sample.get("data")? else { panic!("synthetic samples are tensors") };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
        tensor.memory[..4].copy_from_slice(&now.to_le_bytes());
        Ok(())
    }
}

fn registry() -> Registry {
    let mut registry = Registry::core();
    registry.op_with("Clock", |_| {
        Ok(PlannedOp::new("Clock", std::sync::Arc::new(Clock(On::from(vec!["data".to_owned()]))), toml::Table::new()))
    });
    registry
}

#[test]
fn a_broken_law_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let text = "batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 20\nshape = [64]\n";
    let cache = folder.path().join("cache");
    let verify = || {
        let arguments: Vec<OsString> = vec!["feedline".into(), "verify".into(), plan.clone().into()];
        feedline_cli::run(arguments, registry().with_cache_folder(cache.clone()), &|| false)
    };
    fs::write(&plan, text).unwrap();
    assert_eq!(verify(), 0);
    fs::write(&plan, format!("{text}[[ops]]\nop = \"Clock\"\n")).unwrap();
    assert_eq!(verify(), 1);
}

#[test]
fn an_interrupted_verification_ends_at_once_with_130() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let text = "batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 1000000\nshape = [64]\n\
                [[ops]]\nop = \"Delay\"\ncosts_ms = [200.0]\n";
    fs::write(&plan, text).unwrap();
    let (asked_at, questions) = (Cell::new(None), Cell::new(0));
    let arguments: Vec<OsString> = vec!["feedline".into(), "verify".into(), plan.into()];
    let registry = Registry::core().with_cache_folder(folder.path().join("cache"));
    let code = feedline_cli::run(arguments, registry, &|| {
        questions.set(questions.get() + 1);
        let wants_to_stop = questions.get() > 10;
        if wants_to_stop {
            asked_at.set(asked_at.get().or(Some(Instant::now())));
        }
        wants_to_stop
    });
    assert_eq!(code, 130);
    assert!(asked_at.get().unwrap().elapsed() < Duration::from_secs(30));
}
