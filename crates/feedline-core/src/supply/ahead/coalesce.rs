//! Ranges that lie close together become one fetch.
//!
//! In: the ranges that tasks want. Out: fetches that cover them, each with the tasks it is for. Always true: every range lies
//! in a fetch of its task; a fetch has at most [`GAP_BYTES`] between two ranges that nobody wants.

use std::ops::Range;
use std::sync::Arc;

use crate::order::Epoch;
use crate::store::Object;

/// A place in the stream; see [`crate::engine::Task::need`].
pub(super) type Need = (u64, usize);

/// Bytes between two ranges that are fetched rather than asked around: headers of a tar file and a label. More would save
/// requests and cost bytes, where many samples of a shard are known ahead.
const GAP_BYTES: u64 = 4 << 10;
/// Longer fetches are not made of several ranges: what is needed first would wait for the rest.
const MOST_BYTES: u64 = 1 << 20;

/// A range that a task wants.
#[derive(Debug)]
pub(super) struct Wish {
    pub task: u64,
    pub need: Need,
    pub epoch: Epoch,
    pub object: Arc<dyn Object>,
    pub range: Range<u64>,
}

/// A range that is fetched for some tasks.
#[derive(Debug)]
pub(super) struct Flight {
    pub object: Arc<dyn Object>,
    pub range: Range<u64>,
    pub epoch: Epoch,
    /// That of the task that needs it first.
    pub need: Need,
    pub tasks: Vec<u64>,
}

impl Flight {
    pub fn bytes(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    fn new(wish: Wish) -> Self {
        let Wish { task, need, epoch, object, range } = wish;
        Self { object, range, epoch, need, tasks: vec![task] }
    }

    fn takes(&self, wish: &Wish) -> bool {
        let end = self.range.end.max(wish.range.end);
        Arc::ptr_eq(&self.object, &wish.object)
            && self.epoch == wish.epoch
            && wish.range.start <= self.range.end.saturating_add(GAP_BYTES)
            && (end - self.range.start <= MOST_BYTES || end == self.range.end)
    }

    fn take(&mut self, wish: &Wish) {
        self.range.end = self.range.end.max(wish.range.end);
        self.need = self.need.min(wish.need);
        if !self.tasks.contains(&wish.task) {
            self.tasks.push(wish.task);
        }
    }
}

/// Makes as few fetches of the wishes as is sensible.
pub(super) fn coalesce(mut wishes: Vec<Wish>) -> Vec<Flight> {
    let address = |wish: &Wish| Arc::as_ptr(&wish.object).cast::<()>().addr();
    wishes.sort_by_key(|wish| (address(wish), wish.epoch, wish.range.start, wish.range.end));
    let mut flights: Vec<Flight> = Vec::with_capacity(wishes.len());
    for wish in wishes {
        match flights.last_mut() {
            Some(last) if last.takes(&wish) => last.take(&wish),
            _ => flights.push(Flight::new(wish)),
        }
    }
    flights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{DiskStore, Store as _};

    /// Flights as range and tasks, for wishes of one object each given as task and range.
    fn flights(wishes: &[(u64, Range<u64>)]) -> Vec<(Range<u64>, Vec<u64>)> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x"), b"").unwrap();
        let object = DiskStore::new(folder.path()).open("x").unwrap();
        let wish = |(task, range): &(u64, Range<u64>)| Wish {
            task: *task,
            need: (0, *task as usize),
            epoch: Epoch(0),
            object: Arc::clone(&object),
            range: range.clone(),
        };
        let flights = coalesce(wishes.iter().map(wish).collect());
        for flight in &flights {
            assert_eq!(Some(flight.need.1 as u64), flight.tasks.iter().min().copied());
        }
        flights.into_iter().map(|flight| (flight.range, flight.tasks)).collect()
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
