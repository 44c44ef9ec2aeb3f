//! Plans as text. Any text is refused, or is a plan that survives writing and reading, and whose first batches are delivered or
//! fail.

use std::sync::{Arc, LazyLock};

use feedline_data::plan::{Document, Plan, Registry, Workers};
use feedline_data::source::SyntheticSource;
use feedline_order::Epoch;

use crate::memory::MemoryStore;
use crate::{pictures, running};

/// Plans with more samples or larger batches are opened, but not run.
const MAX_SAMPLES: u64 = 4096;
const MAX_BATCH_BYTES: usize = 1 << 20;
/// Upper limit of threads, so that a run is short.
const MAX_WORKERS: usize = 4;

/// Sources that need no disk.
static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let mut store = MemoryStore::default();
    for (number, file) in pictures::SEEKABLE.iter().enumerate() {
        store = store.with(&format!("class-{}/{number}.jpg", number % 2), file.clone(), Some(number as i64));
    }
    for name in ["image", "label"] {
        for number in 0..3 {
            store = store.with(&format!("{number}/{name}.npy"), volume(name == "label"), Some(7));
        }
    }
    let mut registry = Registry::confined();
    registry.store("memory", move |_| Ok(Arc::new(store.clone())));
    registry.source("synthetic", |table, _| {
        let number = |value: &toml::Value| value.as_integer().and_then(|number| u64::try_from(number).ok());
        let sides = table.get("shape").and_then(toml::Value::as_array).into_iter().flatten();
        let shape: Vec<usize> = sides.filter_map(|side| Some(number(side)? as usize)).collect();
        Ok(Arc::new(SyntheticSource::new(table.get("n").and_then(number).unwrap_or(0), shape)?))
    });
    registry
});

/// A volume of 4 x 5 x 6 in NumPy's format.
fn volume(is_label: bool) -> Vec<u8> {
    let (descr, side) = if is_label { ("|u1", 1) } else { ("<f4", 4) };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (4, 5, 6), }}");
    // The data must start at a multiple of 64: 10 bytes before the header, and a newline at its end.
    header.push_str(&" ".repeat((64 - (10 + header.len() + 1) % 64) % 64));
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend((0..4 * 5 * 6 * side).map(|number: usize| u8::from(number % 7 == 0)));
    file
}

/// Opens a text as a plan and runs it.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(mut document) = Document::parse(text) else { return };
    let written = document.to_toml();
    // NaN is not equal to itself.
    if !written.contains("nan") {
        assert_eq!(Document::parse(&written).as_ref().ok(), Some(&document), "written as {written}");
    }
    // These settings name files. `Delay` only waits, possibly for hours.
    (document.settings.costs, document.settings.replay, document.config.arrival_log) = (None, None, None);
    document.ops.retain(|op| op.get("op").and_then(toml::Value::as_str) != Some("Delay"));
    if document.config.num_workers.count() > MAX_WORKERS {
        document.config.num_workers = Workers::Count(MAX_WORKERS);
    }
    let Ok(plan) = document.open(&REGISTRY) else { return };
    inspect(&plan);
    if plan.source().len() <= MAX_SAMPLES
        && plan.sequence().len() <= MAX_SAMPLES
        && plan.layout().slab().total_bytes() <= MAX_BATCH_BYTES
    {
        running::run(&Arc::new(plan));
    }
}

/// Calls the methods of a plan that do not run it.
fn inspect(plan: &Plan) {
    drop((plan.document(), plan.batches_per_epoch(), plan.substitutes_allowed(), plan.check_shared()));
    if !plan.has_planned_order() && plan.sequence().len() <= MAX_SAMPLES {
        plan.ids(Epoch(0), 3);
    }
}

/// Plans of all sources and orders, and copies in which each number is replaced by an edge value.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<String> = PLANS.map(str::to_owned).to_vec();
    for plan in PLANS {
        for (start, end) in numbers(plan) {
            seeds.extend(EDGE_VALUES.map(|value| format!("{}{value}{}", &plan[..start], &plan[end..])));
        }
    }
    seeds.into_iter().map(String::into_bytes).collect()
}

/// The byte ranges of the numbers in a text.
fn numbers(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let is_start = |at: usize| bytes[at].is_ascii_digit() && (at == 0 || matches!(bytes[at - 1], b' ' | b'[' | b','));
    let end_of = |start: usize| (start..bytes.len()).find(|&at| !is_part(bytes[at])).unwrap_or(bytes.len());
    (0..bytes.len()).filter(|&at| is_start(at)).map(|start| (start, end_of(start))).collect()
}

const EDGE_VALUES: [&str; 12] = [
    "0",
    "1",
    "-1",
    "65537",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "4611686018427387904",
    "9223372036854775807",
    "nan",
    "inf",
    "1e-308",
];

const PLANS: [&str; 8] = [
    "batch_size = 3\nshuffle = true\nseed = 7\ndrop_last = true\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [2, 3]\n\
     [run]\nnum_workers = 2\nprefetch_batches = 2\nmemory_budget = 1000000\n",
    "batch_size = 4\norder = \"planned\"\nmax_displacement = 5\n[source]\nkind = \"synthetic\"\nn = 20\nshape = [8]\n",
    "batch_size = 4\norder = \"arrival\"\nmax_displacement = 5\n[source]\nkind = \"synthetic\"\nn = 20\nshape = [8]\n",
    "batch_size = 2\nsampler = { kind = \"weighted\", weights = [1.0, 0.5, 2], num_samples = 7 }\n\
     on_error = { max_fraction = 0.5 }\n[source]\nkind = \"synthetic\"\nn = 3\nshape = [4]\n[run]\ncache = { ram = 1000000 }\n",
    "batch_size = 2\nsampler = { kind = \"list\", indices = [0, 2, 1, 1] }\n[source]\nkind = \"synthetic\"\nn = 3\nshape = [4]\n",
    "batch_size = 2\nsampler = { kind = \"class_balanced\", num_samples = 7 }\n[source]\nkind = \"folder\"\nroot = \"memory://fuzz\"\n\
     [[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"Resize\"\nsize = 20\nmax_size = 40\n[[ops]]\nop = \"CenterCrop\"\nsize = 16\n\
     [[ops]]\nop = \"ColorJitter\"\nbrightness = 0.4\nhue = 0.1\n[[ops]]\nop = \"ToTensor\"\n[[ops]]\nop = \"Normalize\"\n\
     mean = [0.4, 0.4, 0.4]\nstd = [0.2, 0.2, 0.2]\n[[ops]]\nop = \"RandomErasing\"\np = 0.5\nscale = [0.02, 0.3]\nratio = [0.3, 3.3]\nvalue = 0.5\n",
    "batch_size = 2\nshuffle = true\n[source]\nkind = \"folder\"\nroot = \"memory://fuzz\"\n[[ops]]\nop = \"DecodeImage\"\n\
     [[ops]]\nop = \"RandomResizedCrop\"\nsize = [12, 16]\nscale = [0.08, 1.0]\nratio = [0.75, 1.33]\n[[ops]]\nop = \"RandomCrop\"\n\
     size = 8\npadding = 2\nfill = 3\n[[ops]]\nop = \"RandomHorizontalFlip\"\np = 0.5\n[run]\ncache = { ram = \"1MB\", form = \"decoded\" }\n",
    "batch_size = 1\n[source]\nkind = \"volumes\"\nroot = \"memory://fuzz\"\n[[ops]]\nop = \"RandomBalancedCrop\"\nsize = [2, 3, 4]\n\
     oversampling = 0.4\n[[ops]]\nop = \"RandomFlip3d\"\np = 0.5\n[[ops]]\nop = \"PadTo\"\nsize = [4, 4, 4]\nfill = 1.5\n[[ops]]\n\
     op = \"ClipNormalize\"\nlow = -1.0\nhigh = 2.0\nmean = 0.5\nstd = 2.0\n[[ops]]\nop = \"GaussianNoise\"\nstd = 0.1\np = 0.5\n",
];
