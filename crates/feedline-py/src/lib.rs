//! The Python boundary: convert, detach, delegate.
//!
//! This module is private: `python/feedline` wraps everything that is public, with types and docs. One class per file, all frozen.
//! Nothing blocks while attached to the interpreter, and importing has no side effects.

mod batch;
mod buffer;
mod convert;
mod doctor;
mod errors;
mod given;
mod loader;
mod log;
mod logging;
mod machine;
mod map;
mod metrics;
mod plan;
mod registry;
mod sharing;
mod signals;
mod source;

use pyo3::prelude::*;

/// Returns large allocations to the system as soon as they are freed.
#[global_allocator]
static ALLOCATOR: feedline_memory::MappingAllocator = feedline_memory::MappingAllocator;

/// The native half of the `feedline` package.
#[pymodule]
mod _feedline {
    #[pymodule_export]
    use super::batch::Array;
    #[pymodule_export]
    use super::doctor::{Diagnosis, bounds, foreign_report};
    #[pymodule_export]
    use super::given::{GivenLoader, SampleSeeds, random_words, seed_random};
    #[pymodule_export]
    use super::loader::Loader;
    #[pymodule_export]
    use super::metrics::{Metrics, numbers};
    #[pymodule_export]
    use super::plan::Plan;
    #[pymodule_export]
    use super::source::Source;
    #[pymodule_export]
    use super::{has_jpeg_simd, run_cli, version};
}

/// The version of the package.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Whether the JPEG decoder was built with SIMD.
#[pyfunction]
fn has_jpeg_simd() -> bool {
    feedline_codec::has_jpeg_simd()
}

/// Runs the `feedline` command and returns its exit code. `arguments` start with the name of the program.
#[pyfunction]
fn run_cli(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> i32 {
    py.detach(|| {
        // Attaches only for this check, so that other Python threads run meanwhile.
        let is_interrupted = || Python::attach(|py| py.check_signals().is_err());
        feedline_cli::run(arguments, registry::registry(None), &is_interrupted)
    })
}
