//! Runs the checks of all laws, one after the other.

use std::sync::Arc;
use std::time::Instant;

use feedline_data::plan::Plan;
use feedline_engine::machine::Machine;

use super::report::{Checked, Ended, Finding, LawReport, Verdict, Verification};
use super::subject::{Extent, Subject, VerifyError, Watch};
use super::values::References;
use super::{displacement, failures, fusion, offloading, order, ranks, resume, values};

/// One check of a law.
struct Check {
    law: u8,
    name: &'static str,
    run: LawCheck,
}

type LawCheck = fn(&mut Subject<'_>, &References, &mut Vec<Finding>) -> Checked;

/// The checks in their order. Law 1 comes first: if bytes change from run to run, the other checks do not compare bytes.
const CHECKS: [Check; 8] = [
    Check { law: 1, name: "same stream", run: |subject, references, _| values::check(subject, references) },
    Check { law: 2, name: "exactly once", run: |subject, references, _| ranks::check(subject, references) },
    Check { law: 3, name: "strict order", run: |subject, references, _| order::check(subject, references) },
    Check { law: 2, name: "displacement bound", run: |subject, _, _| displacement::check(subject) },
    Check { law: 4, name: "exact resume", run: |subject, references, _| resume::check(subject, references) },
    Check { law: 6, name: "bad samples", run: |subject, references, _| failures::check(subject, references) },
    Check {
        law: 8,
        name: "fused = unfused",
        run: |subject, references, findings| fusion::check(subject, references, findings),
    },
    Check { law: 1, name: "offloaded = local", run: |subject, references, _| offloading::check(subject, references) },
];

/// Checks the laws on a plan. Fails only if a check cannot run. A broken law is a result.
pub fn verify(
    plan: &Arc<Plan>,
    extent: Extent,
    machine: &Machine,
    watch: &dyn Watch,
) -> Result<Verification, VerifyError> {
    let plan = Arc::clone(plan);
    let mut subject = Subject { plan, extent, machine: machine.clone(), watch, unstable: None };
    if subject.batches() == 0 {
        return Err(VerifyError::Nothing);
    }
    let mut start = Instant::now();
    watch.begins(CHECKS[0].name, 0, CHECKS.len());
    // The time of the reference streams counts for the first check.
    let references = values::run_references(&subject)?;
    let mut findings = failures::findings(&subject, &references);
    let mut laws = Vec::new();
    for (number, Check { law, name, run }) in CHECKS.iter().enumerate() {
        watch.begins(name, number, CHECKS.len());
        let (verdict, detail, counterexample) = match run(&mut subject, &references, &mut findings) {
            Ok(detail) => (Verdict::Pass, detail, None),
            Err(Ended::Broken(broken)) => (Verdict::Fail, broken.problem.clone(), Some(broken)),
            Err(Ended::NotApplicable(why)) => (Verdict::NotApplicable, why, None),
            Err(Ended::Failed(error)) => return Err(error),
        };
        laws.push(LawReport {
            law: *law,
            name,
            verdict,
            detail,
            counterexample,
            seconds: start.elapsed().as_secs_f64(),
        });
        start = Instant::now();
    }
    Ok(Verification {
        epochs: extent.epochs,
        samples: subject.samples(),
        samples_of_epoch: subject.plan.share(0).samples(),
        passed: laws.iter().all(|law| law.verdict != Verdict::Fail),
        laws,
        findings,
    })
}
