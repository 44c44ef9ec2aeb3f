//! The shared cores in all interleavings: no thread waits for ever, and no permit is lost or granted twice.
//!
//! The number of free permits is not visible from outside. But if a permit is lost, a thread that waits without a time-out never
//! continues, which loom reports as a deadlock. A permit that is returned twice makes the number negative, which panics.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use feedline_loom::cores::Cores;
use feedline_loom::sync::let_time_pass;
use loom::cell::Cell;
use loom::sync::Arc;
use loom::thread;

/// `let_time_pass` is global, so the tests of this file run one at a time.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Lets several threads enter one core, each with another due time.
fn check(threads: u64, time_passes: bool) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut model = loom::model::Builder::new();
    // With three threads the number of interleavings explodes, so preemptions are bounded.
    model.preemption_bound = (threads > 2).then_some(3);
    model.check(move || {
        let_time_pass(time_passes);
        let (cores, only) = (Cores::new(1), Arc::new(Cell::new(0)));
        let enter = |due: u64| {
            let (cores, only) = (cores.clone(), Arc::clone(&only));
            move || {
                let claim = cores.claim();
                claim.set_due(Instant::now() + Duration::from_secs(due));
                let permit = claim.enter().renew();
                if !time_passes {
                    // Loom reports a data race if two threads are here at the same time.
                    only.set(only.get() + 1);
                }
                drop(permit);
            }
        };
        let others: Vec<_> = (1..threads).map(|due| thread::spawn(enter(due * 100))).collect();
        enter(0)();
        others.into_iter().for_each(|other| other.join().unwrap());
        // No permit is lost: entering again does not wait.
        let_time_pass(false);
        drop(cores.claim().enter());
    });
}

#[test]
fn two_threads_take_turns_and_each_is_woken() {
    check(2, false);
}

#[test]
fn three_threads_take_turns_and_each_is_woken() {
    check(3, false);
}

#[test]
fn two_threads_that_lose_patience_lose_no_permit() {
    check(2, true);
}

#[test]
fn three_threads_that_lose_patience_lose_no_permit() {
    check(3, true);
}
