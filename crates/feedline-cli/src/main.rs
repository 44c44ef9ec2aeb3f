//! The `feedline` binary: the library with the ops and sources of the engine, and a handler for Ctrl-C.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use feedline_data::op::{CheckError, MisplacedOp};
use feedline_data::plan::Registry;

/// Returns large allocations to the system as soon as they are freed.
#[global_allocator]
static ALLOCATOR: feedline_memory::MappingAllocator = feedline_memory::MappingAllocator;

/// The exit code of a command that the user stopped.
const INTERRUPTED: i32 = 130;

fn main() -> ExitCode {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_interrupted);
    let handler = ctrlc::set_handler(move || {
        // A second Ctrl-C ends the process at once.
        // Relaxed suffices: the flag is the only shared data.
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    });
    if let Err(error) = handler {
        eprintln!("error: cannot listen for Ctrl-C: {error}");
        return ExitCode::FAILURE;
    }
    let code = feedline_cli::run(std::env::args_os().collect(), registry(), &|| is_interrupted.load(Ordering::Relaxed));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// All ops and sources that need no Python. `Map` is an error that says which command can run it.
fn registry() -> Registry {
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    registry.op_with("Map", |_| {
        let problem =
            "this binary has no Python; run the plan with the feedline command of the wheel (pip install feedline)";
        Err(MisplacedOp { op: "Map".to_owned(), cause: CheckError::Parameter(problem.to_owned()) }.into())
    });
    registry
}
