//! `feedline cost`.

use crate::support::{fail, json, pictures, succeed, write_plan};

/// Every fifth sample is slow. A second delay affects 30 % of the samples, drawn anew in each epoch. A slow sample takes far longer
/// than a thread of a busy machine waits for a core.
const DELAYS: &str = "[[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 8\n\
    [[ops]]\nop = \"Delay\"\ncosts_ms = [1.0, 1.0, 400.0, 1.0, 1.0]\n[[ops]]\nop = \"Delay\"\ncosts_ms = [20.0]\np = 0.3\n";

/// The id of a picture: `pictures` writes 30 into three classes in turn, and the source lists them class by class.
fn id(key: &str) -> u64 {
    let number: u64 = key.split_once('/').unwrap().1.trim_end_matches(".jpg").parse().unwrap();
    number % 3 * 10 + number / 3
}

#[test]
fn cost_names_the_slow_samples_and_predicts_them() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 5\nshuffle = true", DELAYS);
    let report = json(&["cost", "plan.toml", "--slowest", "6", "--json"], folder.path());
    assert_eq!(report["samples"], 30);
    let slowest = report["slowest"].as_array().unwrap();
    assert_eq!(slowest.len(), 6);
    for slow in slowest {
        assert_eq!(id(slow["key"].as_str().unwrap()) % 5, 2, "{slow}");
        // Costs are stored with a resolution of 0.07 %, rounded down.
        assert!(slow["ms"].as_f64().unwrap() > 399.0, "{slow}");
        assert!(slow["predicted_ms"].as_f64().unwrap() > 270.0, "{slow}");
    }
    let counted: u64 = report["histogram"].as_array().unwrap().iter().map(|bar| bar["samples"].as_u64().unwrap()).sum();
    assert_eq!(counted, 30);
    for part in ["explained_by_size", "explained_by_draws"] {
        assert!((0.0..=1.0).contains(&report[part].as_f64().unwrap()), "{part}");
    }
}

#[test]
fn cost_of_one_sample_shows_each_op_under_each_seed() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 5", DELAYS);
    let key = json(&["cost", "plan.toml", "--slowest", "1", "--json"], folder.path())["slowest"][0]["key"].clone();
    let key = key.as_str().unwrap();
    let report = json(&["cost", "plan.toml", "--sample", key, "--seeds", "0,1,2,3,4,5,6,7", "--json"], folder.path());
    let seeds = report["seeds"].as_array().unwrap();
    let optional = |seed: &serde_json::Value| seed["ops"][4]["ms"].as_f64().unwrap();
    assert_eq!(seeds.len(), 8);
    assert!(seeds.iter().all(|seed| seed["ops"][3]["ms"].as_f64().unwrap() >= 400.0), "{report}");
    assert!(seeds.iter().any(|seed| optional(seed) >= 20.0) && seeds.iter().any(|seed| optional(seed) < 20.0));
    let table = succeed(&["cost", "plan.toml", "--sample", key], folder.path()).stdout;
    assert!(table.contains("seed 0") && table.contains("RandomResizedCrop"), "{table}");
    fail(&["cost", "plan.toml", "--sample", "nothing"], folder.path(), &["no sample \"nothing\""]);
}
