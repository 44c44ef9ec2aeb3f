//! What the rest of a chain will need of a sample, asked before the data is touched.
//!
//! In: a place in the chain, a sample, facts of its picture. Out: the part that is needed from there on. Always true: what is
//! not needed does not change a byte of what is delivered (law 8).

use super::Plan;
use crate::op::{Decoding, Facts, Need};
use crate::supply::Wanted;

/// The ops behind one op of a chain, for one sample.
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a> {
    plan: &'a Plan,
    first: usize,
    wanted: Wanted,
}

impl Ahead<'_> {
    /// What the next op on a field needs of its picture, if not all of it.
    pub fn need(&self, field: &str, facts: Facts) -> Option<Need> {
        let Self { plan, first, .. } = *self;
        let works_on = |op: &super::PlannedOp| op.op().on().names().any(|name| name == field);
        let next = first + plan.ops()[first..].iter().position(works_on)?;
        plan.ops()[next].op().needs(&plan.draw(next, self.wanted), facts)
    }
}

impl Plan {
    /// What comes behind op number `op`, for one sample.
    pub fn ahead(&self, op: usize, wanted: Wanted) -> Ahead<'_> {
        self.ahead_from(op + 1, wanted)
    }

    /// Op number `first` and what comes behind it, for one sample.
    pub fn ahead_from(&self, first: usize, wanted: Wanted) -> Ahead<'_> {
        Ahead { plan: self, first, wanted }
    }

    /// The op that decodes a loaded field, and how, if no other op looks at the field before.
    pub fn decoder_of(&self, field: &str) -> Option<(usize, Decoding)> {
        let works_on = |op: &super::PlannedOp| op.op().on().names().any(|name| name == field);
        let first = self.ops().iter().position(works_on)?;
        Some((first, self.ops()[first].op().decoding(field)?))
    }
}
