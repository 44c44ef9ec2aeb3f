//! Records a timeline of batches: when each was opened, and when its samples were requested, read, processed by each op and
//! delivered.
//!
//! In: times from preparer threads and the consumer, while a timeline is recorded. Out: a [`Timeline`]. While none is recorded, a
//! thread checks one flag per sample (in arrival order two).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use feedline_memory::Mutex;
use feedline_order::{Epoch, SampleId};
use serde::Serialize;

use crate::slot_ref::{BatchSerial, SlotRef};

/// Start and end in microseconds since the timeline began.
pub type TimeRange = (f64, f64);

/// The timeline of one sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleLife {
    /// Its batch, as a serial number of the run.
    pub batch: u64,
    /// Its slot in the batch.
    pub slot: usize,
    /// Its index in the source.
    pub id: u64,
    /// The number of the thread that prepared it.
    pub thread: usize,
    /// When its batch was opened and the sample was requested.
    pub asked: f64,
    /// Loading first, then each op, then the copy into the slot.
    pub stages: Vec<TimeRange>,
}

/// The timeline of one batch in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BatchLife {
    /// Its serial number in the run.
    pub batch: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Its number in the epoch.
    pub number: u64,
    /// Number of samples.
    pub samples: usize,
    /// The opening of the batch: its samples were determined and memory was allocated.
    pub order: TimeRange,
    /// When its last sample was in its slot.
    pub complete: f64,
    /// When it was delivered.
    pub delivered: f64,
}

/// The recorded samples and batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Samples in the order in which they were finished.
    pub samples: Vec<SampleLife>,
    /// Batches in the order of delivery.
    pub batches: Vec<BatchLife>,
}

/// What is known of a sample before it is prepared.
#[derive(Clone, Copy, Debug)]
pub struct Preparation {
    /// The slot of its request.
    pub at: SlotRef,
    /// When it was requested.
    pub asked: Instant,
    /// The thread that prepares it.
    pub thread: usize,
}

/// A batch at the moment of its delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveredBatch {
    pub batch: BatchSerial,
    pub epoch: Epoch,
    /// Its number in the epoch.
    pub number: u64,
    pub samples: usize,
    /// When its opening started, when its tasks were made, and when it was complete.
    pub times: [Instant; 3],
}

/// Records times while a timeline is active.
#[derive(Debug, Default)]
pub struct Recorder {
    is_on: AtomicBool,
    has_timeline: AtomicBool,
    kept: Mutex<Option<Recording>>,
}

/// Times of samples that one thread has prepared but not yet reported.
#[derive(Debug, Default)]
pub struct Marks {
    /// Finished samples, each with the end of its times in `times`.
    samples: Vec<(Preparation, SampleId, usize)>,
    /// The start of the first stage of each sample, and the end of each stage.
    times: Vec<Instant>,
}

impl Marks {
    /// Starts a sample. Drops the times of an attempt that failed.
    pub fn begin(&mut self) {
        self.times.truncate(self.samples.last().map_or(0, |sample| sample.2));
    }

    /// Adds the start of the first stage, or the end of a stage.
    pub fn mark(&mut self, time: Instant) {
        self.times.push(time);
    }

    /// Ends a sample.
    pub fn end(&mut self, preparation: Preparation, id: SampleId) {
        self.samples.push((preparation, id, self.times.len()));
    }
}

#[derive(Debug)]
struct Recording {
    began: Instant,
    most_samples: usize,
    marks: Marks,
    /// Samples that moved to another slot: from, to.
    moves: Vec<(SlotRef, SlotRef)>,
    /// The last batch with a recorded sample.
    last_batch: BatchSerial,
    batches: Vec<BatchLife>,
}

impl Recording {
    /// Converts the recording.
    fn timeline(self) -> Timeline {
        let at = |time: &Instant| micros(self.began, *time);
        let mut first = 0;
        let mut by_slot = HashMap::new();
        let mut samples = Vec::with_capacity(self.marks.samples.len());
        for (Preparation { at: prepared_for, asked, thread }, id, end) in self.marks.samples {
            // Each stage ends where the next one starts, so n + 1 times make n stages.
            let stages = self.marks.times[first..end].array_windows().map(|[from, to]| (at(from), at(to))).collect();
            first = end;
            by_slot.insert(prepared_for, samples.len());
            let SlotRef { batch, slot } = prepared_for;
            samples.push(SampleLife { batch: batch.0, slot, id: id.0, thread, asked: at(&asked), stages });
        }
        for (from, to) in self.moves {
            // A sample moves at most once: in arrival order, when it is placed.
            if let Some(number) = by_slot.remove(&from) {
                (samples[number].batch, samples[number].slot) = (to.batch.0, to.slot);
            }
        }
        Timeline { samples, batches: self.batches }
    }
}

impl Recorder {
    /// Starts a timeline of up to `most_samples` samples.
    pub fn start(&self, most_samples: usize) -> Instant {
        let began = Instant::now();
        let marks = Marks::default();
        let kept = Recording {
            began,
            most_samples,
            marks,
            moves: Vec::new(),
            last_batch: BatchSerial(0),
            batches: Vec::new(),
        };
        // The recording must exist before the flags make threads report to it.
        *self.kept.lock() = Some(kept);
        self.has_timeline.store(true, Ordering::Relaxed);
        self.is_on.store(true, Ordering::Relaxed);
        began
    }

    /// Stops the timeline and returns it.
    pub fn stop(&self) -> Option<Timeline> {
        self.is_on.store(false, Ordering::Relaxed);
        self.has_timeline.store(false, Ordering::Relaxed);
        let kept = self.kept.lock().take();
        kept.map(Recording::timeline)
    }

    /// Whether samples are recorded: a timeline is active and has not reached its limit.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Adds the samples of a thread and clears its marks.
    pub(crate) fn add_samples(&self, marks: &mut Marks) {
        marks.begin();
        if marks.samples.is_empty() {
            return;
        }
        let mut kept = self.kept.lock();
        let Some(kept) = kept.as_mut() else { return *marks = Marks::default() };
        // The ends in `marks` count from its own first time, so they are shifted behind the recorded ones.
        let before = kept.marks.times.len();
        let room = kept.most_samples - kept.marks.samples.len().min(kept.most_samples);
        kept.marks.times.append(&mut marks.times);
        for (preparation, id, end) in marks.samples.drain(..).take(room) {
            kept.last_batch = kept.last_batch.max(preparation.at.batch);
            kept.marks.samples.push((preparation, id, before + end));
        }
        marks.samples.clear();
        // Drops the times of samples beyond the limit.
        kept.marks.begin();
        if kept.marks.samples.len() >= kept.most_samples {
            self.is_on.store(false, Ordering::Relaxed);
        }
    }

    /// Records that a sample moved to another slot, as in arrival order.
    pub(crate) fn move_sample(&self, from: SlotRef, to: SlotRef) {
        if !self.has_timeline.load(Ordering::Relaxed) {
            return;
        }
        let mut kept = self.kept.lock();
        let Some(kept) = kept.as_mut() else { return };
        // After the limit of samples, only moves out of recorded batches matter.
        if self.is_on() || from.batch <= kept.last_batch {
            kept.moves.push((from, to));
        }
        if self.is_on() {
            kept.last_batch = kept.last_batch.max(to.batch);
        }
    }

    /// Adds a delivered batch.
    pub(crate) fn add_batch(&self, DeliveredBatch { batch, epoch, number, samples, times }: DeliveredBatch) {
        if !self.has_timeline.load(Ordering::Relaxed) {
            return;
        }
        let mut kept = self.kept.lock();
        // After the limit of samples, later batches are ignored.
        let Some(kept) = kept.as_mut().filter(|kept| self.is_on() || batch <= kept.last_batch) else { return };
        let delivered = micros(kept.began, Instant::now());
        let [ordering, ordered, complete] = times.map(|time| micros(kept.began, time));
        let order = (ordering, ordered);
        kept.batches.push(BatchLife { batch: batch.0, epoch: epoch.0, number, samples, order, complete, delivered });
    }
}

/// Microseconds between two times. Negative if `to` is earlier.
fn micros(from: Instant, to: Instant) -> f64 {
    // `Instant` differences cannot be negative, so one of the two is zero.
    let (later, earlier) = (to.saturating_duration_since(from), from.saturating_duration_since(to));
    (later.as_secs_f64() - earlier.as_secs_f64()) * 1e6
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn slot(batch: u64, slot: usize) -> SlotRef {
        SlotRef { batch: BatchSerial(batch), slot }
    }

    #[test]
    fn times_are_kept_only_while_they_are_wanted_and_no_more_than_that() {
        let recorder = Recorder::default();
        let now = Instant::now();
        let preparation = Preparation { at: slot(3, 1), asked: now, thread: 0 };
        let mut marks = Marks::default();
        marks.mark(now);
        marks.end(preparation, SampleId(7));
        recorder.add_samples(&mut marks);
        assert_eq!(recorder.stop(), None);
        let began = recorder.start(2);
        let at = |ms| began + Duration::from_millis(ms);
        assert!(recorder.is_on());
        for id in 0..3 {
            marks.begin();
            marks.mark(began);
            marks.begin();
            for time in [at(2), at(4), at(5)] {
                marks.mark(time);
            }
            marks.end(Preparation { asked: at(1), ..preparation }, SampleId(id));
        }
        recorder.add_samples(&mut marks);
        assert!(!recorder.is_on(), "two were wanted");
        let third = DeliveredBatch {
            batch: BatchSerial(3),
            epoch: Epoch(0),
            number: 3,
            samples: 2,
            times: [began, at(1), at(5)],
        };
        recorder.add_batch(third);
        recorder.add_batch(DeliveredBatch { batch: BatchSerial(4), number: 4, ..third });
        let timeline = recorder.stop().unwrap();
        assert_eq!(timeline.samples.len(), 2);
        assert_eq!(timeline.samples[1].stages, [(2000.0, 4000.0), (4000.0, 5000.0)]);
        assert_eq!((timeline.samples[0].asked, timeline.batches.len()), (1000.0, 1), "nothing is kept of batch 4");
        let batch = timeline.batches[0];
        assert_eq!((batch.order, batch.complete, batch.samples), ((0.0, 1000.0), 5000.0, 2));
    }

    #[test]
    fn samples_that_change_slots_are_each_found_in_the_one_they_came_to() {
        let recorder = Recorder::default();
        let now = recorder.start(8);
        let mut marks = Marks::default();
        for (id, batch) in [(10, 0), (11, 1)] {
            marks.begin();
            marks.mark(now);
            marks.mark(now);
            marks.end(Preparation { at: slot(batch, 0), asked: now, thread: 0 }, SampleId(id));
            recorder.add_samples(&mut marks);
        }
        recorder.move_sample(slot(1, 0), slot(0, 0));
        recorder.move_sample(slot(0, 0), slot(1, 0));
        let samples = recorder.stop().unwrap().samples;
        assert_eq!(samples.iter().map(|sample| (sample.id, sample.batch)).collect::<Vec<_>>(), [(10, 1), (11, 0)]);
    }
}
