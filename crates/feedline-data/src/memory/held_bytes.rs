//! Booked bytes of prepared samples and open batches, returned on drop.

use std::sync::Arc;

use super::Budget;

/// Bytes that are booked in a budget until this is dropped.
#[derive(Debug)]
pub struct HeldBytes {
    budget: Arc<Budget>,
    bytes: u64,
}

impl HeldBytes {
    /// Books `bytes`, whether or not there is room for them.
    pub fn new(budget: &Arc<Budget>, bytes: u64) -> Self {
        if bytes > 0 {
            budget.hold(bytes);
        }
        Self { budget: Arc::clone(budget), bytes }
    }

    /// Takes over `bytes` that a sample kept at the end of its preparation (see [`super::Workspace::end_keeping`]).
    pub fn take_over(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Takes over everything from `other`, in the same budget.
    pub fn absorb(&mut self, mut other: Self) {
        // `other` is dropped with 0 bytes, so it returns nothing.
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Returns some of the bytes to the budget.
    pub fn release(&mut self, bytes: u64) {
        // An empty return would still take the budget's lock and wake its waiters.
        if bytes > 0 {
            self.bytes -= bytes;
            self.budget.release(bytes);
        }
    }

    /// Returns all of them.
    pub fn release_all(&mut self) {
        self.release(self.bytes);
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.release_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn law_5_held_bytes_are_returned_exactly_once() {
        let budget = Budget::new(100);
        let used = || budget.snapshot().used;
        let (mut batch, mut sample) = (HeldBytes::new(&budget, 60), HeldBytes::new(&budget, 30));
        sample.release(10);
        assert_eq!(used(), 80);
        batch.absorb(sample);
        assert_eq!(used(), 80);
        drop(batch);
        assert_eq!(used(), 0);
    }
}
