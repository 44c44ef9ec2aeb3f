//! Tests the commands from outside: arguments in; files, text and exit codes out.

#![expect(
    clippy::unwrap_used,
    reason = "a test may panic; the lint does not see that functions beside tests are of tests"
)]

mod cost;
mod demo;
mod pack;
mod run;
mod show;
mod shuffle;
mod support;
mod synth;
mod usage;
mod verify;
