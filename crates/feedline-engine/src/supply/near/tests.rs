//! Compares samples in every form with samples that are prepared locally from the first byte.

use std::path::Path;

use feedline_codec::{JpegCoding, Subsampling, encode_jpeg_as};
use feedline_data::memory::Cancel;
use feedline_data::plan::Registry;
use feedline_data::source::{Opener, listing_hash};
use feedline_data::store::Traffic;
use feedline_data::testing::{open, picture, write_pictures, write_volumes};
use feedline_order::{Epoch, Occurrence, SampleId};

use super::*;
use crate::loader::Loader;
use crate::testing::collect;

/// A server in this process.
#[derive(Debug)]
struct InProcess {
    preparer: NearPreparer,
    workspace: Mutex<NearWorkspace>,
    /// Samples that this server fails to prepare.
    fails: fn(SampleRequest) -> bool,
}

impl Peer for InProcess {
    fn ask(&self, _: &Arc<Prefix>, peer_request: PeerRequest, done: Box<dyn FnOnce(Prepared) + Send>) -> Fetch {
        let (PeerRequest::Sample { request, .. } | PeerRequest::Trials { request }) = peer_request;
        let refused = |problem: String| StoreError::Content { path: "peer".to_owned(), problem };
        let prepared = if (self.fails)(request) {
            Err(refused("is not prepared".to_owned()))
        } else {
            let mut workspace = self.workspace.lock();
            self.preparer.prepare(&peer_request, &mut workspace).map_err(|error| refused(error.to_string()))
        };
        done(Prepared { sample: prepared, traffic: Traffic::default() });
        Fetch::new(|| ())
    }

    fn bytes_per_second(&self) -> Option<f64> {
        None
    }
}

fn machine(cache: &Path) -> Machine {
    Machine { cache_folder: Some(cache.to_owned().into()), ..Machine::default() }
}

fn near(plan: &Arc<Plan>, cache: &Path, form: Form, fails: fn(SampleRequest) -> bool) -> ReadAhead {
    let prefix = plan.prefix().unwrap();
    let registry = Registry::core();
    let opened = Plan::open_prefix(&prefix.text, &registry, |table| Ok(registry.open_source(table)?)).unwrap();
    assert_eq!(listing_hash(&**opened.source()), prefix.listing);
    let preparer = NearPreparer::new(Arc::new(opened), &machine(cache));
    let peer = InProcess { preparer, workspace: Mutex::new(NearWorkspace::new(Cancel::default())), fails };
    let local = LocalSupply::new(Arc::clone(plan), &Machine::default());
    let near = Near::new(plan, local, Arc::new(peer), prefix);
    near.advisor.decide_on(form);
    let traffic = Arc::clone(&near.traffic);
    ReadAhead::as_needed(plan, Arc::new(near), traffic, &Machine::default())
}

type Epochs = Vec<(Vec<i64>, Vec<Vec<u8>>)>;

fn epochs(loader: &Loader, count: usize) -> Epochs {
    let batches = (0..count).flat_map(|_| collect(loader).unwrap());
    let content = |batch: feedline_data::batch::Batch| {
        let fields = batch.fields.iter().map(|field| field.data.bytes().to_vec()).collect();
        (batch.ids(), fields)
    };
    batches.map(content).collect()
}

/// Compares all forms of a plan with local loading over three epochs. Returns the forms.
fn check_forms(plan: &str) -> Vec<Form> {
    let cache = tempfile::tempdir().unwrap();
    let plan = open(plan).unwrap();
    let expected = epochs(&Loader::new(Arc::clone(&plan), &Machine::default()), 3);
    let forms = plan.prefix().unwrap().forms;
    for &form in &forms {
        let supply = Arc::new(near(&plan, cache.path(), form, |_| false));
        let loader = Loader::with_supply(Arc::clone(&plan), supply, &Machine::default());
        assert!(epochs(&loader, 3) == expected, "{form:?} of {plan:?}");
        let came = loader.snapshot().store.candidates;
        assert!(came.contains_key(&plan.form_name(form)), "{form:?}: {came:?}");
    }
    forms
}

fn plan(source: &str, ops: &str) -> String {
    format!("batch_size = 4\nshuffle = true\nseed = 7\n[source]\n{source}\n[run]\nnum_workers = 2\n{ops}")
}

fn ops(tables: &[&str]) -> String {
    let tables: Vec<String> = tables.iter().map(|table| table.replace("; ", "\n")).collect();
    format!("[[ops]]\nop = {}\n", tables.join("\n[[ops]]\nop = "))
}

const TENSOR: &str = "\"ToTensor\"";

#[test]
fn law_1_pictures_are_the_same_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(folder.path(), 14, 3).unwrap();
    let source = format!("kind = \"folder\"\nroot = {:?}", folder.path());
    let chains: &[&[&str]] = &[
        &["\"DecodeImage\"", "\"RandomResizedCrop\"; size = 20", "\"RandomHorizontalFlip\"", TENSOR],
        &["\"DecodeImage\"; fast = true", "\"RandomResizedCrop\"; size = 20", TENSOR],
        &[
            "\"DecodeImage\"",
            "\"Resize\"; size = 40",
            "\"CenterCrop\"; size = 32",
            "\"ColorJitter\"; brightness = 0.4",
            TENSOR,
        ],
        &["\"DecodeImage\"; mode = \"grey\"", "\"RandomCrop\"; size = 24", TENSOR, "\"RandomErasing\"; p = 0.7"],
    ];
    for chain in chains {
        let forms = check_forms(&plan(&source, &ops(chain)));
        assert_eq!(forms.iter().map(|form| form.cut.0).max(), Some(chain.len()), "all ops can run elsewhere");
        assert!(forms.contains(&Form { is_trimmed: true, ..Form::RAW }) || chain[1].contains("Resize\""));
    }
}

#[test]
fn law_1_progressive_pictures_are_the_same_in_every_form_and_trimming_makes_them_smaller() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for number in 0..6 {
        let class = folder.path().join(format!("class-{}", number % 2));
        std::fs::create_dir_all(&class).unwrap();
        let pixels = picture(number, 150, 130);
        let file = encode_jpeg_as(JpegCoding::Progressive, &pixels, (150, 130, 3), 90, Subsampling::S420).unwrap();
        std::fs::write(class.join(format!("{number}.jpg")), file).unwrap();
    }
    let source = format!("kind = \"folder\"\nroot = {:?}", folder.path());
    check_forms(&plan(&source, &ops(&["\"DecodeImage\"; fast = true", "\"RandomResizedCrop\"; size = 20", TENSOR])));
    let text = plan(&source, &ops(&["\"DecodeImage\"", "\"RandomCrop\"; size = 24", TENSOR]));
    check_forms(&text);
    let preparer = NearPreparer::new(open(&text).unwrap(), &machine(cache.path()));
    let mut workspace = NearWorkspace::new(Cancel::default());
    let mut bytes = |is_trimmed: bool| {
        let request = SampleRequest { id: SampleId(0), epoch: Epoch(0), occurrence: Occurrence(0) };
        let request = PeerRequest::Sample { request, form: Form { is_trimmed, ..Form::RAW }, stored: Vec::new() };
        preparer.prepare(&request, &mut workspace).unwrap().0.len()
    };
    let (whole, trimmed) = (bytes(false), bytes(true));
    assert!(trimmed < whole / 3, "{trimmed} of {whole} bytes");
}

#[test]
fn law_1_volumes_are_the_same_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    write_volumes(folder.path(), 6, [14, 20, 18]).unwrap();
    let source = format!("kind = \"volumes\"\nroot = {:?}", folder.path());
    let both = "on = [\"image\", \"label\"]";
    let chain = [
        format!("\"RandomBalancedCrop\"; size = [8, 8, 8]; {both}"),
        format!("\"RandomFlip3d\"; {both}"),
        "\"GaussianNoise\"; p = 0.5; on = \"image\"".to_owned(),
    ];
    let chain: Vec<&str> = chain.iter().map(String::as_str).collect();
    check_forms(&plan(&source, &ops(&chain)));
}

#[test]
fn what_is_not_for_other_machines_ends_the_prefix() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(folder.path(), 3, 1).unwrap();
    let source = format!("kind = \"folder\"\nroot = {:?}", folder.path());
    let delay = "\"Delay\"; costs_ms = [0.1]";
    let crop = "\"RandomResizedCrop\"; size = 20";
    let forms = check_forms(&plan(&source, &ops(&["\"DecodeImage\"", delay, crop, TENSOR])));
    assert_eq!(forms.iter().map(|form| form.cut.0).max(), Some(1));
    assert!(!forms.contains(&Form { is_trimmed: true, ..Form::RAW }), "the crop is not known there");
    // The crop decides the pixels of an approximate decoder, so the decoder cannot run without it.
    let forms = check_forms(&plan(&source, &ops(&["\"DecodeImage\"; fast = true", delay, crop, TENSOR])));
    assert_eq!(forms.iter().map(|form| form.cut.0).max(), Some(0));
}

#[test]
fn what_a_peer_cannot_prepare_is_prepared_here() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pictures(folder.path(), 12, 2).unwrap();
    let source = format!("kind = \"folder\"\nroot = {:?}", folder.path());
    let plan = open(&plan(&source, &ops(&["\"DecodeImage\"", "\"RandomResizedCrop\"; size = 20", TENSOR]))).unwrap();
    let expected = epochs(&Loader::new(Arc::clone(&plan), &Machine::default()), 2);
    let form = Form { cut: Cut(2), ..Form::RAW };
    let supply = Arc::new(near(&plan, cache.path(), form, |request| request.id.0.is_multiple_of(3)));
    let loader = Loader::with_supply(plan, supply, &Machine::default());
    assert!(epochs(&loader, 2) == expected);
    let came = loader.snapshot().store.candidates;
    assert!(came["raw"] >= 8 && came["after RandomResizedCrop"] >= 16, "{came:?}");
}

#[test]
fn a_prefix_from_outside_cannot_reach_files_or_make_giants() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(folder.path(), 3, 1).unwrap();
    let source = format!("kind = \"folder\"\nroot = {:?}", folder.path());
    let refusal = |text: &str, registry: &Registry| {
        let opened = Plan::open_prefix(text, registry, |table| Ok(registry.open_source(table)?));
        opened.expect_err("it is refused").to_string()
    };
    let core = Registry::core();
    let giant = plan(&source, &ops(&["\"DecodeImage\"", "\"Resize\"; size = [20000, 20000]", TENSOR]));
    assert!(refusal(&giant, &core).contains("at most"), "{}", refusal(&giant, &core));
    let sleep = plan(&source, &ops(&["\"Delay\"; costs_ms = [1e6]"]));
    assert!(refusal(&sleep, &core).contains("not for other machines"));
    let confined = Registry::confined();
    let files = plan("kind = \"files\"\nfields = { image = [\"/etc/passwd\"] }", "");
    let listed = plan("kind = \"volumes\"\nimages = [\"/etc/passwd\"]", "");
    for text in [plan(&source, ""), files, listed] {
        assert!(refusal(&text, &confined).contains("unknown"), "{}", refusal(&text, &confined));
    }
}
