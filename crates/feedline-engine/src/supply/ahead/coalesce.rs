//! What tasks want from peers, as fetches; ranges that lie close together become one.
//!
//! In: what tasks want. Out: fetches that cover it, each with the tasks it is for. Always true: what a task wants lies in a
//! fetch of its own; a fetch has at most [`GAP_BYTES`] between two ranges that nobody wants.

use std::ops::Range;
use std::sync::Arc;

use feedline_data::store::{Form, Object};
use feedline_order::{Epoch, SampleRequest};

use super::super::Reading;

/// A place in the stream; see [`crate::supply::Task::need`].
pub(super) type Need = crate::slot_ref::SlotRef;

/// Bytes between two ranges that are fetched rather than asked around: headers of a tar file and a label. More would save
/// requests and cost bytes, where many samples of a shard are known ahead.
const GAP_BYTES: u64 = 4 << 10;
/// Longer fetches are not made of several ranges: what is needed first would wait for the rest.
const MOST_BYTES: u64 = 1 << 20;

/// What can be had from a peer.
#[derive(Clone, Debug)]
pub(in super::super) enum Cargo {
    /// A range of an object.
    Range { object: Arc<dyn Object>, range: Range<u64> },
    /// A sample that the peer prepares, of about so many bytes.
    Sample { wanted: SampleRequest, form: Form, bytes: u64, reading: Reading },
}

impl Cargo {
    /// Bytes that will come, as far as is known before.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Range { range, .. } => range.end.saturating_sub(range.start),
            Self::Sample { bytes, .. } => *bytes,
        }
    }

    /// The object and the place in it by which cargo is put next to cargo that it may be fetched with.
    fn place(&self) -> (usize, u64, u64) {
        match self {
            Self::Range { object, range } => (Arc::as_ptr(object).cast::<()>().addr(), range.start, range.end),
            Self::Sample { wanted, .. } => (0, wanted.id.0, wanted.occurrence.0.into()),
        }
    }

    /// What covers both, if that is sensible.
    fn with(&self, other: &Self) -> Option<Self> {
        let (Self::Range { object, range }, Self::Range { object: also, range: next }) = (self, other) else {
            return None;
        };
        let end = range.end.max(next.end);
        let is_close = Arc::ptr_eq(object, also) && next.start <= range.end.saturating_add(GAP_BYTES);
        let is_short = end - range.start <= MOST_BYTES || end == range.end;
        (is_close && is_short).then(|| Self::Range { object: Arc::clone(object), range: range.start..end })
    }
}

/// Something that a task wants.
#[derive(Debug)]
pub(super) struct Wish {
    pub task: u64,
    pub need: Need,
    pub epoch: Epoch,
    pub cargo: Cargo,
}

/// What is fetched for some tasks.
#[derive(Debug)]
pub(super) struct Flight {
    pub cargo: Cargo,
    pub epoch: Epoch,
    /// That of the task that needs it first.
    pub need: Need,
    pub tasks: Vec<u64>,
}

impl Flight {
    fn new(wish: Wish) -> Self {
        let Wish { task, need, epoch, cargo } = wish;
        Self { cargo, epoch, need, tasks: vec![task] }
    }

    /// Takes a wish along, if that is sensible.
    fn take(&mut self, wish: &Wish) -> bool {
        let Some(both) = self.cargo.with(&wish.cargo).filter(|_| self.epoch == wish.epoch) else { return false };
        self.cargo = both;
        self.need = self.need.min(wish.need);
        if !self.tasks.contains(&wish.task) {
            self.tasks.push(wish.task);
        }
        true
    }
}

/// Makes as few fetches of the wishes as is sensible.
pub(super) fn coalesce(mut wishes: Vec<Wish>) -> Vec<Flight> {
    wishes.sort_by_key(|wish| {
        let (object, start, end) = wish.cargo.place();
        (object, wish.epoch, start, end)
    });
    let mut flights: Vec<Flight> = Vec::with_capacity(wishes.len());
    for wish in wishes {
        if !flights.last_mut().is_some_and(|last| last.take(&wish)) {
            flights.push(Flight::new(wish));
        }
    }
    flights
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::store::{DiskStore, Store as _};

    /// Flights as range and tasks, for wishes of one object each given as task and range.
    fn flights(wishes: &[(u64, Range<u64>)]) -> Vec<(Range<u64>, Vec<u64>)> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x"), b"").unwrap();
        let object = DiskStore::new(folder.path()).open("x").unwrap();
        let wish = |(task, range): &(u64, Range<u64>)| Wish {
            task: *task,
            need: Need { batch: crate::slot_ref::BatchSerial(0), slot: *task as usize },
            epoch: Epoch(0),
            cargo: Cargo::Range { object: Arc::clone(&object), range: range.clone() },
        };
        let flights = coalesce(wishes.iter().map(wish).collect());
        for flight in &flights {
            assert_eq!(Some(flight.need.slot as u64), flight.tasks.iter().min().copied());
        }
        let range = |cargo| if let Cargo::Range { range, .. } = cargo { range } else { unreachable!("all are ranges") };
        flights.into_iter().map(|flight| (range(flight.cargo), flight.tasks)).collect()
    }

    #[test]
    fn ranges_that_touch_overlap_or_lie_close_are_fetched_together() {
        assert_eq!(flights(&[(0, 0..10), (0, 10..20), (0, 500..600)]), [(0..600, vec![0])]);
        assert_eq!(flights(&[(1, 50..90), (0, 0..100)]), [(0..100, vec![0, 1])]);
        assert_eq!(flights(&[(0, 0..10), (1, 11 + GAP_BYTES..99 + GAP_BYTES)]).len(), 2);
    }

    #[test]
    fn a_long_fetch_is_not_made_longer() {
        let far = MOST_BYTES - 5;
        assert_eq!(flights(&[(0, 0..far), (1, far..far + 10)]).len(), 2);
        assert_eq!(flights(&[(0, 0..far), (1, far..far + 5)]).len(), 1);
        assert_eq!(flights(&[(0, 0..5 * MOST_BYTES), (1, 7..9)]), [(0..5 * MOST_BYTES, vec![0, 1])]);
    }
}
