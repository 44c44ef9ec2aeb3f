//! The plan as the cost model sees it.

use feedline_order::{SampleId, SampleRequest};

use super::Plan;
use crate::cost::{Size, Workload};
use crate::op::WorkHint;

impl Workload for Plan {
    fn stages(&self) -> usize {
        self.ops().len() + 1
    }

    fn may_search(&self) -> bool {
        self.loads_volumes()
    }

    fn samples(&self) -> u64 {
        self.source().len()
    }

    fn row_of(&self, id: SampleId) -> Option<u64> {
        self.source().ordinal_of(id).map(|ordinal| ordinal.0)
    }

    fn size_of(&self, row: u64) -> Size {
        let of = |numbers: Option<&[u64]>| numbers?.get(usize::try_from(row).ok()?).copied();
        // 0 elements means that the header was not understood.
        Size { bytes: of(self.known_sizes()), elements: of(self.known_elements()).filter(|&elements| elements > 0) }
    }

    fn has_sizes(&self) -> bool {
        self.known_elements().is_some()
    }

    fn work_hint(&self, op: usize, request: SampleRequest) -> WorkHint {
        self.chain().work_hint(op, request)
    }

    fn fingerprint(&self) -> String {
        self.fingerprints().values.to_string()
    }
}
