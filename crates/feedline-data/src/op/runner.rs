//! Runs the ops of a chain on one sample.
//!
//! In: a sample at some cut of the chain. Out: the sample at a later cut, or the op that failed and why. All code that runs ops
//! does so here: preparer threads, storage servers, and the definition that `feedline verify` compares with.
//!
//! Always true: nothing here counts, measures, logs or caches. A [`ChainObserver`] does.

use std::ops::Range;

use feedline_order::SampleRequest;

use super::{OpChain, OpError};
use crate::batch::Sample;
use crate::memory::Workspace;

/// Observes the ops of a chain as they run.
pub trait ChainObserver {
    /// Op number `op` is about to change the sample.
    fn before(&mut self, _op: usize, _sample: &Sample<'_>, _workspace: &mut Workspace) {}

    /// Op number `op` has changed the sample.
    fn after(&mut self, _op: usize, _sample: &Sample<'_>) {}
}

/// No observer.
impl ChainObserver for () {}

/// Which ops run, and which of them compute their whole result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpRange {
    /// The ops.
    pub ops: Range<usize>,
    /// Of these, the ops that must not look ahead, because their whole result is needed.
    pub whole: Range<usize>,
}

/// The op that failed, and why.
#[derive(Debug)]
pub struct FailedOp {
    /// Its number in the chain.
    pub op: usize,
    /// The cause.
    pub cause: OpError,
}

impl OpChain {
    /// Runs ops on a sample.
    pub fn run(
        &self,
        range: &OpRange,
        request: SampleRequest,
        sample: &mut Sample<'_>,
        workspace: &mut Workspace,
        observer: &mut impl ChainObserver,
    ) -> Result<(), FailedOp> {
        for number in range.ops.clone() {
            observer.before(number, sample, workspace);
            let (op, draw) = (self.ops()[number].op(), self.draw(number, request));
            // A result that is cached or sent must be complete, so the op may not leave out what later ops skip.
            let applied = if range.whole.contains(&number) {
                op.apply(sample, &draw, workspace)
            } else {
                let mut ahead = self.ahead(number, request);
                if number < range.whole.start {
                    // What a complete result depends on is needed, whatever later ops leave out of that result.
                    ahead.end = range.whole.end;
                }
                op.apply_ahead(sample, &draw, &ahead, workspace)
            };
            applied.map_err(|cause| FailedOp { op: number, cause })?;
            observer.after(number, sample);
        }
        Ok(())
    }
}
