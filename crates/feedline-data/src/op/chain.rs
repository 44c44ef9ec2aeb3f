//! The ops of a plan in order, with their draws.
//!
//! In: a sample request. Out: the draws of each op, its work, and the part of the sample that it needs. All of this is known before
//! any data is read.

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
    reads_key: bool,
}

impl OpChain {
    /// A chain over the `loaded` fields, with draws from `seed`.
    pub(crate) fn new(ops: Vec<PlannedOp>, loaded: FieldTypes, seed: Seed) -> Self {
        let reads_key = ops.iter().any(|op| op.op().reads_key());
        Self { ops, loaded, seed, reads_key }
    }

    /// The ops in order.
    pub fn ops(&self) -> &[PlannedOp] {
        &self.ops
    }

    /// The fields before the first op.
    pub(crate) fn loaded(&self) -> &FieldTypes {
        &self.loaded
    }

    /// Whether an op reads the key of the sample. Whoever loads a sample then sets its field `key`.
    pub fn reads_key(&self) -> bool {
        self.reads_key
    }

    /// The random numbers of op number `op` for a sample.
    pub fn draw(&self, op: usize, request: SampleRequest) -> Draw {
        let key = StreamKey::new(self.seed, request.epoch, Purpose::Op(op as u32));
        Draw::new(key, request)
    }

    /// The ops after op number `op`, for one sample.
    pub fn ahead(&self, op: usize, request: SampleRequest) -> Ahead<'_> {
        self.ahead_from(op + 1, request)
    }

    /// Op number `first` and the ops after it, for one sample.
    pub fn ahead_from(&self, first: usize, request: SampleRequest) -> Ahead<'_> {
        Ahead { chain: self, first, end: self.ops.len(), request }
    }

    /// Predicts the work of op number `number` for a sample. The search for a foreground counts only if the op does it itself. If
    /// the foreground decides which region is loaded, loading searches for it.
    pub fn work_hint(&self, number: usize, request: SampleRequest) -> WorkHint {
        let (op, draw) = (self.ops[number].op(), self.draw(number, request));
        // Draws are computed, not stored, so the work is known before any data is read.
        if !op.fires(&draw) {
            return WorkHint::Idle;
        }
        let ahead = self.ahead_from(0, request);
        // The op asks for the foreground of the label as it is stored, so loading has found it already.
        let is_found_before = || {
            op.on()
                .names()
                .any(|name| ahead.foreground_op(name).is_some_and(|(foreground_op, _)| foreground_op == number))
        };
        if op.will_look_for_foreground(&draw) && !is_found_before() { WorkHint::Search } else { WorkHint::Usual }
    }

    /// The number of the op that decodes a loaded field, and how it decodes. `None` if another op uses the field first.
    pub fn decoder_of(&self, field: &str) -> Option<(usize, Decoding)> {
        let first = self.ops.iter().position(|op| works_on(op, field))?;
        Some((first, self.ops[first].op().decoding(field)?))
    }
}
