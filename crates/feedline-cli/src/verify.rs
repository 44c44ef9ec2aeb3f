//! `feedline verify`: checks the laws on the user's own data and machine.
//!
//! In: a plan, and how much of it to check. Out: a [`Verifying`], with the verdict or the first counterexample for each law. If a
//! law is broken, the command fails, and its last line names the law.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::{fmt, thread};

use anyhow::{Context as _, Result};
use feedline_data::memory::Cancel;
use feedline_data::plan::Registry;
use feedline_data::source::Opener;
use feedline_diagnose::verify::{Extent, Verdict, Verification, Watch, verify as verify_plan};
use feedline_engine::machine::Machine;
use serde::Serialize;

use crate::arguments::VerifyArguments;
use crate::interrupt::{Interrupt, POLL};
use crate::output::Output;
use crate::plan;
use crate::progress::Progress;

/// Upper limit of samples of an epoch whose ids are counted for law 2. That takes seconds, and reads no data.
const MAX_IDS: u64 = 2_000_000;

/// Upper limit of queued events.
const MAX_EVENTS: usize = 64;

/// A law is broken. The report names it, so only the exit code is left.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a law is broken")]
pub(crate) struct Broken;

/// The report about a plan.
#[derive(Debug, Serialize)]
struct Verifying {
    plan: PathBuf,
    #[serde(flatten)]
    found: Verification,
}

impl fmt::Display for Verifying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verification { epochs, samples, samples_of_epoch, laws, findings, .. } = &self.found;
        let part = if samples < samples_of_epoch { "the first " } else { "all " };
        let of = if samples < samples_of_epoch { format!(" of {samples_of_epoch}") } else { String::new() };
        let plural = if *epochs == 1 { "epoch" } else { "epochs" };
        writeln!(f, "{:?}: {part}{samples}{of} samples, {epochs} {plural}, in each configuration", self.plan)?;
        for law in laws {
            let (number, name, verdict, detail, seconds) = (law.law, law.name, law.verdict, &law.detail, law.seconds);
            writeln!(f, "law {number}  {name:18}  {verdict:14}  {seconds:6.1} s  {detail}")?;
        }
        for finding in findings {
            writeln!(f, "finding: {finding}")?;
        }
        for counterexample in laws.iter().filter_map(|law| law.counterexample.as_ref()) {
            writeln!(f, "counterexample to {counterexample}")?;
        }
        let broken = laws.iter().filter(|law| law.verdict == Verdict::Fail);
        let broken: Vec<String> = broken.map(|law| format!("law {} ({})", law.law, law.name)).collect();
        if broken.is_empty() { writeln!(f, "all laws hold") } else { writeln!(f, "broken: {}", broken.join(", ")) }
    }
}

/// A progress event of the checking thread.
enum CheckEvent {
    Begins { name: &'static str, number: usize, of: usize },
    Delivered { configuration: String, samples: u64 },
}

/// Sends events from the checking thread to the main thread, and receives the request to stop.
struct EventSender {
    sender: SyncSender<CheckEvent>,
    cancel: Cancel,
}

impl Watch for EventSender {
    fn begins(&self, name: &'static str, number: usize, of: usize) {
        self.send(CheckEvent::Begins { name, number, of });
    }

    fn delivered(&self, configuration: &str, samples: u64) {
        self.send(CheckEvent::Delivered { configuration: configuration.to_owned(), samples });
    }

    fn wants_to_stop(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

impl EventSender {
    fn send(&self, event: CheckEvent) {
        // If the receiver is gone, the user has interrupted the command.
        self.sender.send(event).unwrap_or_default();
    }
}

/// Checks the laws and writes the report.
pub(crate) fn verify(
    typed: &VerifyArguments,
    registry: &Arc<Registry>,
    interrupt: &Interrupt<'_>,
    output: Output,
) -> Result<()> {
    let opened = plan::open_file(&typed.plan, registry, interrupt)?;
    let extent = Extent { epochs: typed.epochs, samples: typed.samples, ids: MAX_IDS };
    let machine =
        Machine { cache_folder: registry.cache_folder().map(|folder| folder.to_owned().into()), ..plan::machine() };
    // Bounded: the checks wait if the main thread does not keep up.
    let (sender, receiver) = mpsc::sync_channel(MAX_EVENTS);
    let cancel = Cancel::default();
    let watch = EventSender { sender, cancel: cancel.clone() };
    // After Ctrl-C the thread is asked to stop. If it does not stop soon, it ends with the process.
    let checking = thread::Builder::new().name("feedline-verify".to_owned());
    let checking = checking.spawn(move || verify_plan(&opened, extent, &machine, &watch));
    let checking = checking.context("cannot start a thread")?;
    let progress = Progress::new("laws", 0);
    let (mut name, mut samples) = ("", 0);
    loop {
        if let Err(interrupted) = interrupt.check() {
            cancel.cancel();
            return Err(interrupted);
        }
        match receiver.recv_timeout(POLL) {
            Ok(CheckEvent::Begins { name: begun, number, of }) => {
                (name, samples) = (begun, 0);
                progress.of(of as u64);
                progress.reach(number as u64);
                progress.show(|| name.to_owned());
            }
            Ok(CheckEvent::Delivered { configuration, samples: more }) => {
                samples += more;
                progress.show(|| format!("{name}: {samples} samples, {configuration}"));
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The thread has ended and dropped its sender. It is joined below.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    drop(progress);
    let found = match checking.join() {
        Ok(found) => found.with_context(|| format!("in plan {:?}", typed.plan))?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let passed = found.passed;
    output.write(&Verifying { plan: typed.plan.clone(), found })?;
    if passed { Ok(()) } else { Err(Broken.into()) }
}
