//! The bottleneck of jobs with given evidence.

use super::*;
use crate::doctor::evidence::{ConsumerThread, Stalls};
use crate::doctor::period;

/// Resources that allow these numbers of samples per second.
fn allowing(step: f64, prepare: f64, read: f64) -> Times {
    Times { step: 1.0 / step, prepare: 1.0 / prepare, read: 1.0 / read, ..Times::default() }
}

fn bound(times: &Times, profile: JobProfile, joint: &Joint, with_memory: Option<f64>) -> Bound {
    Examined { times, profile, joint: *joint, with_memory }.bound()
}

const LOCAL: JobProfile = JobProfile { is_remote: false, reads_ahead: false, foreign_share: 0.0, reads_longer: false };

fn joint(samples_per_second: f64) -> Joint {
    Joint { samples_per_second, step_ms: 10.0, hand_over_ms: 0.1, ..Joint::default() }
}

#[test]
fn the_resource_that_allows_least_is_the_bound_if_the_job_reaches_what_it_allows() {
    let verdict = |all: Times, reached| bound(&all, LOCAL, &joint(reached), None);
    assert_eq!(verdict(allowing(100.0, 200.0, 300.0), 99.0), Bound::Step);
    assert_eq!(verdict(allowing(300.0, 200.0, 500.0), 195.0), Bound::Prepare);
    assert_eq!(verdict(allowing(300.0, 200.0, 80.0), 79.0), Bound::Read);
    let remote = Times { network: 1.0 / 80.0, ..allowing(300.0, 200.0, 500.0) };
    assert_eq!(bound(&remote, JobProfile { is_remote: true, ..LOCAL }, &joint(79.0), None), Bound::Network);
    let foreign =
        bound(&allowing(300.0, 200.0, 500.0), JobProfile { foreign_share: 0.9, ..LOCAL }, &joint(195.0), None);
    assert_eq!(foreign, Bound::Python);
    let waits = bound(&allowing(300.0, 200.0, 500.0), JobProfile { reads_longer: true, ..LOCAL }, &joint(195.0), None);
    assert_eq!(waits, Bound::Read, "threads wait for the store, though it could give more to further ones");
}

#[test]
fn a_job_that_stays_below_lacks_memory_or_waits_for_slow_samples() {
    let all = allowing(300.0, 200.0, 500.0);
    assert_eq!(bound(&all, LOCAL, &joint(120.0), Some(170.0)), Bound::Memory);
    let idle = Joint { idle_share: 0.4, stall_share: 0.3, ..joint(120.0) };
    assert_eq!(bound(&all, LOCAL, &idle, Some(121.0)), Bound::HeadOfLine);
    let slow_step = Joint { idle_share: 0.4, ..joint(85.0) };
    assert_eq!(bound(&allowing(100.0, 200.0, 500.0), LOCAL, &slow_step, None), Bound::Step, "nobody waits");
    assert_eq!(bound(&all, LOCAL, &joint(120.0), None), Bound::Prepare, "all threads were busy");
    let link = JobProfile { is_remote: true, reads_ahead: true, ..LOCAL };
    let late = Joint { stalls: Stalls { read: 1.0, ..Stalls::default() }, ..idle };
    assert_eq!(bound(&all, link, &late, None), Bound::Network, "threads are idle because nothing comes");
    let slow_hand_over = Joint { hand_over_ms: 40.0, idle_share: 0.8, stall_share: 0.3, ..joint(120.0) };
    assert_eq!(bound(&all, LOCAL, &slow_hand_over, Some(121.0)), Bound::HandOver);
}

#[test]
fn bounds_have_the_names_that_documents_use() {
    let names: Vec<String> = Bound::ALL.iter().map(|bound| serde_json::to_string(bound).unwrap()).collect();
    let expected = ["step", "prepare", "read", "network", "head_of_line", "python", "memory", "hand_over"];
    assert_eq!(names, expected.map(|name| format!("{name:?}")));
}
/// A run whose trainer waits for 30 % of its time.
fn counted(idle_share: f64) -> CountedRun {
    CountedRun {
        joint: Joint { stall_share: 0.3, idle_share, wait_ms: 5.0, ..Joint::default() },
        has_threads: true,
        ..CountedRun::default()
    }
}

#[test]
fn a_run_that_was_only_counted_is_judged_by_what_its_threads_did() {
    let with = |profile| CountedRun { profile, ..counted(0.0) }.bound();
    assert_eq!(with(LOCAL), Bound::Prepare);
    assert_eq!(with(JobProfile { reads_longer: true, ..LOCAL }), Bound::Read);
    assert_eq!(with(JobProfile { reads_longer: true, is_remote: true, ..LOCAL }), Bound::Network);
    assert_eq!(with(JobProfile { foreign_share: 0.9, ..LOCAL }), Bound::Python);
    assert_eq!(counted(0.4).bound(), Bound::HeadOfLine);
    assert_eq!(counted(0.1).bound(), Bound::Prepare, "nothing was measured alone, so a little idleness says nothing");
    assert_eq!(CountedRun { memory_wait_share: 0.2, ..counted(0.4) }.bound(), Bound::Memory);
    assert_eq!(CountedRun { memory_peak_share: 0.95, ..counted(0.4) }.bound(), Bound::Memory);
    assert_eq!(CountedRun { memory_peak_share: 0.95, ..counted(0.0) }.bound(), Bound::Prepare, "threads are busy");
    let mut taking = counted(0.4);
    taking.joint.hand_over_ms = 6.0;
    assert_eq!(taking.bound(), Bound::HandOver);
    taking.joint.stall_share = 0.04;
    assert_eq!(taking.bound(), Bound::Step);
}

#[test]
fn a_run_of_a_node_is_judged_by_what_was_waited_for() {
    let waited = |prepare, read, memory| {
        let joint = Joint { stalls: Stalls { prepare, read, memory }, ..counted(0.9).joint };
        CountedRun { joint, has_threads: false, ..counted(0.9) }.bound()
    };
    assert_eq!(waited(0.0, 0.0, 0.0), Bound::Prepare);
    assert_eq!(waited(1.0, 1.0, 1.0), Bound::Prepare);
    assert_eq!(waited(1.0, 2.0, 1.0), Bound::Read);
    assert_eq!(waited(1.0, 2.0, 3.0), Bound::Memory);
}

/// Ten seconds of waiting, which is half of the time.
const OUTSIDE: Outside<'static> = Outside {
    stall_share: 0.5,
    anomalies: &[],
    waited: 10.0,
    consumer: ConsumerThread { computed: 0.0, queued: 0.0 },
    workers: None,
};

#[test]
fn another_loader_that_loads_in_the_thread_of_its_consumer_computes_or_reads() {
    let thread = |computed, queued| Outside { consumer: ConsumerThread { computed, queued }, ..OUTSIDE }.bound();
    assert_eq!(Outside { stall_share: 0.04, ..OUTSIDE }.bound(), Some(Bound::Step));
    assert_eq!(thread(1.0, 0.0), Some(Bound::Read));
    assert_eq!(thread(6.0, 0.0), Some(Bound::Prepare));
    assert_eq!(thread(2.0, 7.0), Some(Bound::Prepare), "a wait for a core is no wait for storage");
}

#[test]
fn worker_processes_of_another_loader_read_only_where_there_is_evidence_of_it() {
    let of = |computing, blocked, read_bytes| {
        Outside { workers: Some(WorkerProcesses { computing, blocked, read_bytes }), ..OUTSIDE }.bound()
    };
    assert_eq!(of(None, 0.9, 1e12), None, "they were hardly seen");
    assert_eq!(of(Some(0.6), 0.9, 1e12), Some(Bound::Prepare));
    assert_eq!(of(Some(0.1), 0.0, 1e6), None);
    assert_eq!(of(Some(0.1), 0.2, 0.0), Some(Bound::Read));
    assert_eq!(of(Some(0.1), 0.0, 1e9), Some(Bound::Read));
    assert_eq!(of(Some(0.48), 0.2, 0.0), None, "they were idle while batches were ready");
}

#[test]
fn what_is_odd_about_the_batches_of_another_loader_says_more_than_its_processes() {
    let round: Vec<f64> = (0..64).map(|batch| if batch % 4 == 0 { 100.0 } else { 1.0 }).collect();
    let period = period::period(&round).expect("every fourth is slow");
    let bound = |anomaly: Anomaly, queued| {
        let consumer = ConsumerThread { computed: 0.0, queued };
        Outside { anomalies: &[anomaly], consumer, ..OUTSIDE }.bound()
    };
    assert_eq!(bound(Anomaly::Period { period, cause: PeriodCause::Workers }, 0.0), Some(Bound::Prepare));
    assert_eq!(bound(Anomaly::Period { period, cause: PeriodCause::Loading }, 0.0), Some(Bound::Read));
    let kinds = Anomaly::Bimodal { quick_ms: 1.0, slow_ms: 100.0, slow_share: 0.1 };
    assert_eq!(bound(kinds.clone(), 0.0), Some(Bound::HeadOfLine));
    assert_eq!(bound(kinds, 2.0), Some(Bound::Read), "batches that queue for a core are slow whatever is in them");
}
