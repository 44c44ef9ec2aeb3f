//! The ops of a plan, one behind the other, with the draws of each.
//!
//! In: a sample's number. Out: what each op will draw, do and need for it, known before any data is touched.

use feedline_order::random::{Purpose, StreamKey};
use feedline_order::{Draw, SampleRequest, Seed};

use super::ahead::works_on;
use super::{Ahead, Decoding, PlannedOp, WorkHint};
use crate::batch::FieldTypes;

/// The ops of a plan.
#[derive(Debug)]
pub struct OpChain {
    ops: Vec<PlannedOp>,
    loaded: FieldTypes,
    seed: Seed,
}

impl OpChain {
    /// A chain over the fields that are `loaded`, whose draws follow from `seed`.
    pub(crate) fn new(ops: Vec<PlannedOp>, loaded: FieldTypes, seed: Seed) -> Self {
        Self { ops, loaded, seed }
    }

    /// The ops in order.
    pub fn ops(&self) -> &[PlannedOp] {
        &self.ops
    }

    /// The fields that come in.
    pub(crate) fn loaded(&self) -> &FieldTypes {
        &self.loaded
    }

    /// The random numbers of op number `op` for a sample.
    pub fn draw(&self, op: usize, request: SampleRequest) -> Draw {
        let key = StreamKey::new(self.seed, request.epoch, Purpose::Op(op as u32));
        Draw::new(key, request.id, request.occurrence)
    }

    /// What comes behind op number `op`, for one sample.
    pub fn ahead(&self, op: usize, request: SampleRequest) -> Ahead<'_> {
        self.ahead_from(op + 1, request)
    }

    /// Op number `first` and what comes behind it, for one sample.
    pub fn ahead_from(&self, first: usize, request: SampleRequest) -> Ahead<'_> {
        Ahead { chain: self, first, request }
    }

    /// What op number `number` has to do for a sample. A foreground that is asked for before the label is read is found
    /// while it is loaded.
    pub fn work_hint(&self, number: usize, request: SampleRequest) -> WorkHint {
        let (op, draw) = (self.ops[number].op(), self.draw(number, request));
        if !op.fires(&draw) {
            return WorkHint::Idle;
        }
        let ahead = self.ahead_from(0, request);
        let is_found_before =
            || op.on().names().any(|name| ahead.asker(name).is_some_and(|(asker, _)| asker == number));
        if op.will_look_for_foreground(&draw) && !is_found_before() { WorkHint::Search } else { WorkHint::Usual }
    }

    /// The op that decodes a loaded field, and how, if no other op looks at the field before.
    pub fn decoder_of(&self, field: &str) -> Option<(usize, Decoding)> {
        let first = self.ops.iter().position(|op| works_on(op, field))?;
        Some((first, self.ops[first].op().decoding(field)?))
    }
}
