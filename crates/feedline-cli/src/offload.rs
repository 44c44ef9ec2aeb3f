//! `feedline offload`: measures how much a storage server can speed up a plan.
//!
//! In: a plan whose source is on a storage server. Out: an [`Offloading`]: the decisions of the advisor, samples in all forms, the
//! predicted and measured throughput without and with the server, and plots on request.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use anyhow::{Context as _, Result, bail};
use feedline_data::failure::chain;
use feedline_data::plan::{Document, Plan, Policy, Registry};
use feedline_data::store::PeerRequest;
use feedline_engine::offload::{OffloadReport, SamplePoint};
use feedline_order::{Epoch, Occurrence, Ordinal, SampleRequest};
use serde::Serialize;

use crate::arguments::OffloadArguments;
use crate::interrupt::{Interrupt, POLL};
use crate::plot::Drawing;
use crate::progress::Progress;
use crate::{output, plan};

mod plots;

/// Upper limit of requests in flight.
const MAX_IN_FLIGHT: usize = 8;
/// Fraction of a run that is ignored at its start. The advisor makes its decisions in this time.
const WARM_UP: f64 = 0.5;

/// The effect of a storage server on a plan.
#[derive(Debug, Serialize)]
pub(crate) struct Offloading {
    plan: PathBuf,
    ops: Vec<String>,
    /// Measured samples per second, without and with the server.
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
        writeln!(f, "  samples sent in smaller form    {:6.1} %", 100.0 * benefit_share)?;
        let fewer = stored_bytes / sent_bytes;
        writeln!(
            f,
            "  bytes of a sample               {stored_bytes:.0} stored, {sent_bytes:.0} sent: {fewer:.2}x fewer"
        )?;
        writeln!(f, "  CPU time of the server          {:.3} ms per sample", 1e3 * storage_seconds)?;
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

/// Measures a plan without and with the server.
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
        bail!("its samples do not come from a storage server; the address of such a source begins with feedline://");
    }
    let seconds = typed.seconds.max(1.0);
    let progress = Progress::new("seconds", (2.0 * seconds) as u64);
    // The same plan without offloading, as the reference.
    let raw = Document {
        config: feedline_data::plan::RunConfig { offload: Policy::None, ..document.config.clone() },
        ..document
    };
    let (measured_before, _) =
        run(plan::open(raw, registry, interrupt)?, typed.step_ms, seconds, &progress, interrupt)?;
    let (measured_after, report) = run(Arc::clone(&opened), typed.step_ms, seconds, &progress, interrupt)?;
    drop(progress);
    let mut report = report.context("the storage server has prepared no samples")?;
    report.points = trials(&opened, typed.samples, interrupt)?;
    let ops = opened.ops().iter().map(|op| op.name().to_string()).collect();
    Ok(Offloading { plan: typed.plan.clone(), ops, measured_before, measured_after, report })
}

/// Runs a plan for some time. Returns its speed after the warm-up, and the advisor's report.
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
                // The first batch after the warm-up starts the clock, so it does not count itself.
                samples += if counted.is_some() { batch.len as u64 } else { 0 };
                counted.get_or_insert_with(Instant::now);
            }
            // The bar counts whole seconds. A slow batch may span several.
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

/// Requests samples, spread evenly over the source, in all forms.
fn trials(plan: &Arc<Plan>, count: u64, interrupt: &Interrupt<'_>) -> Result<Vec<SamplePoint>> {
    let (source, prefix) = (plan.source(), Arc::new(plan.prefix()?));
    let peer = source.peer().context("the storage server is gone")?;
    let count = count.clamp(1, source.len());
    let progress = Progress::new("samples", count);
    // Evenly spread over the source, because neighbours are often similar.
    let ids: Vec<_> = (0..count).map(|number| source.id_at(Ordinal(number * source.len() / count))).collect();
    let (sender, answers) = mpsc::channel();
    let (mut points, mut in_flight, mut next) = (Vec::new(), Vec::new(), ids.iter());
    let mut remaining = ids.len();
    while remaining > 0 {
        while in_flight.len() < MAX_IN_FLIGHT
            && let Some(&id) = next.next()
        {
            let (sender, request) = (sender.clone(), SampleRequest { id, epoch: Epoch(0), occurrence: Occurrence(0) });
            // If the receiver is gone, the answer is not needed.
            let done = Box::new(move |answer| drop(sender.send((id, answer))));
            in_flight.push((id, peer.ask(&prefix, PeerRequest::Trials { request }, done)));
        }
        let Ok((id, answer)) = answers.recv_timeout(POLL) else {
            interrupt.check()?;
            continue;
        };
        // Dropping an entry drops its fetch, which is complete by now.
        in_flight.retain(|(other, _)| *other != id);
        remaining -= 1;
        progress.advance();
        match answer.sample {
            Ok((_, spent)) => points.push(SamplePoint::new(&source.key(id), &spent)),
            Err(error) => output::say(&format!("{}: {}", source.key(id), chain(&error))),
        }
    }
    Ok(points)
}
