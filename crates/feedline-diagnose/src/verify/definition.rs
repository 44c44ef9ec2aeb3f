//! Prepares a sample by definition: loads it completely and runs one op after the other on whole fields, without SIMD, threads or
//! caches.
//!
//! In: a sample. Out: its fields after each stage, that is after loading and after each op. The optimised engine must produce the
//! same bytes (law 8). If two preparations of a sample differ, the first stage with a difference is the culprit (law 1).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::thread;

use feedline_data::batch::{Sample, Value};
use feedline_data::failure::chain;
use feedline_data::memory::{Cancel, Workspace};
use feedline_data::op::{ChainObserver, FailedOp, OpRange};
use feedline_data::plan::Plan;
use feedline_engine::machine::Machine;
use feedline_engine::metrics::Metrics;
use feedline_engine::supply::{Loading, LocalSupply, Reading, Supply as _};
use feedline_order::SampleRequest;

use super::content::{Content, Sides};
use super::subject::VerifyError;

/// Upper limit of preparations of one sample to find the stage that is not deterministic.
const ATTEMPTS: usize = 12;

/// The kernels that ops use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernels {
    Plain,
    Fastest,
}

/// The fields of a sample, by name.
pub(super) type Fields = Vec<(String, Content<'static>)>;

/// A stage that is not deterministic, and the first difference that shows it.
#[derive(Debug)]
pub(super) struct Culprit {
    pub stage_name: String,
    pub field: String,
    pub byte: Option<u64>,
    pub first: String,
    pub second: String,
}

/// Prepares samples of one plan by definition.
#[derive(Debug)]
pub(super) struct Definition {
    plan: Arc<Plan>,
    supply: LocalSupply,
    metrics: Metrics,
}

impl Definition {
    pub(super) fn new(plan: &Arc<Plan>) -> Self {
        let supply = LocalSupply::new(Arc::clone(plan), &Machine::default());
        Self { metrics: Metrics::counting(plan, supply.traffic()), plan: Arc::clone(plan), supply }
    }

    /// The fields of a sample after the last op, or why it cannot be prepared.
    pub(super) fn prepare(&self, request: SampleRequest) -> Result<Fields, String> {
        let mut last = Vec::new();
        let stages = self.plan.ops().len();
        self.walk(request, Kernels::Plain, &mut |stage, sample| {
            if stage == stages {
                last = fields(sample);
            }
        })?;
        Ok(last)
    }

    /// The stage that makes a sample differ between preparations, if it also does so when the sample is prepared alone.
    pub(super) fn culprit(&self, request: SampleRequest) -> Result<Option<Culprit>, VerifyError> {
        for attempt in 1..ATTEMPTS {
            // Alternates, because a difference may come from SIMD or appear only by chance.
            let kernels = if attempt % 2 == 0 { Kernels::Plain } else { Kernels::Fastest };
            let [first, second] = self.on_two_threads(request, [Kernels::Fastest, kernels])?;
            if let Some(culprit) = self.first_unequal_stage(&first, &second) {
                return Ok(Some(culprit));
            }
        }
        Ok(None)
    }

    /// Prepares a sample on two threads at the same time. Both exist at once, so they have different ids, and an op that depends on
    /// the thread shows it.
    fn on_two_threads(&self, request: SampleRequest, kernels: [Kernels; 2]) -> Result<[Stages; 2], VerifyError> {
        let both = Barrier::new(2);
        thread::scope(|scope| {
            let both = &both;
            let start = |kernels| {
                let work = move || {
                    both.wait();
                    let mut stages = Stages::default();
                    let walked = self.walk(request, kernels, &mut |_, sample| stages.fields.push(fields(sample)));
                    Stages { failure: walked.err(), ..stages }
                };
                let started = thread::Builder::new().name("feedline-verify".to_owned()).spawn_scoped(scope, work);
                started.map_err(VerifyError::Thread)
            };
            let first = start(kernels[0])?;
            let second = start(kernels[1]).inspect_err(|_| {
                // The first thread waits at the barrier, and would wait for ever.
                both.wait();
            })?;
            // A thread that panicked outside of `walk` counts as without results.
            Ok([first, second].map(|thread| thread.join().unwrap_or_default()))
        })
    }

    /// The first stage at which two preparations differ.
    fn first_unequal_stage(&self, first: &Stages, second: &Stages) -> Option<Culprit> {
        for (stage, (one, other)) in first.fields.iter().zip(&second.fields).enumerate() {
            for ((name, one), (_, other)) in one.iter().zip(other) {
                if let Some(Sides { byte, expected, found }) = one.first_difference(other) {
                    let (stage_name, field) = (self.stage_name(stage), name.clone());
                    return Some(Culprit { stage_name, field, byte, first: expected, second: found });
                }
            }
        }
        if first.failure == second.failure {
            return None;
        }
        let words = |stages: &Stages| stages.failure.clone().unwrap_or_else(|| "prepared".to_owned());
        // All common stages are equal, so the stage that failed in one preparation only is the culprit.
        let stage = first.fields.len().min(second.fields.len());
        Some(Culprit {
            stage_name: self.stage_name(stage),
            field: String::new(),
            byte: None,
            first: words(first),
            second: words(second),
        })
    }

    /// The name of a stage, with what is wrong with it.
    fn stage_name(&self, stage: usize) -> String {
        let Some(op) = stage.checked_sub(1).and_then(|number| self.plan.ops().get(number)) else {
            return "the source: the bytes of this sample change from one read to the next".to_owned();
        };
        let table = op.table().unwrap_or_default();
        let function = table.get("fn").map(|function| format!("({function})")).unwrap_or_default();
        let of = self.plan.ops().len();
        format!(
            "{}{function}, op {stage} of {of}: it gives other bytes for the same sample and the same draw",
            op.name()
        )
    }

    /// Prepares a sample and calls `each` after every stage. Fails with the reason if a stage fails.
    fn walk(
        &self,
        request: SampleRequest,
        kernels: Kernels,
        each: &mut dyn FnMut(usize, &Sample<'_>),
    ) -> Result<(), String> {
        // A panicking op is a finding about this sample, not the end of the verification.
        let walked = catch_unwind(AssertUnwindSafe(|| {
            let mut workspace = match kernels {
                Kernels::Plain => Workspace::without_simd(Cancel::default(), 0),
                Kernels::Fastest => Workspace::new(Cancel::default(), 0),
            };
            let mut sample = Sample::new();
            let loaded = self.supply.load(Loading {
                request,
                reading: Reading::Plain,
                sample: &mut sample,
                workspace: &mut workspace,
                metrics: &self.metrics,
            });
            loaded.map_err(|error| chain(&error))?;
            if self.plan.chain().reads_key() {
                sample.put("key", Value::Text(self.plan.source().key(request.id).into_owned()));
            }
            // Stage 0 is the loaded sample, stage n is after op n.
            each(0, &sample);
            let all = 0..self.plan.ops().len();
            let range = OpRange { ops: all.clone(), whole: all };
            let ran = self.plan.chain().run(&range, request, &mut sample, &mut workspace, &mut EachStage(each));
            ran.map_err(|FailedOp { op, cause }| format!("{}: {}", self.plan.ops()[op].name(), chain(&cause)))
        }));
        walked.unwrap_or_else(|_| Err("an op panicked, which is a bug".to_owned()))
    }
}

/// Calls a function after each op.
struct EachStage<'a>(&'a mut dyn FnMut(usize, &Sample<'_>));

impl ChainObserver for EachStage<'_> {
    fn after(&mut self, op: usize, sample: &Sample<'_>) {
        (self.0)(op + 1, sample);
    }
}

/// The fields after each stage, up to a failure.
#[derive(Debug, Default)]
struct Stages {
    fields: Vec<Fields>,
    failure: Option<String>,
}

fn fields(sample: &Sample<'_>) -> Fields {
    sample.values().map(|(name, value)| (name.to_owned(), Content::of_value(value).into_owned())).collect()
}
