//! What costs are learnt of: the samples and ops of a plan, as far as costs look at them.

use feedline_order::{SampleId, SampleRequest};

use super::Size;
use crate::op::WorkHint;

/// Samples that go through stages.
pub trait Workload {
    /// Stages of a sample: its loading, then each op.
    fn stages(&self) -> usize;

    /// Whether a stage may have to search a label for its foreground.
    fn may_search(&self) -> bool;

    /// The number of samples.
    fn samples(&self) -> u64;

    /// The place of a sample in the source.
    fn row_of(&self, id: SampleId) -> Option<u64>;

    /// How large the sample at a place is, as far as somebody has looked.
    fn size_of(&self, row: u64) -> Size;

    /// Whether somebody has looked how large samples are.
    fn has_sizes(&self) -> bool;

    /// What op number `op` has to do for a sample.
    fn work_hint(&self, op: usize, request: SampleRequest) -> WorkHint;

    /// By what samples and ops are known: costs of others are of no use.
    fn fingerprint(&self) -> String;
}
