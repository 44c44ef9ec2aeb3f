//! What the cost model needs to know of a plan: its samples and ops.

use feedline_order::{SampleId, SampleRequest};

use super::Size;
use crate::op::WorkHint;

/// Samples that go through stages.
pub trait Workload {
    /// Number of stages: loading, then each op.
    fn stages(&self) -> usize;

    /// Whether a stage may have to search a label for its foreground.
    fn may_search(&self) -> bool;

    /// The number of samples.
    fn samples(&self) -> u64;

    /// The place of a sample in the source.
    fn row_of(&self, id: SampleId) -> Option<u64>;

    /// The size of the sample at `row`, as far as it was looked up.
    fn size_of(&self, row: u64) -> Size;

    /// Whether sizes were looked up.
    fn has_sizes(&self) -> bool;

    /// The predicted work of op number `op` for a sample.
    fn work_hint(&self, op: usize, request: SampleRequest) -> WorkHint;

    /// Identifies samples and ops. Costs of another workload are useless.
    fn fingerprint(&self) -> String;
}
