//! Law 8: fused and unfused ops give the same bytes.
//!
//! Fused: the engine reads and decodes only what a crop needs, with a seek index and SIMD kernels. Unfused: the engine without
//! both, and each sample by definition, one op after the other on whole fields.

use feedline_data::plan::{SeekIndexUse, Workers};
use feedline_order::ShareIndex;

use super::compare::Pair;
use super::definition::Definition;
use super::report::{Checked, Counterexample, Ended, Finding};
use super::stream::{At, Begin, collect, contents_at};
use super::subject::Subject;
use super::values::References;

const PROBLEM: &str = "fused and unfused ops do not give the same bytes";

/// Compares the optimised engine with the plain one and with the definition. Adds problems of the data to `findings`.
pub(super) fn check(subject: &Subject<'_>, references: &References, findings: &mut Vec<Finding>) -> Checked {
    if let Some(who) = &subject.unstable {
        return Err(Ended::NotApplicable(format!("bytes change by themselves: {who}")));
    }
    if subject.plan.ops().is_empty() {
        return Err(Ended::NotApplicable("the plan has no ops".to_owned()));
    }
    let strict = &references.strict().0;
    let fused = strict.with("fused, SIMD", |_, config| {
        (config.seek_index, config.simd, config.cache) = (SeekIndexUse::Auto, true, None);
        config.num_workers = Workers::Count(2);
    });
    let unfused = fused.with("no seek index, no SIMD", |_, config| {
        (config.seek_index, config.simd) = (SeekIndexUse::Never, false);
    });
    // Builds the seek indexes that are missing, and uses them.
    let (expected, snapshot) = collect(subject, &fused)?;
    let found = collect(subject, &unfused)?.0;
    if let Some(difference) = subject.differ(&found, &expected) {
        let pair = Pair { law: 8, problem: PROBLEM, expected: &unfused, found: &fused, fields: &expected.fields };
        return Err(subject.explain(&pair, difference)?.into());
    }
    let used = snapshot.seek_index.used;
    let engine = format!("same bytes with seek indexes ({used} samples used one) and SIMD as without");
    // Approximate decoding depends on the size that the crop needs, so it has no definition independent of fusion.
    if subject.plan.is_approximate() {
        let why = "decoding is approximate, so the definition is not compared";
        return Ok(format!("{engine}; {why}"));
    }
    let (definition, epoch) = (Definition::new(&subject.plan), &expected.epochs[0]);
    let (mut compared, mut refused) = (0, 0);
    for (turn, (_, request)) in subject.sequence(epoch.epoch, subject.samples()).iter().enumerate() {
        subject.check()?;
        // A substitute for a bad sample is not compared.
        let Some(seen) = epoch.samples.get(turn).filter(|seen| seen.id == request.id) else { continue };
        let fields = match definition.prepare(*request) {
            Ok(fields) => fields,
            // The engine may deliver a damaged sample, if the damage is outside of the part that the ops need.
            Err(problem) => {
                refused += 1;
                let path = subject.plan.source().address(request.id).map(|(path, _)| path);
                findings.push(Finding {
                    sample: subject.key(request.id),
                    path,
                    problem: format!("as a whole: {problem}"),
                });
                continue;
            }
        };
        compared += 1;
        for (number, name) in expected.fields.iter().enumerate() {
            // Fields that the engine adds itself, such as the key, have no definition.
            let Some((_, content)) = fields.iter().find(|(field, _)| **field == **name) else { continue };
            // The stream was only hashed. If the hashes differ, the sample is prepared again for its bytes.
            if content.digest() == seen.digests[number] {
                continue;
            }
            let delivered = contents_at(subject, &fused, Begin::Epoch(epoch.epoch), At::Turn(turn as u64))?;
            let difference = delivered.get(number).and_then(|delivered| content.first_difference(delivered));
            let mut counterexample = Counterexample {
                epoch: Some(epoch.epoch.0),
                position: Some(subject.plan.share(0).place(ShareIndex(turn as u64)).position.0),
                sample: Some(subject.key(request.id)),
                field: Some(name.to_string()),
                configurations: vec!["op by op on whole fields".to_owned(), fused.name],
                ..Counterexample::of(8, PROBLEM)
            };
            if let Some(difference) = difference {
                counterexample.differ_at(difference);
            }
            return Err(Ended::from(counterexample));
        }
    }
    let refused = if refused == 0 { String::new() } else { format!(", {refused} could not be prepared that way") };
    Ok(format!("{engine}; {compared} samples as op by op on whole fields{refused}"))
}
