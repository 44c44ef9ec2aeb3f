//! The timeline of batches in the trace event format of Perfetto and Chrome.
//!
//! Two processes: the job, with the trainer and each thread that prepares; and its batches, one row each.

use feedline_diagnose::doctor::Life;
use feedline_engine::metrics::TimeRange;
use serde::Serialize;
use serde_json::{Value, json};

const JOB: u32 = 1;
const BATCHES: u32 = 2;
/// The first row of the job. The preparer threads follow.
const TRAINER: Row = Row { process: JOB, thread: 1 };
/// Thread numbers of batches start here, so that they differ from those of the job, as viewers expect.
const FIRST_BATCH: usize = 100_000;

/// A row of the trace. Viewers show it as a thread of a process.
#[derive(Clone, Copy)]
struct Row {
    process: u32,
    thread: usize,
}

fn preparer(number: usize) -> Row {
    Row { thread: TRAINER.thread + 1 + number, ..TRAINER }
}

fn batch_row(number: usize) -> Row {
    Row { process: BATCHES, thread: FIRST_BATCH + number }
}

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
    let mut events = job(life);
    events.extend(batches(life));
    serde_json::to_string(&Trace { events, unit: "ms" }).expect("a trace is plain data")
}

fn job(life: &Life) -> Vec<Value> {
    let threads = life.samples.iter().map(|sample| sample.thread + 1).max().unwrap_or(0);
    let mut events = vec![named("process_name", TRAINER, "feedline")];
    events.push(named("thread_name", TRAINER, "trainer"));
    events.extend((0..threads).map(|n| named("thread_name", preparer(n), &format!("preparer {n}"))));
    for batch in &life.trainer {
        let arguments = json!({ "epoch": batch.epoch, "batch": batch.number });
        events.push(span("wait", TRAINER, (batch.asked, batch.ready), &arguments));
        events.push(span("hand-over", TRAINER, (batch.ready, batch.received), &arguments));
        events.push(span("step", TRAINER, (batch.received, batch.done), &arguments));
    }
    for (sample, key) in life.samples.iter().zip(&life.keys) {
        let batch = life.batches.iter().find(|batch| batch.batch == sample.batch);
        let (wait, in_slot) = life.waits(sample);
        let arguments = json!({
            "sample": key,
            "epoch": batch.map(|batch| batch.epoch),
            "batch": batch.map(|batch| batch.number),
            "slot": sample.slot,
            "wait_ms": wait / 1e3,
            "wait_for_batch_ms": in_slot.map(|in_slot| in_slot / 1e3),
        });
        for (name, range) in life.stages.iter().zip(&sample.stages) {
            events.push(span(name, preparer(sample.thread), *range, &arguments));
        }
    }
    events
}

fn batches(life: &Life) -> Vec<Value> {
    let mut events = vec![named("process_name", batch_row(0), "batches")];
    for (number, row) in life.rows().into_iter().enumerate() {
        let place = batch_row(number);
        events.push(named("thread_name", place, &format!("batch {} of epoch {}", row.number, row.epoch)));
        events.push(metadata("thread_sort_index", place, &json!({ "sort_index": number })));
        let arguments = json!({ "epoch": row.epoch, "batch": row.number });
        events.extend(row.spans.iter().map(|part| span(part.stage.name(), place, (part.from, part.to), &arguments)));
    }
    events
}

fn span(name: &str, row: Row, (from, to): TimeRange, arguments: &Value) -> Value {
    // Viewers do not show negative times.
    let from = from.max(0.0);
    // "X" is a complete event, with a start and a duration in microseconds.
    json!({ "name": name, "cat": "feedline", "ph": "X", "ts": from, "dur": (to - from).max(0.0), "pid": row.process, "tid": row.thread, "args": arguments })
}

fn named(what: &str, row: Row, name: &str) -> Value {
    metadata(what, row, &json!({ "name": name }))
}

fn metadata(what: &str, row: Row, arguments: &Value) -> Value {
    // "M" is metadata: the name or the order of a row.
    json!({ "name": what, "ph": "M", "pid": row.process, "tid": row.thread, "args": arguments })
}

#[cfg(test)]
mod tests {
    use feedline_diagnose::doctor::BatchStage;

    use super::*;
    use crate::doctor::example::life;

    #[test]
    fn batches_have_rows_of_their_own_with_all_that_they_went_through() {
        let document: Value = serde_json::from_str(&trace(&life())).unwrap();
        let events = document["traceEvents"].as_array().unwrap();
        let spans = |process: u32| {
            events.iter().filter(move |event| event["ph"] == "X" && event["pid"] == process).collect::<Vec<_>>()
        };
        let names: Vec<&str> = spans(BATCHES).iter().take(6).map(|event| event["name"].as_str().unwrap()).collect();
        assert_eq!(names, BatchStage::ALL.map(BatchStage::name));
        assert!(spans(BATCHES).iter().all(|event| event["dur"].as_f64().unwrap() > 0.0));
        let read = spans(JOB).into_iter().find(|event| event["name"] == "read").unwrap();
        assert_eq!((&read["args"]["wait_ms"], &read["args"]["wait_for_batch_ms"]), (&json!(0.01), &json!(0.06)));
        let rows = |process: u32| spans(process).iter().map(|event| event["tid"].as_u64().unwrap()).max().unwrap();
        assert!(rows(JOB) < FIRST_BATCH as u64 && rows(BATCHES) > FIRST_BATCH as u64);
        assert!(events.iter().all(|event| event["ph"] == "X" || event["ph"] == "M"));
    }
}
