//! Files of measured costs. Any bytes, also with a correct checksum, are refused, or give an order whose batches can be delivered.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use feedline_data::cost::Costs;
use feedline_data::plan::Plan;
use feedline_data::testing::open;
use feedline_engine::loader::Loader;
use feedline_engine::testing::collect;
use tempfile::TempDir;

use crate::running;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fn plan(costs: Option<&Path>) -> Option<Arc<Plan>> {
    let costs = costs.map(|path| format!("costs = {path:?}\n")).unwrap_or_default();
    let source = "[source]\nkind = \"synthetic\"\nn = 12\nshape = [4]\n";
    let op = "[[ops]]\nop = \"Delay\"\ncosts_ms = [0.3]\nkind = \"sleep\"\n";
    open(&format!("batch_size = 3\norder = \"planned\"\n{costs}{source}{op}")).ok()
}

fn path() -> PathBuf {
    FOLDER.path().join(format!("costs-{:?}", std::thread::current().id()))
}

/// Opens a plan whose order comes from these bytes: as they are, and with a corrected checksum.
pub fn run(data: &[u8]) {
    for bytes in [data.to_vec(), Costs::forged(data)] {
        fs::write(path(), bytes).expect("a file of costs");
        if let Some(plan) = plan(Some(&path())) {
            running::run(&plan);
        }
    }
}

/// Cost files as a run writes them, with and without a table.
pub fn seeds() -> Vec<Vec<u8>> {
    let plan = plan(None).expect("a valid plan");
    let empty = Costs::new(&*plan).to_bytes(&*plan);
    let loader = Loader::new(Arc::clone(&plan), &running::machine());
    collect(&loader).expect("samples that are made");
    loader.save_costs(&path()).expect("a file of costs");
    vec![empty, fs::read(path()).expect("a file of costs")]
}
