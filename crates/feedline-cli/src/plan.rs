//! Opens plans and takes their batches. Ctrl-C interrupts all of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::{fs, thread};

use anyhow::{Context as _, Result, bail};
use feedline_data::batch::Batch;
use feedline_data::plan::{Document, Plan, Registry};
use feedline_data::source::{Opener, Source, open_path};
use feedline_engine::loader::{Iteration, Loader, Next};
use feedline_engine::machine::Machine;

use crate::environment;
use crate::interrupt::{Interrupt, POLL};

/// Reads a plan without opening its source.
pub(crate) fn read(path: &Path) -> Result<Document> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read plan {path:?}"))?;
    Document::parse(&text).with_context(|| format!("in plan {path:?}"))
}

/// Reads a plan, opens its source and checks it.
pub(crate) fn open_file(path: &Path, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Arc<Plan>> {
    open(read(path)?, registry, interrupt).with_context(|| format!("in plan {path:?}"))
}

/// Opens the source of a plan and checks it.
pub(crate) fn open(document: Document, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Arc<Plan>> {
    let registry = Arc::clone(registry);
    Ok(Arc::new(wait_for(move || document.open(&registry), interrupt)??))
}

/// Runs a function that takes long and cannot be stopped, such as listing a large folder, in its own thread. After Ctrl-C, the
/// thread runs on until the process ends.
pub(crate) fn wait_for<T: Send + 'static>(
    open: impl FnOnce() -> T + Send + 'static,
    interrupt: &Interrupt<'_>,
) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let opener = thread::Builder::new().name("feedline-open".to_owned());
    let opener = opener.spawn(move || {
        // If the receiver is gone, the user has interrupted the command.
        sender.send(open()).unwrap_or_default();
    });
    let opener = opener.context("cannot start a thread")?;
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(opened) => return Ok(opened),
            Err(RecvTimeoutError::Timeout) => interrupt.check()?,
            // Disconnected without a value means that the thread panicked. The panic continues here.
            Err(RecvTimeoutError::Disconnected) => match opener.join() {
                Ok(()) => bail!("the thread that opens the source ended without a result"),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }
}

/// Opens the source that `SRC` names: that of a plan, shards, or a folder.
pub(crate) fn open_source(src: &str, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Arc<dyn Source>> {
    let registry = Arc::clone(registry);
    if Path::new(src).extension().is_some_and(|ending| ending == "toml") {
        let table = read(src.as_ref())?.source;
        let opened = wait_for(move || registry.open_source(table), interrupt)?;
        return opened.with_context(|| format!("in plan {src:?}"));
    }
    let path = src.to_owned();
    Ok(wait_for(move || open_path(&path, &*registry), interrupt)??)
}

/// The resources of this machine.
pub(crate) fn machine() -> Machine {
    Machine {
        memory_bytes: environment::memory_bytes(),
        cache_folder: environment::cache_folder().map(Into::into),
        ..Machine::default()
    }
}

/// A loader on this machine.
pub(crate) fn loader(plan: Arc<Plan>) -> Loader {
    Loader::new(plan, &machine())
}

/// Waits for the next batch. `None` at the end of the epoch.
pub(crate) fn next(loader: &Loader, iteration: Iteration, interrupt: &Interrupt<'_>) -> Result<Option<Batch>> {
    loop {
        interrupt.check()?;
        match loader.next_within(iteration, POLL)? {
            Next::Batch(batch) => return Ok(Some(*batch)),
            Next::End => return Ok(None),
            Next::NotYet => {}
        }
    }
}
