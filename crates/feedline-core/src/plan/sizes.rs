//! How many bytes samples have as they are stored: known before their data is touched, and a sign of what they cost.

use super::Plan;
use crate::engine::{Cancel, Cancelled};
use crate::source::Origin;

impl Plan {
    /// Bytes of each sample, by ordinal; what cannot be opened counts as one. Opens each file once.
    pub fn sizes(&self) -> &[u64] {
        self.sizes.get_or_init(|| {
            let sizes: Result<_, Cancelled> = self.look_up_sizes(&Cancel::default());
            sizes.expect("nobody cancels it")
        })
    }

    /// The same, unless it is cancelled before the end or a peer would have to be asked for each.
    pub fn find_sizes(&self, cancel: &Cancel) {
        if self.sizes.get().is_none()
            && self.is_near()
            && let Ok(sizes) = self.look_up_sizes(cancel)
        {
            self.sizes.get_or_init(|| sizes);
        }
    }

    /// The same, if somebody has found it before.
    pub fn known_sizes(&self) -> Option<&[u64]> {
        self.sizes.get().map(Vec::as_slice)
    }

    fn is_near(&self) -> bool {
        let source = self.source();
        let is_near = |field: &str| match source.origin(source.id_at(0), field) {
            Origin::Whole { store, .. } => store.is_near(),
            Origin::Part { .. } | Origin::Made => true,
        };
        !source.is_empty() && self.loaded().iter().all(|(field, _)| is_near(field))
    }

    fn look_up_sizes(&self, cancel: &Cancel) -> Result<Vec<u64>, Cancelled> {
        let source = self.source();
        let bytes_of = |id, field: &str| match source.origin(id, field).open() {
            Ok(Some((_, range))) => range.end - range.start,
            Ok(None) | Err(_) => 1,
        };
        let of_sample = |ordinal| {
            cancel.check()?;
            let id = source.id_at(ordinal);
            Ok(self.loaded().iter().map(|(field, _)| bytes_of(id, field)).sum())
        };
        (0..source.len()).map(of_sample).collect()
    }
}
