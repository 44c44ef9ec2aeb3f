//! The `feedline` command, as a library: the binary and the wheel's console script both call [`run`].
//!
//! In: arguments, the registry of ops, sources and stores, and a function that returns whether the user wants to stop. Out: an exit
//! code.
//!
//! - 0: success
//! - 1: the command failed, with one line on stderr; or `verify` found a broken law, which its report names
//! - 2: wrong usage
//! - 130: interrupted
//!
//! Always true: this crate never ends the process. A closed pipe is no error. With `--json`, stdout is exactly one JSON document.
//! Only `environment.rs` reads environment variables.

mod arguments;
mod atomic_file;
mod cache;
mod classifier;
mod cost;
mod demo;
pub mod doctor;
mod environment;
#[cfg(test)]
mod examples;
mod font;
mod grid;
mod index;
mod interrupt;
mod node;
mod offload;
mod output;
mod pack;
mod picture;
mod plan;
mod plot;
mod progress;
mod report;
mod run;
mod show;
mod shuffle;
mod storage;
mod synth;
mod top;
mod verify;

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::Result;
use arguments::{Arguments, Command};
use clap::FromArgMatches as _;
use feedline_data::plan::Registry;
use feedline_data::source::Opener;
use interrupt::{Interrupt, Interrupted};
use output::Output;
use verify::Broken;

/// Runs one command and returns its exit code. `arguments` start with the name of the program. `interrupted` is called at least
/// every 100 ms.
pub fn run(arguments: Vec<OsString>, registry: Registry, interrupted: &dyn Fn() -> bool) -> i32 {
    let arguments = arguments.into_iter().map(environment::with_home);
    let parsed = Arguments::grouped().try_get_matches_from(arguments);
    let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(usage) => return output::usage(&usage),
    };
    let output = Output::new(arguments.json);
    // A node serves jobs of its own user, who can run any code anyway.
    let trusts_plans = arguments.allow_functions || matches!(arguments.command, Command::Node(_));
    let registry = if trusts_plans { registry.allowing_functions() } else { registry };
    match dispatch(arguments.command, registry, &Interrupt::new(interrupted), output) {
        Ok(()) => 0,
        Err(error) if error.is::<Interrupted>() => {
            output::say("interrupted");
            130
        }
        // The reader has enough, as in `feedline run ... | head`.
        Err(error) if output::is_closed_pipe(&error) => 0,
        Err(error) if error.is::<Broken>() => 1,
        Err(error) => {
            output::fail(output, &error);
            1
        }
    }
}

fn dispatch(command: Command, registry: Registry, interrupt: &Interrupt<'_>, output: Output) -> Result<()> {
    // A cache folder that the caller has chosen takes precedence over the environment.
    let registry = Arc::new(match environment::cache_folder() {
        Some(folder) if registry.cache_folder().is_none() => registry.with_cache_folder(folder),
        _ => registry,
    });
    match command {
        Command::Run(arguments) => output.write(&run::run(arguments, &registry, interrupt)?),
        Command::Show(arguments) => output.write(&show::show(arguments, &registry, interrupt)?),
        Command::Index(arguments) => output.write(&index::index(&arguments, &registry, interrupt)?),
        Command::Cost(arguments) => output.write(&cost::cost(&arguments, &registry, interrupt)?),
        Command::Shuffle(arguments) => output.write(&shuffle::shuffle(&arguments, &registry, interrupt)?),
        Command::Doctor(arguments) => output.write(&doctor::doctor(&arguments, &registry, interrupt)?),
        Command::Offload(arguments) => output.write(&offload::offload(&arguments, &registry, interrupt)?),
        Command::Cache { command } => output.write(&cache::cache(&command, &registry)?),
        Command::Pack(arguments) => output.write(&pack::pack(&arguments.into(), &registry, interrupt)?),
        Command::Verify(arguments) => verify::verify(&arguments, &registry, interrupt, output),
        Command::Storage(arguments) => output.write(&storage::storage(&arguments, registry.cache_folder(), interrupt)?),
        Command::Node(arguments) => output.write(&node::node(&arguments, &registry, interrupt)?),
        Command::Top(arguments) => top::top(&arguments, output, interrupt),
        Command::Synth(arguments) => output.write(&synth::synth(&arguments.into(), interrupt)?),
        Command::Demo(arguments) => output.write(&demo::demo(&arguments.into(), &registry, interrupt)?),
    }
}
