//! A short mark of each op, so that a saved state can name the ops that changed.
//!
//! In: the ops of a plan. Out: a mark for each, such as `RandomCrop 1a2b3c4d`: its name and a hash of its parameters.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::Plan;
use crate::op::PlannedOp;

/// Upper limit of named differences. Beyond it only their number is given.
const MAX_NAMED: usize = 4;

/// Names and parameter hashes of the ops of a plan, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpMarks(Vec<String>);

impl OpMarks {
    /// The marks of a plan's ops.
    pub fn of(plan: &Plan) -> Self {
        // 32 bits are enough: a mark only improves a message, and fingerprints decide.
        let mark = |op: &PlannedOp| format!("{} {:08x}", op.name(), xxh3_64(op.fingerprint_text().as_bytes()) as u32);
        Self(plan.ops().iter().map(mark).collect())
    }

    /// Describes how the ops `now` differ from these. `None` if they do not.
    pub fn changes(&self, now: &Self) -> Option<String> {
        let name = |mark: &String| mark.split(' ').next().unwrap_or_default().to_owned();
        let mut found = Vec::new();
        for number in 0..self.0.len().max(now.0.len()) {
            let text = match (self.0.get(number), now.0.get(number)) {
                (Some(then), Some(now)) if then == now => continue,
                (Some(then), Some(now)) if name(then) == name(now) => {
                    format!("op {number}, {}, has other parameters", name(now))
                }
                (Some(then), Some(now)) => format!("op {number} was {} and is {}", name(then), name(now)),
                (Some(then), None) => format!("op {number}, {}, is missing", name(then)),
                (None, Some(now)) => format!("op {number}, {}, is new", name(now)),
                // Impossible: the number is below one of the lengths.
                (None, None) => continue,
            };
            found.push(text);
        }
        let more = found.len().saturating_sub(MAX_NAMED);
        found.truncate(MAX_NAMED);
        if more > 0 {
            found.push(format!("and {more} more"));
        }
        (!found.is_empty()).then(|| found.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_ops_are_named() {
        let marks = |names: &[&str]| OpMarks(names.iter().map(ToString::to_string).collect());
        let check = |then: &[&str], now: &[&str], expected: Option<&str>| {
            assert_eq!(marks(then).changes(&marks(now)).as_deref(), expected);
        };
        check(&["A 1", "B 2"], &["A 1", "B 2"], None);
        check(&["A 1", "B 2"], &["A 1", "B 3"], Some("op 1, B, has other parameters"));
        check(&["A 1", "B 2"], &["C 1"], Some("op 0 was A and is C; op 1, B, is missing"));
        check(&[], &["A 1"], Some("op 0, A, is new"));
        let many = ["A 1"; 7];
        check(
            &many,
            &[],
            Some("op 0, A, is missing; op 1, A, is missing; op 2, A, is missing; op 3, A, is missing; and 3 more"),
        );
    }
}
