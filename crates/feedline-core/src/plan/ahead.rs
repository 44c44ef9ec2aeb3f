//! What the rest of a chain will need of a sample, asked before the data is touched.
//!
//! In: a place in the chain, a sample, facts of its picture. Out: the part that is needed from there on. Always true: what is
//! not needed does not change a byte of what is delivered (law 8).

use std::sync::Arc;

use super::{Plan, PlannedOp};
use crate::batch::Kind;
use crate::cost::Effort;
use crate::op::{Decoding, Facts, Need};
use crate::supply::Wanted;
use crate::volume::{Foreground, Region};

/// The ops behind one op of a chain, for one sample.
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a> {
    plan: &'a Plan,
    first: usize,
    wanted: Wanted,
}

impl<'a> Ahead<'a> {
    /// What the next op on a field needs of its picture, if not all of it.
    pub fn need(&self, field: &str, facts: Facts) -> Option<Need> {
        let Self { plan, first, .. } = *self;
        let next = first + plan.ops()[first..].iter().position(|op| works_on(op, field))?;
        plan.ops()[next].op().needs(&plan.draw(next, self.wanted), facts)
    }

    /// The region of a volume of these sides that is needed, if not all of it. `foreground` finds that of a label by its
    /// field.
    pub fn region(
        &self,
        field: &str,
        sides: [usize; 3],
        foreground: &mut dyn FnMut(&str) -> Option<Arc<Foreground>>,
    ) -> Option<Region> {
        let (number, op) = self.next_to_move(field)?;
        let draw = self.plan.draw(number, self.wanted);
        let mut of_label = || foreground(self.label_of(number, op)?);
        op.op().needs_region(&draw, sides, &mut of_label).filter(|region| region.is_inside(sides))
    }

    /// Whether the foreground of a label, as it is here, may be asked for.
    pub fn asks_for_foreground(&self, label: &str) -> bool {
        self.asker(label).is_some()
    }

    /// Whether it will be, with the draws of this sample.
    pub fn will_ask_for_foreground(&self, label: &str) -> bool {
        self.asker(label)
            .is_some_and(|(number, op)| op.op().will_look_for_foreground(&self.plan.draw(number, self.wanted)))
    }

    /// The op that may ask for the foreground of a label as it is here.
    fn asker(&self, label: &str) -> Option<(usize, &'a PlannedOp)> {
        let asks = |&(number, op): &(usize, &'a PlannedOp)| {
            op.op().looks_for_foreground() && self.label_of(number, op) == Some(label)
        };
        self.next_to_move(label).filter(asks)
    }

    /// The next op on a field that moves elements, if all its fields come to it unmoved.
    fn next_to_move(&self, field: &str) -> Option<(usize, &'a PlannedOp)> {
        let Self { plan, first, .. } = *self;
        let moves = |name: &str| {
            let mut behind = plan.ops().iter().enumerate().skip(first);
            behind.find(|(_, op)| works_on(op, name) && !op.op().keeps_places())
        };
        let (number, op) = moves(field)?;
        let come_unmoved = op.op().on().names().all(|name| moves(name).is_some_and(|(other, _)| other == number));
        come_unmoved.then_some((number, op))
    }

    /// The label of op number `number`, if it comes to it as it is here: the foreground of another one is not known before.
    fn label_of(&self, number: usize, op: &'a PlannedOp) -> Option<&'a str> {
        let is_label = |name: &str| matches!(self.plan.loaded().get(name), Some(Kind::Volume(kind)) if kind.is_label);
        let label = op.op().on().names().find(|name| is_label(name))?;
        let mut between = self.plan.ops()[self.first..number].iter().filter(|op| works_on(op, label));
        between.all(|op| op.op().keeps_labels()).then_some(label)
    }
}

fn works_on(op: &PlannedOp, field: &str) -> bool {
    op.op().on().names().any(|name| name == field)
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

    /// What op number `number` has to do for a sample. A foreground that is asked for before the label is read is found
    /// while it is loaded.
    pub fn effort(&self, number: usize, wanted: Wanted) -> Effort {
        let (op, draw) = (self.ops()[number].op(), self.draw(number, wanted));
        if !op.fires(&draw) {
            return Effort::Idle;
        }
        let ahead = self.ahead_from(0, wanted);
        let is_found_before =
            || op.on().names().any(|name| ahead.asker(name).is_some_and(|(asker, _)| asker == number));
        if op.will_look_for_foreground(&draw) && !is_found_before() { Effort::Search } else { Effort::Usual }
    }

    /// The op that decodes a loaded field, and how, if no other op looks at the field before.
    pub fn decoder_of(&self, field: &str) -> Option<(usize, Decoding)> {
        let first = self.ops().iter().position(|op| works_on(op, field))?;
        Some((first, self.ops()[first].op().decoding(field)?))
    }
}
