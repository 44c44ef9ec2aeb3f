//! `feedline offload`: what a storage server would do for a plan, why, and what that gains.
//!
//! In: a plan whose source is a storage server. Out: an [`Offloading`]: the decision as it is made in training, samples in all
//! forms, and the throughput without and with it, predicted and measured; plots of the samples where asked for.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use anyhow::{Context as _, Result, bail};
use feedline_data::failure::chain;
use feedline_data::plan::{Document, Plan, Policy, Registry};
use feedline_data::store::Asked;
use feedline_engine::offload::{OffloadReport, SamplePoint};
use feedline_order::{Epoch, Occurrence, Ordinal, SampleRequest};
use serde::Serialize;

use crate::arguments::OffloadArguments;
use crate::interrupt::{Interrupt, POLL};
use crate::plot::Drawing;
use crate::progress::Progress;
use crate::{output, plan};

mod plots;

/// Trials under way at once.
const AT_ONCE: usize = 8;
/// The part of a run at its beginning that does not count: what is decided is decided then.
const WARM_UP: f64 = 0.5;

/// What a storage server does for a plan.
#[derive(Debug, Serialize)]
pub(crate) struct Offloading {
    plan: PathBuf,
    ops: Vec<String>,
    /// Samples a second, measured.
    measured_before: f64,
    measured_after: f64,
    #[serde(flatten)]
    report: OffloadReport,
}

impl fmt::Display for Offloading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OffloadReport { policy, bound_before, bound_after, throughput, .. } = &self.report;
        let OffloadReport { samples, benefit_share, stored_bytes, sent_bytes, storage_seconds, .. } = &self.report;
        writeln!(f, "policy {policy}, from the sizes of {samples} samples")?;
        writeln!(f, "  samples that are sent smaller   {:6.1} %", 100.0 * benefit_share)?;
        let fewer = stored_bytes / sent_bytes;
        writeln!(
            f,
            "  bytes of a sample               {stored_bytes:.0} stored, {sent_bytes:.0} sent: {fewer:.2}x fewer"
        )?;
        writeln!(f, "  processor of the server         {:.3} ms for a sample", 1e3 * storage_seconds)?;
        writeln!(f, "  bottleneck                      {bound_before}, then {bound_after}")?;
        writeln!(f, "  samples/s predicted             {:.0}, then {:.0}", throughput.before, throughput.after)?;
        writeln!(f, "  samples/s measured              {:.0}, then {:.0}", self.measured_before, self.measured_after)?;
        writeln!(f, "forms:")?;
        for form in &self.report.candidates {
            writeln!(
                f,
                "  {:32} {:5.1} % of samples, {:9.0} -> {:9.0} bytes, {:7.3} ms",
                form.name,
                100.0 * form.share,
                form.stored_bytes,
                form.sent_bytes,
                1e3 * form.storage_seconds
            )?;
        }
        Ok(())
    }
}

/// Measures and decides.
pub(crate) fn offload(
    typed: &OffloadArguments,
    registry: &Arc<Registry>,
    interrupt: &Interrupt<'_>,
) -> Result<Offloading> {
    let found = explain(typed, registry, interrupt).with_context(|| format!("in plan {:?}", typed.plan))?;
    let (report, plots) = (found.to_string(), plots::plots(&found.ops, &found.report.points));
    Drawing { title: "feedline offload", report, plots }.write(typed.drawn.html.as_ref(), typed.drawn.svg.as_ref())?;
    Ok(found)
}

fn explain(typed: &OffloadArguments, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Offloading> {
    let mut document = plan::read(&typed.plan)?;
    if let Some(policy) = typed.policy {
        document.config.offload = policy;
    }
    let opened = plan::open(document.clone(), registry, interrupt)?;
    if opened.source().peer().is_none() {
        bail!("its samples do not come from a storage server: the source's address begins with feedline://");
    }
    let seconds = typed.seconds.max(1.0);
    let progress = Progress::new("seconds", (2.0 * seconds) as u64);
    let raw = Document {
        config: feedline_data::plan::RunConfig { offload: Policy::None, ..document.config.clone() },
        ..document
    };
    let (measured_before, _) =
        run(plan::open(raw, registry, interrupt)?, typed.step_ms, seconds, &progress, interrupt)?;
    let (measured_after, report) = run(Arc::clone(&opened), typed.step_ms, seconds, &progress, interrupt)?;
    drop(progress);
    let mut report = report.context("the storage server has prepared nothing")?;
    report.points = trials(&opened, typed.samples, interrupt)?;
    let ops = opened.ops().iter().map(|op| op.name().to_string()).collect();
    Ok(Offloading { plan: typed.plan.clone(), ops, measured_before, measured_after, report })
}

/// Runs a plan for some time; gives its speed once it is under way, and what was decided.
fn run(
    plan: Arc<Plan>,
    step_ms: f64,
    seconds: f64,
    progress: &Progress,
    interrupt: &Interrupt<'_>,
) -> Result<(f64, Option<OffloadReport>)> {
    let loader = plan::loader(plan);
    let (start, mut counted, mut samples) = (Instant::now(), None, 0_u64);
    let mut shown = 0;
    while start.elapsed().as_secs_f64() < seconds {
        let iteration = loader.begin()?;
        while let Some(batch) = plan::next(&loader, iteration, interrupt)? {
            thread::sleep(Duration::from_secs_f64(step_ms.max(0.0) / 1e3));
            let elapsed = start.elapsed().as_secs_f64();
            if elapsed >= WARM_UP * seconds {
                samples += if counted.is_some() { batch.len as u64 } else { 0 };
                counted.get_or_insert_with(Instant::now);
            }
            while shown < (elapsed.min(seconds)) as u64 {
                progress.advance();
                shown += 1;
            }
            if elapsed >= seconds {
                break;
            }
        }
    }
    let passed = counted.map_or(0.0, |counted: Instant| counted.elapsed().as_secs_f64());
    let report = loader.offload();
    loader.close();
    Ok((if passed > 0.0 { samples as f64 / passed } else { 0.0 }, report))
}

/// Samples spread over the source, in all forms.
fn trials(plan: &Arc<Plan>, count: u64, interrupt: &Interrupt<'_>) -> Result<Vec<SamplePoint>> {
    let (source, prefix) = (plan.source(), Arc::new(plan.prefix()?));
    let peer = source.peer().context("the storage server is gone")?;
    let count = count.clamp(1, source.len());
    let progress = Progress::new("samples", count);
    let ids: Vec<_> = (0..count).map(|number| source.id_at(Ordinal(number * source.len() / count))).collect();
    let (sender, answers) = mpsc::channel();
    let (mut points, mut under_way, mut next) = (Vec::new(), Vec::new(), ids.iter());
    let mut left = ids.len();
    while left > 0 {
        while under_way.len() < AT_ONCE
            && let Some(&id) = next.next()
        {
            let (sender, wanted) = (sender.clone(), SampleRequest { id, epoch: Epoch(0), occurrence: Occurrence(0) });
            // A receiver that is gone wants no answer.
            let done = Box::new(move |answer| drop(sender.send((id, answer))));
            under_way.push((id, peer.ask(&prefix, Asked::Trials { wanted }, done)));
        }
        let Ok((id, answer)) = answers.recv_timeout(POLL) else {
            interrupt.check()?;
            continue;
        };
        under_way.retain(|(other, _)| *other != id);
        left -= 1;
        progress.advance();
        match answer.sample {
            Ok((_, spent)) => points.push(SamplePoint::new(&source.key(id), &spent)),
            Err(error) => output::say(&format!("{}: {}", source.key(id), chain(&error))),
        }
    }
    Ok(points)
}
