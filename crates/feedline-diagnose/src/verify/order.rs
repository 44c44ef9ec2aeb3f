//! Law 3: strict order is the sampler's order, independent of timing.

use super::failures::first_unexplained;
use super::report::{Checked, Counterexample};
use super::subject::Subject;
use super::values::References;

/// Compares the samples that were delivered in strict order with the plan's sequence.
pub(super) fn check(subject: &Subject<'_>, references: &References) -> Checked {
    let (variant, stream) = references.strict();
    let key = |id| subject.key(id);
    let mut compared = 0;
    for epoch in &stream.epochs {
        let planned = subject.sequence(epoch.epoch, subject.samples());
        let expected: Vec<_> = planned.iter().map(|(place, request)| (place.position.0, request.id)).collect();
        let found: Vec<_> = epoch.samples.iter().map(|seen| seen.id).collect();
        compared += found.len();
        let Some(turn) = first_unexplained(&expected, &found, &epoch.replaced, &key) else { continue };
        let name = |id: Option<_>| id.map_or_else(|| "no sample".to_owned(), |id| format!("sample {:?}", key(id)));
        let should = expected.get(turn).map(|(_, id)| *id);
        return Err(Counterexample {
            epoch: Some(epoch.epoch.0),
            position: expected.get(turn).map(|(position, _)| *position),
            sample: should.map(key),
            expected: Some(name(should)),
            found: Some(name(found.get(turn).copied())),
            configurations: vec!["the plan's sequence".to_owned(), variant.name.clone()],
            ..Counterexample::of(3, "another sample is delivered than the plan's sequence has at this turn")
        }
        .into());
    }
    Ok(format!("{compared} samples were delivered at their turns in the plan's sequence"))
}
