//! What is known of samples before their data is touched, and what that says about their cost.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use feedline_data::op::WorkHint;
use feedline_data::plan::Plan;
use feedline_data::testing::{open, write_volumes};
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::supply::{LocalSupply, Supply};
use feedline_engine::testing::collect;
use feedline_order::{Epoch, Occurrence, Ordinal, SampleRequest};

const VOLUMES: usize = 6;

fn plan(root: &Path, before: &str, oversampling: f64) -> Arc<Plan> {
    let source = format!("batch_size = 2\n[source]\nkind = \"volumes\"\nroot = {root:?}\n");
    let crop = format!("[[ops]]\nop = \"RandomBalancedCrop\"\nsize = [4, 4, 4]\noversampling = {oversampling:?}\n");
    open(&format!("{source}{before}{crop}")).unwrap()
}

fn request(plan: &Plan, epoch: u64) -> Vec<SampleRequest> {
    let of = |ordinal| SampleRequest {
        id: plan.source().id_at(Ordinal(ordinal)),
        epoch: Epoch(epoch),
        occurrence: Occurrence(0),
    };
    (0..plan.source().len()).map(of).collect()
}

/// How many samples of the first epochs have to be searched, while they are loaded and by the last op.
fn searches(plan: &Arc<Plan>, machine: &Machine, epochs: u64) -> (usize, usize) {
    let supply = LocalSupply::new(Arc::clone(plan), machine);
    let all: Vec<SampleRequest> = (0..epochs).flat_map(|epoch| request(plan, epoch)).collect();
    let loading = all.iter().filter(|request| supply.work_hint(**request) == WorkHint::Search).count();
    let last = plan.ops().len() - 1;
    let cropping = all.iter().filter(|request| plan.chain().work_hint(last, **request) == WorkHint::Search).count();
    (loading, cropping)
}

#[test]
fn labels_are_expected_to_be_searched_where_the_draw_asks_for_it_and_only_until_their_foreground_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("volumes");
    write_volumes(&root, VOLUMES, [8, 9, 10]).unwrap();
    let machine = Machine { cache_folder: Some(folder.path().join("cache").into()), ..Machine::default() };
    let all = 20 * VOLUMES;
    assert_eq!(searches(&plan(&root, "", 0.0), &machine, 20), (0, 0));
    let (some, none) = searches(&plan(&root, "", 0.4), &machine, 20);
    assert!((all / 4..all / 2).contains(&some) && none == 0, "{some} of {all} while they are loaded, {none} later");
    assert_eq!(searches(&plan(&root, "", 1.0), &machine, 20), (all, 0));
    let loader = Loader::new(plan(&root, "", 1.0), &machine);
    assert_eq!(collect(&loader).unwrap().len(), VOLUMES / 2);
    assert_eq!(searches(&plan(&root, "", 0.4), &machine, 20), (0, 0), "foregrounds are kept now");
    let resampled = "[[ops]]\nop = \"ResampleSpacing\"\nspacing = [1.0, 1.0, 1.0]\n";
    assert_eq!(
        searches(&plan(&root, resampled, 1.0), &machine, 20),
        (0, all),
        "a label that was changed is searched anew"
    );
}

#[test]
fn headers_say_how_many_elements_samples_have() {
    let folder = tempfile::tempdir().unwrap();
    write_volumes(folder.path(), VOLUMES, [8, 9, 10]).unwrap();
    fs::write(folder.path().join("3").join("label.nii"), b"cut short").unwrap();
    let plan = plan(folder.path(), "", 0.4);
    assert_eq!(plan.known_elements(), None);
    plan.find_sizes(&feedline_data::memory::Cancel::default());
    let expected: Vec<u64> = (0..VOLUMES as u64).map(|n| (8 + n) * 90 * if n == 3 { 1 } else { 2 }).collect();
    assert_eq!(plan.known_elements(), Some(&expected[..]));
    assert_eq!(plan.known_sizes().map(<[u64]>::len), Some(VOLUMES));
}
