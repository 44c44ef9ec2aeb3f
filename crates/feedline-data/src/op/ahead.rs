//! Asks the rest of a chain what it will need of a sample, before its data is read.
//!
//! In: a place in the chain, a sample, and facts about its picture or volume. Out: the part that later ops need. Always true:
//! leaving out the rest does not change a byte of the result (law 8).

use std::sync::Arc;

use feedline_order::SampleRequest;

use super::{Facts, Need, OpChain, PlannedOp};
use crate::batch::Kind;
use crate::volume::{Foreground, Region};

/// The rest of a chain, for one sample.
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a> {
    pub(super) chain: &'a OpChain,
    /// The number of the first op that has not run yet.
    pub(super) first: usize,
    /// The number of the first op that is ignored, because the result of the op before it must be complete.
    pub(super) end: usize,
    pub(super) request: SampleRequest,
}

impl<'a> Ahead<'a> {
    /// The part of a picture that the next op on its field needs. `None` if it needs all of it, or if there is no such op.
    pub fn need(&self, field: &str, facts: Facts) -> Option<Need> {
        let Self { chain, first, end, request } = *self;
        let next = first + chain.ops().get(first..end)?.iter().position(|op| works_on(op, field))?;
        // Later ops see a picture that this op has changed, so the op is asked with their needs.
        let later = Self { first: next + 1, ..*self };
        chain.ops()[next].op().needs(&chain.draw(next, request), facts, &|result| later.need(field, result))
    }

    /// The region that later ops need of a volume with these sides. `None` if they need all of it. `foreground` returns the
    /// foreground of the label in the given field.
    pub fn region(
        &self,
        field: &str,
        sides: [usize; 3],
        foreground: &mut dyn FnMut(&str) -> Option<Arc<Foreground>>,
    ) -> Option<Region> {
        let (number, op) = self.next_moving_op(field)?;
        let draw = self.chain.draw(number, self.request);
        let mut of_label = || foreground(self.label_of(number, op)?);
        op.op().needs_region(&draw, sides, &mut of_label).filter(|region| region.is_inside(sides))
    }

    /// Whether a later op may ask for the foreground of a label in its current state.
    pub fn asks_for_foreground(&self, label: &str) -> bool {
        self.foreground_op(label).is_some()
    }

    /// Whether a later op will ask for the foreground of a label, with the draws of this sample.
    pub fn will_ask_for_foreground(&self, label: &str) -> bool {
        self.foreground_op(label)
            .is_some_and(|(number, op)| op.op().will_look_for_foreground(&self.chain.draw(number, self.request)))
    }

    /// The op that may ask for the foreground of a label in its current state.
    pub(super) fn foreground_op(&self, label: &str) -> Option<(usize, &'a PlannedOp)> {
        let asks = |&(number, op): &(usize, &'a PlannedOp)| {
            op.op().looks_for_foreground() && self.label_of(number, op) == Some(label)
        };
        self.next_moving_op(label).filter(asks)
    }

    /// The next op that moves elements of a field, for example a crop. `None` if an earlier op moves elements of another field that
    /// this op works on.
    fn next_moving_op(&self, field: &str) -> Option<(usize, &'a PlannedOp)> {
        let Self { chain, first, end, .. } = *self;
        let first_to_move = |name: &str| {
            let mut later = chain.ops()[..end].iter().enumerate().skip(first);
            later.find(|(_, op)| works_on(op, name) && !op.op().keeps_places())
        };
        let (number, op) = first_to_move(field)?;
        // An op that crops image and label together needs the same region of both, so neither may have been moved before.
        let are_unmoved =
            op.op().on().names().all(|name| first_to_move(name).is_some_and(|(other, _)| other == number));
        are_unmoved.then_some((number, op))
    }

    /// The label among the fields of op number `number`. `None` if an earlier op changes it, because the foreground of a changed
    /// label is not known yet.
    fn label_of(&self, number: usize, op: &'a PlannedOp) -> Option<&'a str> {
        // The loaded kind decides, because the foreground is known only for the label as it is stored.
        let is_label = |name: &str| matches!(self.chain.loaded().get(name), Some(Kind::Volume(kind)) if kind.is_label);
        let label = op.op().on().names().find(|name| is_label(name))?;
        let mut between = self.chain.ops()[self.first..number].iter().filter(|op| works_on(op, label));
        between.all(|op| op.op().keeps_labels()).then_some(label)
    }
}

/// Whether an op works on a field.
pub(super) fn works_on(op: &PlannedOp, field: &str) -> bool {
    op.op().on().names().any(|name| name == field)
}
