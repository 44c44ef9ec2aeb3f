//! Law 3: strict order is the sampler's order, whatever runs when.

use super::failures::unnamed;
use super::report::{Checked, Counterexample};
use super::subject::Subject;
use super::values::Looked;

/// Compares what came in strict order with what the sequence of the plan says.
pub(super) fn check(subject: &Subject<'_>, looked: &Looked) -> Checked {
    let (variant, stream) = looked.strict();
    let key = |id| subject.key(id);
    let mut compared = 0;
    for epoch in &stream.epochs {
        let planned = subject.sequence(epoch.epoch, subject.samples());
        let expected: Vec<_> = planned.iter().map(|(place, wanted)| (place.position.0, wanted.id)).collect();
        let found: Vec<_> = epoch.samples.iter().map(|seen| seen.id).collect();
        compared += found.len();
        let Some(turn) = unnamed(&expected, &found, &epoch.replaced, &key) else { continue };
        let name = |id: Option<_>| id.map_or_else(|| "no sample".to_owned(), |id| format!("sample {:?}", key(id)));
        let should = expected.get(turn).map(|(_, id)| *id);
        return Err(Counterexample {
            epoch: Some(epoch.epoch.0),
            position: expected.get(turn).map(|(position, _)| *position),
            sample: should.map(key),
            expected: Some(name(should)),
            found: Some(name(found.get(turn).copied())),
            configurations: vec!["the plan's sequence".to_owned(), variant.name.clone()],
            ..Counterexample::of(3, "another sample comes than the sequence of the plan says")
        }
        .into());
    }
    Ok(format!("{compared} samples came at the turns that the plan's sequence gives them"))
}
