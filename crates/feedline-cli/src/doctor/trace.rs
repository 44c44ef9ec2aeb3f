//! The life of batches as a trace that Perfetto and Chrome open.

use feedline_core::doctor::Life;
use serde::Serialize;
use serde_json::{Value, json};

const PROCESS: u32 = 1;
/// Threads in the trace: the trainer, then batches that wait, then preparers.
const TRAINER: usize = 0;
const WAITING: usize = 1;
const FIRST_PREPARER: usize = 2;

/// A document of the trace event format.
#[derive(Serialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Value>,
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
}

/// The trace as JSON.
pub fn trace(life: &Life) -> String {
    let threads = life.samples.iter().map(|sample| sample.thread + 1).max().unwrap_or(0);
    let mut events = vec![named("process_name", None, "feedline")];
    events.push(named("thread_name", Some(TRAINER), "trainer"));
    events.push(named("thread_name", Some(WAITING), "first sample ready, batch not"));
    events.extend((0..threads).map(|n| named("thread_name", Some(FIRST_PREPARER + n), &format!("preparer {n}"))));
    for batch in &life.trainer {
        events.push(span("wait", TRAINER, (batch.asked, batch.ready), &json!({ "epoch": batch.epoch })));
        events.push(span("hand-over", TRAINER, (batch.ready, batch.received), &json!({})));
        events.push(span("step", TRAINER, (batch.received, batch.done), &json!({})));
    }
    for (sample, key) in life.samples.iter().zip(&life.keys) {
        for (name, stretch) in life.stages.iter().zip(&sample.stages) {
            let told = json!({ "sample": key, "batch": sample.batch, "slot": sample.slot });
            events.push(span(name, FIRST_PREPARER + sample.thread, *stretch, &told));
        }
    }
    for batch in &life.batches {
        let ends = life.samples.iter().filter(|sample| sample.batch == batch.batch);
        let first = ends.filter_map(|sample| sample.stages.last()).map(|stage| stage.1).reduce(f64::min);
        if let Some(first) = first.filter(|first| *first < batch.delivered) {
            let told = json!({ "epoch": batch.epoch, "number": batch.number });
            events.push(span("batch fills and waits", WAITING, (first, batch.delivered), &told));
        }
    }
    serde_json::to_string(&Trace { events, unit: "ms" }).expect("a trace is plain data")
}

fn span(name: &str, thread: usize, (from, to): (f64, f64), told: &Value) -> Value {
    let from = from.max(0.0);
    json!({ "name": name, "cat": "feedline", "ph": "X", "ts": from, "dur": (to - from).max(0.0), "pid": PROCESS, "tid": thread, "args": told })
}

fn named(what: &str, thread: Option<usize>, name: &str) -> Value {
    json!({ "name": what, "ph": "M", "pid": PROCESS, "tid": thread.unwrap_or(0), "args": { "name": name } })
}
