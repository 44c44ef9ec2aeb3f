//! Measures network traffic, in total and by epoch.
//!
//! Bytes count for the epoch of the sample they were fetched for, since the next epoch starts before the last one ends. A sample's
//! bytes arrive before its batch is delivered, so the sum of an epoch is complete with its last batch.

use std::collections::BTreeMap;

use feedline_data::store::Traffic;
use feedline_memory::Mutex;
use feedline_order::Epoch;

/// Number of past epochs whose sums are kept, because a jump may return to them.
const PAST_EPOCHS: usize = 8;
/// Upper limit of epochs with a sum. With few samples, the window reaches into many epochs.
const MAX_EPOCHS: usize = 8192;

/// Counts what comes over the wire.
#[derive(Debug, Default)]
pub struct TrafficMeter(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    all: Traffic,
    bytes_by_epoch: BTreeMap<Epoch, u64>,
    delivered: Epoch,
    /// Number of samples by the form in which they came.
    candidates: BTreeMap<String, u64>,
}

/// The traffic so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficSums {
    /// The total.
    pub all: Traffic,
    /// Bytes for the epoch of the last delivered batch.
    pub bytes_of_epoch: u64,
}

impl TrafficMeter {
    /// Adds what was fetched for a sample of an epoch.
    pub fn add(&self, epoch: Epoch, traffic: Traffic) {
        let mut sums = self.0.lock();
        sums.all.bytes += traffic.bytes;
        sums.all.requests += traffic.requests;
        sums.all.retries += traffic.retries;
        *sums.bytes_by_epoch.entry(epoch).or_default() += traffic.bytes;
        // The sums of old epochs are dropped, so that the map stays small.
        if sums.bytes_by_epoch.range(..sums.delivered).take(PAST_EPOCHS + 1).count() > PAST_EPOCHS {
            sums.bytes_by_epoch.pop_first();
        }
        if sums.bytes_by_epoch.len() > MAX_EPOCHS {
            // Rather the sum of a far future epoch than that of the current one.
            sums.bytes_by_epoch.pop_last();
        }
    }

    /// Adds a sample that came in a form.
    pub(crate) fn add_candidate(&self, name: &str) {
        let mut sums = self.0.lock();
        match sums.candidates.get_mut(name) {
            Some(samples) => *samples += 1,
            None => drop(sums.candidates.insert(name.to_owned(), 1)),
        }
    }

    /// Number of samples by the form in which a peer sent them.
    pub fn candidates(&self) -> BTreeMap<String, u64> {
        self.0.lock().candidates.clone()
    }

    /// Records that a batch of an epoch was delivered.
    pub fn deliver(&self, epoch: Epoch) {
        self.0.lock().delivered = epoch;
    }

    /// The sums.
    pub fn read(&self) -> TrafficSums {
        let sums = self.0.lock();
        let bytes_of_epoch = sums.bytes_by_epoch.get(&sums.delivered).copied().unwrap_or_default();
        TrafficSums { all: sums.all, bytes_of_epoch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bytes: u64) -> Traffic {
        Traffic { bytes, requests: 1, retries: 0 }
    }

    #[test]
    fn bytes_for_the_next_epoch_are_not_those_of_the_one_under_way() {
        let meter = TrafficMeter::default();
        for (epoch, fetched) in [(0, 10), (1, 100), (0, 5)] {
            meter.add(Epoch(epoch), bytes(fetched));
        }
        assert_eq!(meter.read().bytes_of_epoch, 15);
        meter.deliver(Epoch(1));
        assert_eq!((meter.read().bytes_of_epoch, meter.read().all.bytes, meter.read().all.requests), (100, 115, 3));
    }

    #[test]
    fn few_epochs_are_kept_however_many_there_are() {
        let meter = TrafficMeter::default();
        for epoch in 0..1000 {
            meter.add(Epoch(epoch + 1), bytes(7));
            meter.add(Epoch(epoch), bytes(1));
            meter.deliver(Epoch(epoch));
            assert_eq!(meter.read().bytes_of_epoch, if epoch == 0 { 1 } else { 8 });
        }
        assert!(meter.0.lock().bytes_by_epoch.len() <= PAST_EPOCHS + 3);
    }

    #[test]
    fn epochs_of_few_samples_that_are_fetched_far_ahead_are_all_counted() {
        let meter = TrafficMeter::default();
        (0..100).for_each(|epoch| meter.add(Epoch(epoch), bytes(epoch + 1)));
        for epoch in 0..100 {
            meter.deliver(Epoch(epoch));
            assert_eq!(meter.read().bytes_of_epoch, epoch + 1);
        }
    }
}
