//! The checks of `verify`: correct plans pass, and each check fails if its law is broken. Faulty ops and sources break the laws.
#![allow(
    clippy::unwrap_used,
    clippy::unnecessary_debug_formatting,
    reason = "a test may panic; TOML quotes as Debug does"
)]

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use feedline_codec::Simd;
use feedline_data::batch::{FieldTypes, Sample, Value};
use feedline_data::memory::Workspace;
use feedline_data::op::{Ahead, CheckError, On, Op, OpError, PlannedOp};
use feedline_data::plan::{Order, Plan, RunConfig, Settings, Shuffle};
use feedline_data::source::{Origin, Source, SourceError, SyntheticSource};
use feedline_data::testing::{open, write_pictures};
use feedline_diagnose::verify::{Counterexample, Extent, Verdict, Verification, VerifyError, Watch, verify};
use feedline_engine::machine::Machine;
use feedline_memory::Mutex;
use feedline_order::{Draw, Ordinal, Rank, SampleId};

const OPS: &str = "[[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 16\n\
     [[ops]]\nop = \"RandomHorizontalFlip\"\n[[ops]]\nop = \"Normalize\"\n";

struct Quiet;

impl Watch for Quiet {}

fn look(plan: &Arc<Plan>, extent: Extent, machine: &Machine) -> Verification {
    verify(plan, extent, machine, &Quiet).unwrap()
}

fn extent(epochs: u64, samples: u64) -> Extent {
    Extent { epochs, samples, ids: 1_000_000 }
}

/// The verdict of each check.
fn verdicts(found: &Verification) -> Vec<(u8, &'static str, Verdict)> {
    found.laws.iter().map(|law| (law.law, law.name, law.verdict)).collect()
}

#[track_caller]
fn check_passes(found: &Verification) {
    for law in &found.laws {
        assert_ne!(law.verdict, Verdict::Fail, "{law:#?}");
    }
    assert!(found.passed);
}

/// The counterexample of a check that must fail.
#[track_caller]
fn broken<'a>(found: &'a Verification, name: &str) -> &'a Counterexample {
    let law = found.laws.iter().find(|law| law.name == name).unwrap();
    assert_eq!(law.verdict, Verdict::Fail, "{found:#?}");
    assert!(!found.passed);
    law.counterexample.as_ref().unwrap()
}

#[track_caller]
fn check_holds(found: &Verification, names: &[&str]) {
    for law in found.laws.iter().filter(|law| names.contains(&law.name)) {
        assert_eq!(law.verdict, Verdict::Pass, "{law:#?}");
    }
}

fn pictures_plan(folder: &Path, settings: &str, run: &str) -> Arc<Plan> {
    let text = format!("seed = 7\n{settings}\n[source]\nkind = \"folder\"\nroot = {folder:?}\n[run]\n{run}\n{OPS}");
    open(&text).unwrap()
}

fn pictures(count: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(folder.path(), count, 3).unwrap();
    folder
}

#[test]
fn sound_plans_of_all_kinds_pass() {
    let (folder, cache) = (pictures(29), tempfile::tempdir().unwrap());
    let machine = Machine { cache_folder: Some(cache.path().to_owned().into()), ..Machine::default() };
    for (settings, run) in [
        ("batch_size = 4\nshuffle = true", ""),
        ("batch_size = 4\nshuffle = true\ndrop_last = true", "cache = { ram = \"10MB\" }"),
        ("batch_size = 3\norder = \"planned\"\nmax_displacement = 6", ""),
        ("batch_size = 3\norder = \"arrival\"\nmax_displacement = 6\nshuffle = true", ""),
        ("batch_size = 4\nsampler = { kind = \"list\", indices = [3, 1, 3, 3, 0, 7, 9, 12, 1, 28, 20, 4, 5] }", ""),
        ("batch_size = 4\nsampler = { kind = \"class_balanced\" }\norder = \"arrival\"", ""),
        ("batch_size = 4\nfields = [\"label\", \"image\", \"key\"]", "simd = false\nseek_index = \"never\""),
    ] {
        let plan = pictures_plan(folder.path(), settings, run);
        check_passes(&look(&plan, extent(2, 1000), &machine));
        check_passes(&look(&plan, extent(1, 16), &machine));
    }
    let ranks = pictures_plan(folder.path(), "batch_size = 4\nshuffle = true", "");
    let one_of_four = Arc::new(ranks.for_rank(Rank { rank: 1, world: 4 }).unwrap());
    check_passes(&look(&one_of_four, extent(2, 1000), &machine));
}

#[test]
fn what_was_looked_at_is_said() {
    let folder = pictures(40);
    let plan = pictures_plan(folder.path(), "batch_size = 4\nshuffle = true", "");
    let found = look(&plan, extent(1, 18), &Machine::default());
    assert_eq!((found.samples, found.samples_of_epoch, found.epochs), (20, 40, 1));
    let all = [
        (1, "same stream"),
        (2, "exactly once"),
        (3, "strict order"),
        (2, "displacement bound"),
        (4, "exact resume"),
        (6, "bad samples"),
        (8, "fused = unfused"),
    ];
    let mut expected: Vec<_> = all.iter().map(|&(law, name)| (law, name, Verdict::Pass)).collect();
    expected.push((1, "offloaded = local", Verdict::NotApplicable));
    assert_eq!(verdicts(&found), expected);
    assert!(found.laws[1].detail.contains("all 40 samples"), "{}", found.laws[1].detail);
    assert!(found.laws[6].detail.contains("20 samples as op by op"), "{}", found.laws[6].detail);
}

#[test]
fn a_reservoir_over_shards_passes() {
    let shards = tempfile::tempdir().unwrap();
    let mut builder = tar::Builder::new(std::fs::File::create(shards.path().join("0.tar")).unwrap());
    let folder = pictures(30);
    builder.append_dir_all("", folder.path()).unwrap();
    builder.finish().unwrap();
    let text = format!(
        "batch_size = 4\nshuffle = {{ kind = \"reservoir\", size = 0.3, readers = 2 }}\n\
         [source]\nkind = \"tar\"\nshards = {:?}\n{OPS}",
        shards.path()
    );
    let plan = open(&text).unwrap();
    check_passes(&look(&plan, extent(2, 1000), &Machine::default()));
    check_passes(&look(&plan, extent(2, 16), &Machine::default()));
}

#[test]
fn a_damaged_file_is_a_finding_and_no_broken_law() {
    let folder = pictures(29);
    let bad = folder.path().join("class-1/00004.jpg");
    std::fs::write(&bad, b"not a picture").unwrap();
    for settings in ["on_error = \"raise\"", "on_error = { max_fraction = 0.1 }", "order = \"arrival\""] {
        let plan = pictures_plan(folder.path(), &format!("batch_size = 4\nshuffle = true\n{settings}"), "");
        let found = look(&plan, extent(2, 1000), &Machine::default());
        check_passes(&found);
        let [finding] = &found.findings[..] else { panic!("{:?}", found.findings) };
        assert_eq!((&*finding.sample, finding.path.as_deref()), ("class-1/00004.jpg", bad.to_str()));
        assert!(
            found.laws[5].detail.contains("1 sample of the data is bad, replaced and named"),
            "{}",
            found.laws[5].detail
        );
    }
}

#[test]
fn whoever_watches_may_stop_it_and_an_empty_epoch_is_no_pass() {
    struct Stop;
    impl Watch for Stop {
        fn begins(&self, _: &'static str, _: usize, _: usize) {}

        fn delivered(&self, _: &str, _: u64) {}

        fn wants_to_stop(&self) -> bool {
            true
        }
    }
    let plan = synthetic(Vec::new(), |_| {});
    assert!(matches!(verify(&plan, extent(1, 10), &Machine::default(), &Stop), Err(VerifyError::Stopped)));
    let empty = synthetic(Vec::new(), |settings| (settings.batch_size, settings.drop_last) = (1000, true));
    assert!(matches!(verify(&empty, extent(1, 10), &Machine::default(), &Quiet), Err(VerifyError::Nothing)));
}

const SAMPLES: u64 = 40;

fn synthetic(ops: Vec<PlannedOp>, change: impl Fn(&mut Settings)) -> Arc<Plan> {
    plan_over(Arc::new(SyntheticSource::new(SAMPLES, vec![64]).unwrap()), ops, change)
}

fn plan_over(source: Arc<dyn Source>, ops: Vec<PlannedOp>, change: impl Fn(&mut Settings)) -> Arc<Plan> {
    let mut settings = Settings { shuffle: Shuffle::Full, ..Settings::of_batches(4) };
    change(&mut settings);
    Arc::new(Plan::new(source, ops, settings, RunConfig::default()).unwrap())
}

/// Changes the last byte of a sample. May panic to make the sample fail.
type Change = dyn Fn(u8, &Draw, &Workspace) -> u8 + Send + Sync;

/// An op with a fault.
struct FaultyOp {
    on: On,
    apply: Box<Change>,
    ahead: Option<Box<Change>>,
}

impl std::fmt::Debug for FaultyOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultyOp")
    }
}

impl Op for FaultyOp {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, _: &mut FieldTypes) -> Result<(), CheckError> {
        Ok(())
    }

    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        change(sample, draw, workspace, &self.apply)
    }

    fn apply_ahead(
        &self,
        sample: &mut Sample<'_>,
        draw: &Draw,
        _: &Ahead<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), OpError> {
        match &self.ahead {
            Some(ahead) => change(sample, draw, workspace, ahead),
            None => self.apply(sample, draw, workspace),
        }
    }
}

fn change(sample: &mut Sample<'_>, draw: &Draw, workspace: &Workspace, change: &Change) -> Result<(), OpError> {
    let Value::Tensor(tensor) = sample.get("data")? else { panic!("synthetic samples are tensors") };
    let last = tensor.memory.last_mut().unwrap();
    *last = change(*last, draw, workspace);
    Ok(())
}

fn op(name: &str, apply: impl Fn(u8, &Draw, &Workspace) -> u8 + Send + Sync + 'static) -> PlannedOp {
    let on = On::from(vec!["data".to_owned()]);
    PlannedOp::new(name, Arc::new(FaultyOp { on, apply: Box::new(apply), ahead: None }), toml::Table::new())
}

fn harmless() -> PlannedOp {
    op("Harmless", |byte, draw, _| byte.wrapping_add(draw.bits(0) as u8))
}

#[test]
fn law_1_an_op_that_gives_other_bytes_each_time_is_named_and_nothing_else_is_blamed() {
    let count = AtomicU64::new(0);
    let noise = op("Noise", move |byte, _, _| byte.wrapping_add(count.fetch_add(1, Ordering::Relaxed) as u8));
    let found = look(&synthetic(vec![harmless(), noise, harmless()], |_| {}), extent(2, 1000), &Machine::default());
    let counterexample = broken(&found, "same stream");
    let culprit = counterexample.culprit.as_ref().unwrap();
    assert!(culprit.starts_with("Noise, op 2 of 3"), "{culprit}");
    assert_eq!((counterexample.law, counterexample.field.as_deref()), (1, Some("data")));
    assert_eq!((counterexample.epoch, counterexample.byte), (Some(0), Some(63)));
    assert_ne!(counterexample.expected, counterexample.found);
    assert_eq!(counterexample.configurations, ["1 worker", "2 workers"]);
    assert!(counterexample.sample.as_ref().unwrap().starts_with("synthetic-"));
    check_holds(&found, &["exactly once", "strict order", "displacement bound", "exact resume", "bad samples"]);
    let fused = found.laws.iter().find(|law| law.name == "fused = unfused").unwrap();
    assert_eq!(fused.verdict, Verdict::NotApplicable);
    assert!(fused.detail.contains("Noise"), "{}", fused.detail);
}

#[test]
fn law_1_an_op_that_depends_on_the_thread_is_named() {
    let by_thread = op("ByThread", |byte, _, _| {
        let text = format!("{:?}", thread::current().id());
        byte.wrapping_add(text.bytes().fold(0, u8::wrapping_add))
    });
    let found = look(&synthetic(vec![by_thread], |_| {}), extent(1, 1000), &Machine::default());
    let culprit = broken(&found, "same stream").culprit.as_ref().unwrap();
    assert!(culprit.starts_with("ByThread, op 1 of 1"), "{culprit}");
}

#[test]
fn law_1_an_op_that_fails_at_times_is_named_and_nothing_else_is_blamed() {
    let count = AtomicU64::new(0);
    let sometimes = op("Sometimes", move |byte, draw, _| {
        let number = draw.bits(0) ^ count.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        assert!(number.count_ones().is_multiple_of(2), "not today");
        byte
    });
    let found = look(&synthetic(vec![sometimes], |_| {}), extent(2, 1000), &Machine::default());
    let culprit = broken(&found, "same stream").culprit.as_ref().unwrap();
    assert!(culprit.starts_with("Sometimes, op 1 of 1"), "{culprit}");
    assert_eq!(found.laws.iter().filter(|law| law.verdict == Verdict::Fail).count(), 1, "{found:#?}");
}

/// A source with a fault.
#[derive(Debug)]
struct FaultySource {
    inner: SyntheticSource,
    fault: Fault,
    read: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Bytes change from one read to the next.
    Bytes,
    /// One sample comes at two places.
    Double,
    /// The engine's threads see another numbering than the verification.
    Numbering { shift: u64 },
    /// The engine's threads see other names.
    Names,
}

fn faulty(fault: Fault) -> Arc<dyn Source> {
    let inner = SyntheticSource::new(SAMPLES, vec![64]).unwrap();
    Arc::new(FaultySource { inner, fault, read: AtomicU64::new(0) })
}

/// Whether the caller is a preparer thread of the engine.
fn is_engine() -> bool {
    thread::current().name().is_some_and(|name| name.starts_with("feedline-") && name != "feedline-verify")
}

impl Source for FaultySource {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn id_at(&self, Ordinal(ordinal): Ordinal) -> SampleId {
        match self.fault {
            Fault::Double if ordinal == 7 => SampleId(6),
            Fault::Numbering { shift } if is_engine() => SampleId((ordinal + shift) % self.len()),
            _ => SampleId(ordinal),
        }
    }

    fn fields(&self) -> FieldTypes {
        self.inner.fields()
    }

    fn origin(&self, id: SampleId, field: &str) -> Origin<'_> {
        self.inner.origin(id, field)
    }

    fn make(&self, id: SampleId, field: &str, target: &mut [u8]) {
        self.inner.make(id, field, target);
        if self.fault == Fault::Bytes {
            target[5] = target[5].wrapping_add(self.read.fetch_add(1, Ordering::Relaxed) as u8);
        }
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        if self.fault == Fault::Names && is_engine() { "another".into() } else { self.inner.key(id) }
    }

    fn class_of(&self, id: SampleId) -> Option<i64> {
        self.inner.class_of(id)
    }

    fn identity(&self) -> u128 {
        self.inner.identity()
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        self.inner.spec()
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        self.inner.refreshed()
    }
}

#[test]
fn law_1_a_source_that_gives_other_bytes_each_time_is_named() {
    let found = look(&plan_over(faulty(Fault::Bytes), vec![harmless()], |_| {}), extent(1, 1000), &Machine::default());
    let counterexample = broken(&found, "same stream");
    assert!(counterexample.culprit.as_ref().unwrap().starts_with("the source"), "{counterexample}");
    assert_eq!(counterexample.byte, Some(5));
}

#[test]
fn law_2_a_sample_that_comes_twice_is_found_out_over_all_ranks() {
    let plan = plan_over(faulty(Fault::Double), vec![], |settings| settings.shuffle = Shuffle::Never);
    let found = look(&plan, extent(1, 16), &Machine::default());
    let counterexample = broken(&found, "exactly once");
    assert_eq!(counterexample.sample.as_deref(), Some("synthetic-00000006"));
    assert_eq!((counterexample.position, counterexample.found.as_deref()), (Some(7), Some("2 times")));
    // Beyond the prepared samples, the numbers of the whole epoch are counted.
    let late = Extent { epochs: 1, samples: 1, ids: 1_000_000 };
    let plan = plan_over(faulty(Fault::Double), vec![], |settings| {
        (settings.shuffle, settings.batch_size) = (Shuffle::Never, 1);
    });
    assert!(broken(&look(&plan, late, &Machine::default()), "exactly once").problem.contains("rank 0 of 1"));
}

#[test]
fn law_3_another_order_than_that_of_the_plan_is_found_out() {
    let plan = plan_over(faulty(Fault::Numbering { shift: 1 }), vec![], |settings| settings.shuffle = Shuffle::Never);
    let found = look(&plan, extent(1, 1000), &Machine::default());
    let counterexample = broken(&found, "strict order");
    assert_eq!((counterexample.position, counterexample.sample.as_deref()), (Some(0), Some("synthetic-00000000")));
    assert_eq!(counterexample.found.as_deref(), Some("sample \"synthetic-00000001\""));
    check_holds(&found, &["same stream", "exactly once"]);
}

#[test]
fn law_2_a_sample_beyond_its_displacement_bound_is_found_out() {
    for order in [Order::Strict, Order::Planned, Order::Arrival] {
        let plan = plan_over(faulty(Fault::Numbering { shift: SAMPLES / 2 }), vec![], |settings| {
            (settings.order, settings.shuffle) = (order, Shuffle::Never);
            settings.max_displacement = (order != Order::Strict).then_some(3);
        });
        let found = look(&plan, extent(1, 1000), &Machine::default());
        let counterexample = broken(&found, "displacement bound");
        assert!(counterexample.problem.contains("beyond its displacement bound"), "{counterexample}");
    }
}

#[test]
fn law_4_bytes_that_differ_after_a_resume_are_found_out() {
    // The op is correct in all configurations before, which prepare each sample seven times, and faulty in those after.
    let made: Mutex<HashMap<u64, u32>> = Mutex::default();
    let wears_out = op("WearsOut", move |byte, draw, _| {
        let mut made = made.lock();
        let times = made.entry(draw.bits(0)).or_default();
        *times += 1;
        if *times > 7 { byte.wrapping_add(*times as u8) } else { byte }
    });
    let found = look(&synthetic(vec![wears_out], |_| {}), extent(1, 1000), &Machine::default());
    let counterexample = broken(&found, "exact resume");
    assert_eq!((counterexample.law, counterexample.field.as_deref()), (4, Some("data")));
    assert_eq!((counterexample.epoch, counterexample.byte), (Some(0), Some(63)));
    assert!(counterexample.configurations[1].starts_with("resumed after 1 batches"), "{counterexample}");
    check_holds(&found, &["same stream", "exactly once", "strict order", "displacement bound"]);
}

#[test]
fn law_6_a_failure_that_names_another_sample_is_found_out() {
    let found = look(&plan_over(faulty(Fault::Names), vec![], |_| {}), extent(1, 1000), &Machine::default());
    let counterexample = broken(&found, "bad samples");
    assert!(counterexample.found.as_ref().unwrap().contains("\"another\""), "{counterexample}");
    check_holds(&found, &["same stream", "exactly once", "strict order", "exact resume"]);
}

#[test]
fn law_8_an_op_whose_shorter_way_gives_other_bytes_is_found_out() {
    let fused = FaultyOp {
        on: On::from(vec!["data".to_owned()]),
        apply: Box::new(|byte, _, _| byte.wrapping_add(1)),
        ahead: Some(Box::new(|byte, _, _| byte.wrapping_add(2))),
    };
    let fused = PlannedOp::new("Fused", Arc::new(fused), toml::Table::new());
    let found = look(&synthetic(vec![fused], |_| {}), extent(1, 1000), &Machine::default());
    let counterexample = broken(&found, "fused = unfused");
    assert_eq!((counterexample.byte, counterexample.field.as_deref()), (Some(63), Some("data")));
    assert_eq!(counterexample.configurations, ["op by op on whole fields", "fused, SIMD"]);
    check_holds(&found, &["same stream", "exactly once", "strict order", "displacement bound", "exact resume"]);
}

#[test]
fn law_8_kernels_that_give_other_bytes_than_plain_code_are_found_out() {
    if Simd::detect() == Simd::none() {
        return;
    }
    let by_kernel = op("ByKernel", |byte, _, workspace| byte.wrapping_add(u8::from(workspace.simd == Simd::none())));
    let found = look(&synthetic(vec![by_kernel], |_| {}), extent(1, 1000), &Machine::default());
    let counterexample = broken(&found, "fused = unfused");
    assert_eq!(counterexample.configurations, ["no seek index, no SIMD", "fused, SIMD"]);
    assert_eq!((counterexample.byte, counterexample.epoch), (Some(63), Some(0)));
    check_holds(&found, &["same stream", "exact resume"]);
}
