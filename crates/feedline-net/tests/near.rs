//! Samples that a storage server prepares, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_codec::{Subsampling, encode_jpeg};
use feedline_data::batch::Batch;
use feedline_data::plan::{Document, Plan, Registry};
use feedline_data::testing::{picture, write_pictures, write_volumes};
use feedline_diagnose::doctor::{Bound, Change, Diagnosis, DoctorError, ExaminationSettings, Job, Trainer};
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::testing::{collect, take};
use feedline_net::storage::{Link, LinkTerms, Server, ServerConfig};
use feedline_net::wire::{Failure, Reply, Request};
use served::caching_config as config;

mod served;

const POLICIES: [&str; 6] = ["auto", "none", "all", "resize", "fastflow", "sophon"];
/// Longer than anything here takes, unless it hangs.
const LIMIT: Duration = Duration::from_mins(1);

const PICTURES: &str = "[[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 24\n\
     [[ops]]\nop = \"RandomHorizontalFlip\"\n[[ops]]\nop = \"ToTensor\"\n";
const FAST_PICTURES: &str =
    "[[ops]]\nop = \"DecodeImage\"\nfast = true\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 24\n";
const VOLUMES: &str = "[[ops]]\nop = \"RandomBalancedCrop\"\nsize = [8, 8, 8]\non = [\"image\", \"label\"]\n\
     [[ops]]\nop = \"GaussianNoise\"\non = \"image\"\np = 0.5\n";

fn plan(source: &str, offload: &str, ops: &str) -> Arc<Plan> {
    let text = format!(
        "batch_size = 4\nshuffle = true\nseed = 3\n[source]\n{source}\n[run]\nnum_workers = 2\noffload = \"{offload}\"\n{ops}"
    );
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    Arc::new(Document::parse(&text).unwrap().open(&registry).unwrap())
}

fn folder(root: &str) -> String {
    format!("kind = \"folder\"\nroot = \"{root}\"")
}

fn loader(plan: Arc<Plan>) -> Loader {
    Loader::new(plan, &Machine::default())
}

/// The path of a source below a root, local or on the server.
type SourceRoot<'a> = &'a dyn Fn(&str) -> String;
type Seen = Vec<(u64, Vec<i64>, Vec<Vec<u8>>)>;

fn seen(batches: &[Batch]) -> Seen {
    let fields = |batch: &Batch| batch.fields.iter().map(|field| field.data.bytes().to_vec()).collect();
    batches.iter().map(|batch| (batch.epoch.0, batch.ids(), fields(batch))).collect()
}

fn epochs(loader: &Loader, count: usize) -> Seen {
    (0..count).flat_map(|_| seen(&collect(loader).unwrap())).collect()
}

/// Runs epochs until `request` accepts the forms of the samples. Returns these forms.
fn until(loader: &Loader, request: impl Fn(&BTreeMap<String, u64>) -> bool) -> BTreeMap<String, u64> {
    let start = Instant::now();
    loop {
        collect(loader).unwrap();
        let came = loader.snapshot().store.candidates;
        if request(&came) {
            return came;
        }
        assert!(start.elapsed() < LIMIT, "{came:?}; {:?}", loader.offload().map(|report| report.times_before));
    }
}

#[test]
fn law_1_every_policy_gives_the_batches_of_local_loading() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pictures(&data.path().join("train"), 18, 3).unwrap();
    write_volumes(&data.path().join("volumes"), 5, [12, 14, 16]).unwrap();
    // A slow link, so that policies that measure have something to decide.
    let server = Server::start(ServerConfig { link_mbps: Some(20.0), ..config(data.path(), cache.path()) }).unwrap();
    let (here, there) = (data.path().to_str().unwrap(), format!("feedline://{}", server.address()));
    let volumes = |root: &str| format!("kind = \"volumes\"\nroot = \"{root}/volumes\"");
    let subset = |root: &str| {
        format!("kind = \"subset\"\nindices = [1, 4, 5, 9, 12]\nof = {{ kind = \"folder\", root = \"{root}/train\" }}")
    };
    let pictures = |root: &str| folder(&format!("{root}/train"));
    let sources: [(SourceRoot<'_>, &str); 4] =
        [(&pictures, PICTURES), (&pictures, FAST_PICTURES), (&subset, PICTURES), (&volumes, VOLUMES)];
    for (source, ops) in sources {
        let expected = epochs(&loader(plan(&source(here), "auto", ops)), 4);
        for policy in POLICIES {
            let loader = loader(plan(&source(&there), policy, ops));
            assert!(epochs(&loader, 4) == expected, "{policy}: {ops}");
            let came = loader.snapshot().store.candidates;
            assert!(policy != "all" || !came.contains_key("raw"), "{came:?}");
            assert!(came.values().sum::<u64>() >= expected.iter().map(|(_, ids, _)| ids.len() as u64).sum());
        }
    }
}

fn jpeg(number: u64, width: u32, height: u32) -> Vec<u8> {
    encode_jpeg(&picture(number, width, height), width, height, 3, 85, Subsampling::S420).unwrap()
}

/// Pictures that are much larger than the crop.
fn write_large(folder: &Path, count: u64) {
    fs::create_dir_all(folder).unwrap();
    for number in 0..count {
        fs::write(folder.join(format!("{number:03}.jpg")), jpeg(number, 400, 300)).unwrap();
    }
}

#[test]
fn on_a_slow_link_pictures_are_trimmed_and_fewer_bytes_come() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_large(&data.path().join("train"), 48);
    let server = Server::start(ServerConfig { link_mbps: Some(8.0), ..config(data.path(), cache.path()) }).unwrap();
    let source = folder(&format!("feedline://{}/train", server.address()));
    let none = loader(plan(&source, "none", PICTURES));
    collect(&none).unwrap();
    let whole = none.snapshot().store.bytes_received_epoch;
    none.close();
    let auto = loader(plan(&source, "auto", PICTURES));
    until(&auto, |came| came.iter().any(|(name, count)| name != "raw" && *count >= 48));
    collect(&auto).unwrap();
    let fewer = auto.snapshot().store.bytes_received_epoch;
    assert!(fewer * 3 < whole * 2, "{fewer} bytes of {whole}: {:?}", auto.snapshot().store.candidates);
    let report = auto.offload().unwrap();
    assert!(report.benefit_share > 0.9 && report.sent_bytes < report.stored_bytes, "{report:?}");
    assert!(report.throughput.after > report.throughput.before);
}

#[test]
fn a_starved_trainer_with_a_wide_link_makes_fastflow_move_work() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_large(&data.path().join("train"), 48);
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    // One thread here, two on the server, and a consumer without a step.
    let source = folder(&format!("feedline://{}/train", server.address()));
    let heavy = format!("{PICTURES}[[ops]]\nop = \"Normalize\"\nmean = [0.5]\nstd = [0.5]\n");
    let text =
        plan(&source, "fastflow", &heavy).document().unwrap().to_toml().replace("num_workers = 2", "num_workers = 1");
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    let loader = loader(Arc::new(Document::parse(&text).unwrap().open(&registry).unwrap()));
    until(&loader, |came| came.iter().any(|(name, count)| name.starts_with("after") && *count >= 20));
}

#[test]
fn a_server_that_is_started_anew_in_mid_epoch_is_told_the_plan_again() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pictures(&data.path().join("train"), 60, 3).unwrap();
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let address = server.address();
    let expected = epochs(&loader(plan(&folder(data.path().join("train").to_str().unwrap()), "auto", PICTURES)), 2);
    let all = loader(plan(&folder(&format!("feedline://{address}/train")), "all", PICTURES));
    let mut found = seen(&take(&all, 3).unwrap());
    drop(server);
    let restarted = ServerConfig { listen: address, ..config(data.path(), cache.path()) };
    let _server = Server::start(restarted).unwrap();
    found.extend(seen(&collect(&all).unwrap()));
    // The batches taken before belong to the first epoch. After them comes the second.
    assert!(found[..3] == expected[..3] && found[3..] == expected[15..]);
}

#[test]
fn a_server_whose_files_are_others_prepares_nothing_and_samples_still_come() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pictures(&data.path().join("train"), 12, 2).unwrap();
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let expected = epochs(&loader(plan(&folder(data.path().join("train").to_str().unwrap()), "auto", PICTURES)), 1);
    let all = loader(plan(&folder(&format!("feedline://{}/train", server.address())), "all", PICTURES));
    fs::write(data.path().join("train/class-0/a-new-one.jpg"), jpeg(99, 50, 40)).unwrap();
    assert!(epochs(&all, 1) == expected);
    let came = all.snapshot().store.candidates;
    assert_eq!(came.keys().map(String::as_str).collect::<Vec<_>>(), ["raw"]);
}

#[test]
fn law_6_a_bad_picture_fails_by_its_name_as_it_does_locally() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pictures(&data.path().join("train"), 8, 1).unwrap();
    fs::write(data.path().join("train/class-0/00003.jpg"), b"no picture").unwrap();
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let failure = |root: &str, policy| {
        let error = collect(&loader(plan(&folder(root), policy, PICTURES))).unwrap_err();
        feedline_data::failure::chain(&error)
    };
    let local = failure(data.path().join("train").to_str().unwrap(), "auto");
    for policy in POLICIES {
        let remote = failure(&format!("feedline://{}/train", server.address()), policy);
        assert!(remote.contains("class-0/00003.jpg"), "{policy}: {remote}");
        let cause = |text: &str| text.rsplit(": ").next().map(str::to_owned);
        assert_eq!(cause(&remote), cause(&local), "{policy}");
    }
}

#[test]
fn plans_that_reach_too_far_are_refused_with_the_reason() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pictures(&data.path().join("train"), 2, 1).unwrap();
    let server = Server::start(config(data.path(), cache.path())).unwrap();
    let link = Link::new(LinkTerms::plain(&server.address().to_string(), None));
    let refused = |source: &str, ops: &str| {
        let text = format!("batch_size = 1\n[source]\n{source}\n{ops}");
        match link.call(&Request::Plan { text, listing: 0 }).unwrap().0 {
            Reply::Failed { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    };
    let below = |path: &str| folder(&format!("feedline://any:1/{path}"));
    let giant = "[[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"Resize\"\nsize = [20000, 20000]\n";
    assert!(refused(&below("train"), giant).contains("at most"));
    assert!(refused(&below("../other"), "").contains("outside"));
    assert!(refused(&folder("/etc"), "").contains("unknown"));
    assert!(refused("kind = \"files\"\nfields = { image = [\"/etc/passwd\"] }", "").contains("unknown"));
    assert!(refused(&below("train"), "[[ops]]\nop = \"Map\"\nfn = \"os:system\"\n").contains("unknown"));
    assert!(refused(&below("train"), "[[ops]]\nop = \"Delay\"\ncosts_ms = [1e6]\n").contains("not for other machines"));
    assert!(refused("kind = 3", "").contains("kind"));
    let peer_request = feedline_data::store::PeerRequest::Trials { request: request(0) };
    match link.call(&Request::Prepare { plan: 7, peer_request }).unwrap().0 {
        Reply::Failed { failure, .. } => assert_eq!(failure, Failure::UnknownPlan),
        other => panic!("{other:?}"),
    }
}

fn request(id: u64) -> feedline_order::SampleRequest {
    use feedline_order::{Epoch, Occurrence, SampleId};
    feedline_order::SampleRequest { id: SampleId(id), epoch: Epoch(0), occurrence: Occurrence(0) }
}

/// A trainer with a slow step.
struct Steps(Option<Batch>);

impl Trainer for Steps {
    fn receive(&mut self, batch: Batch) -> Result<(), DoctorError> {
        self.0 = Some(batch);
        Ok(())
    }

    fn step(&mut self) -> Result<(), DoctorError> {
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }
}

#[test]
fn the_doctor_proposes_to_offload_on_a_slow_link_and_that_gives_about_what_it_says() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_large(&data.path().join("train"), 48);
    let server = Server::start(ServerConfig { link_mbps: Some(8.0), ..config(data.path(), cache.path()) }).unwrap();
    let plan = plan(&folder(&format!("feedline://{}/train", server.address())), "none", PICTURES);
    let (machine, settings) = (Machine::default(), ExaminationSettings { seconds: 2.0, has_tables: false });
    let mut trainer = Steps(None);
    let found = Diagnosis::examine(&plan, &machine, settings, &mut trainer, &mut |_| {}).unwrap();
    assert_eq!(found.bound, Bound::Network, "{:?}", found.times);
    let remedy = found.remedies.iter().find(|remedy| remedy.change == Change::Offload);
    let predicted = remedy.unwrap().predicted_samples_per_second;
    assert!(predicted > 1.5 * found.measured_samples_per_second, "{:?}", found.remedies);
    let job = Job { plan: &plan, machine: &machine, seconds: 8.0 };
    let tried = found.try_remedy("offload", job, &mut trainer, &mut |_| {}).unwrap();
    let measured = tried.measured_samples_per_second;
    assert!((0.3..3.0).contains(&(predicted / measured)), "predicted {predicted}, measured {measured}");
}
