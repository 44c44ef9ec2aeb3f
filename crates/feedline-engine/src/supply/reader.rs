//! Reads the bytes of one sample: from what was fetched ahead, otherwise from the store.

use std::ops::Range;
use std::sync::Arc;

use feedline_data::memory::Cancel;
use feedline_data::store::{Object, StoreError, read_waiting};
use feedline_order::Epoch;

use super::read_ahead::{Booking, ReadTarget};
use crate::metrics::Metrics;

/// Reads the bytes of one sample and counts them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    /// Bytes that were fetched ahead.
    pub parts: &'a [Part],
    /// The epoch of the sample.
    pub epoch: Epoch,
    pub metrics: &'a Metrics,
}

/// Bytes that were fetched ahead for one or more tasks.
pub(super) type Part = Arc<Fetched>;

/// A fetched range or sample.
#[derive(Debug)]
pub(super) struct Fetched {
    pub target: ReadTarget,
    pub bytes: Result<Vec<u8>, Arc<StoreError>>,
    pub _booking: Booking,
}

impl Reader<'_> {
    /// Fills `target` from `offset` on.
    pub(super) fn read_at(
        &self,
        object: &dyn Object,
        offset: u64,
        target: &mut [u8],
        cancel: &Cancel,
    ) -> Result<(), StoreError> {
        self.metrics.read.time(|| self.fill(object, offset, target, cancel))?;
        self.metrics.read.add_bytes(target.len());
        Ok(())
    }

    fn fill(&self, object: &dyn Object, offset: u64, target: &mut [u8], cancel: &Cancel) -> Result<(), StoreError> {
        let range = offset..offset.saturating_add(target.len() as u64);
        if let Some(bytes) = self.parts.iter().find_map(|part| part.bytes_of(object, &range)) {
            target.copy_from_slice(bytes?);
            return Ok(());
        }
        let Some(remote) = object.remote() else { return object.read_at(offset, target) };
        read_waiting(remote, offset, target, cancel, |traffic| self.metrics.traffic.add(self.epoch, traffic))
    }
}

/// Whether two handles refer to the same object, which may have been opened twice.
fn is_same(one: &dyn Object, other: &dyn Object) -> bool {
    let version = |object: &dyn Object| (object.len(), object.modified_nanoseconds());
    // Comparing addresses first avoids building two strings in the usual case.
    std::ptr::addr_eq(one, other) || (version(one) == version(other) && one.address() == other.address())
}

impl Fetched {
    /// The bytes of a range, if they were fetched.
    fn bytes_of(&self, object: &dyn Object, range: &Range<u64>) -> Option<Result<&[u8], StoreError>> {
        let Self { target: ReadTarget::Range { object: of, range: fetched }, bytes, .. } = self else { return None };
        if !is_same(&**of, object) || range.start < fetched.start || range.end > fetched.end {
            return None;
        }
        let place = (range.start - fetched.start) as usize..(range.end - fetched.start) as usize;
        Some(match bytes {
            Ok(bytes) => Ok(bytes.get(place)?),
            Err(error) => Err(Arc::clone(error).into()),
        })
    }
}
