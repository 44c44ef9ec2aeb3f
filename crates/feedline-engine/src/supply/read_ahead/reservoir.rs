//! Decides which samples are read ahead, along the walk of a plan's reservoir.
//!
//! The walk decides what is read next, not the tasks. So a disk seeks only between blocks. `remaining.rs` holds the unread part of
//! an epoch.
//!
//! Always true: the number of held and pending samples is bounded (law 5). The bound is the size of the reservoir, plus the
//! requested samples, plus a fixed number read ahead. A task that is needed before all ready ones may exceed it by one chunk, so
//! that nothing waits for ever.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use feedline_data::plan::Plan;
use feedline_memory::Mutex;
use feedline_order::{Epoch, EpochSequence, Occurrence, Rank, Reservoir, ReservoirEpoch, ReservoirTurn, SampleRequest};

use super::super::{Reading, Task};
use super::buffer::{ReadBuffer, TaskRequest};
use super::order::{ReadOrder, ReadPriority, SampleRead};
use super::range::Grouping;
use super::remaining::RemainingReads;
use crate::machine::Machine;

/// Bytes per reader in one chunk. At 150 MB/s a disk spends fourteen times as long reading them as on a seek of 8 ms.
const READER_BYTES: u64 = 16 << 20;
/// Upper limit of samples in a chunk, if samples are small.
const MAX_SAMPLES: u64 = 1 << 14;
/// Number of epochs whose walks are kept. A run may look across the ends of many short epochs.
const KEPT_EPOCHS: usize = 1024;

/// Upper limits of samples to read.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Samples in the reservoir.
    size: u64,
    /// Samples to plan at once.
    chunk: u64,
    /// Samples to hold beyond the reservoir and the requested ones.
    ahead: u64,
}

/// Reads samples in the order of the walk, not in the order of need.
#[derive(Debug)]
pub(super) struct ReservoirOrder {
    plan: Arc<Plan>,
    rank: u32,
    limits: Limits,
    walk: Mutex<Walk>,
}

#[derive(Debug, Default)]
struct Walk {
    remaining: BTreeMap<Epoch, RemainingReads>,
    /// Samples that a task needed before the walk of their epoch began. The walk skips them.
    read_early: HashSet<SampleRequest>,
    /// The highest requested epoch.
    last_requested: Epoch,
}

impl ReservoirOrder {
    pub(super) fn new(plan: &Arc<Plan>, reservoir: &Reservoir, machine: &Machine) -> Self {
        let limits = limits(plan, reservoir, machine);
        let bytes = limits.size.saturating_mul(reservoir.blocks.sample_bytes());
        if let Some(memory) = machine.memory_bytes.filter(|memory| bytes > memory / 2) {
            let (samples, megabytes, has) = (limits.size, bytes / 1_000_000, memory / 1_000_000);
            tracing::warn!(
                "the reservoir of {samples} samples takes about {megabytes} MB of this machine's {has} MB; use a smaller reservoir"
            );
        }
        Self { plan: Arc::clone(plan), rank: plan.config().rank.rank, limits, walk: Mutex::default() }
    }

    fn walk_of(&self, epoch: Epoch) -> Arc<ReservoirEpoch> {
        match self.plan.sequence().epoch(epoch) {
            EpochSequence::Reservoir(walk) => walk,
            _ => unreachable!("this order is for plans with a reservoir: see ReadAhead::reservoir"),
        }
    }

    /// The turns at the positions of a task. `None` for positions of another rank, such as padding.
    fn turns(&self, walk: &ReservoirEpoch, task: &Task) -> impl Iterator<Item = Option<ReservoirTurn>> {
        let turn = |(rank, turn): (Rank, ReservoirTurn)| (rank.rank == self.rank).then_some(turn);
        task.positions(&self.plan).map(move |position| turn(walk.turn_at(position)))
    }

    /// Opens the epochs of the tasks. The first epoch starts at the stream's current turn, later ones at turn 0. An epoch that does
    /// not follow the last open one is left out: its tasks read their samples themselves.
    fn open_epochs(&self, tasks: &[TaskRequest]) {
        let epochs: BTreeSet<Epoch> = tasks.iter().map(|task_request| task_request.task.epoch_path().epoch).collect();
        let mut last = self.walk.lock().remaining.last_key_value().map(|(epoch, _)| *epoch);
        for epoch in epochs {
            match last {
                Some(last) if epoch != Epoch(last.0 + 1) => continue,
                Some(_) => self.open(epoch),
                None => {
                    let walk = self.walk_of(epoch);
                    let of_epoch = || {
                        tasks
                            .iter()
                            .map(|task_request| &task_request.task)
                            .filter(|task| task.epoch_path().epoch == epoch)
                    };
                    // The smallest turn of the first request is where the stream stands.
                    let turn = of_epoch().flat_map(|task| self.turns(&walk, task)).flatten().min().unwrap_or_default();
                    let share = of_epoch().next().map_or_else(|| self.plan.share(0), |task| task.epoch_path().share);
                    self.begin(epoch, RemainingReads::from_turn(Arc::clone(&walk), self.rank, turn, &share));
                }
            }
            last = Some(epoch);
        }
    }

    fn begin(&self, epoch: Epoch, remaining: RemainingReads) {
        self.walk.lock().remaining.entry(epoch).or_insert(remaining);
    }
}

fn limits(plan: &Plan, reservoir: &Reservoir, machine: &Machine) -> Limits {
    let sample_bytes = reservoir.blocks.sample_bytes();
    let most = super::bytes_ahead(plan, machine);
    let bytes = (READER_BYTES * u64::from(reservoir.readers)).min(most / 2);
    let chunk = (bytes / sample_bytes).clamp(1, MAX_SAMPLES);
    // A remote source has more latency and serves many requests at once, so as much as allowed is read ahead.
    let ahead = if plan.source().is_remote() { (most / sample_bytes).max(2 * chunk) } else { 2 * chunk };
    Limits { size: reservoir.size.min(reservoir.samples(plan.config().rank.rank)), chunk, ahead }
}

impl ReadOrder for ReservoirOrder {
    fn locate(&self, tasks: &[TaskRequest]) -> Vec<Vec<SampleRead>> {
        self.open_epochs(tasks);
        let reads = |TaskRequest { task, .. }: &TaskRequest| {
            let walk = self.walk_of(task.epoch_path().epoch);
            let steps = self.turns(&walk, task).map(|turn| turn.map(|turn| walk.step_at(self.rank, turn)));
            let (reading, priority) = (Reading::Trimmed, task.need().into());
            let read = |(request, step)| SampleRead { request, reading, priority, step };
            task.requests(&self.plan).into_iter().zip(steps).map(read).collect()
        };
        let reads = tasks.iter().map(reads).collect();
        let mut walk = self.walk.lock();
        let last = tasks.iter().map(|task_request| task_request.task.epoch_path().epoch).max();
        walk.last_requested = walk.last_requested.max(last.unwrap_or_default());
        reads
    }

    fn will_read(&self, read: &SampleRead, _buffer: &mut ReadBuffer) -> bool {
        let Some(step) = read.step else { return false };
        let mut walk = self.walk.lock();
        if let Some(remaining) = walk.remaining.get(&read.request.epoch) {
            return remaining.is_coming(step);
        }
        // The walk of that epoch has not begun, or is no longer kept. The preparer reads this sample itself.
        walk.read_early.insert(read.request);
        false
    }

    fn next_chunk(&self, buffer: &mut ReadBuffer, is_idle: bool) -> Vec<SampleRead> {
        let Limits { size, chunk: most, ahead } = self.limits;
        let mut walk = self.walk.lock();
        let Walk { remaining, read_early, .. } = &mut *walk;
        let left: u64 = remaining.values().map(RemainingReads::left).sum();
        // Requested samples come on top of the reservoir, because they leave it soon.
        let room = (size + ahead + buffer.requested()).saturating_sub(buffer.samples());
        // Plan whole chunks only: long sequential reads need many neighbouring samples at once. A starved task cannot wait for room
        // (`ReadBuffer::is_starved`).
        if !is_idle || left == 0 || (room < most.min(left) && !buffer.is_starved()) {
            return Vec::new();
        }
        let mut chunk = Vec::with_capacity(most as usize);
        for (&epoch, remaining) in remaining.iter_mut() {
            while (chunk.len() as u64) < most
                && let Some(step) = remaining.next()
            {
                let id = self.plan.source().id_at(remaining.walk.ordinal_of_step(self.rank, step));
                let request = SampleRequest { id, epoch, occurrence: Occurrence(0) };
                // A request from before a jump may arrive late and mark a sample that the walk will read. If a task waits for that
                // sample, it is read anyway. `remove` keeps the set small.
                if !read_early.remove(&request) || buffer.is_awaited(request) {
                    buffer.expect(request);
                    chunk.push(SampleRead {
                        request,
                        reading: Reading::Trimmed,
                        priority: ReadPriority { round: 0, place: chunk.len() as u64 },
                        step: Some(step),
                    });
                }
            }
        }
        while remaining.len() > KEPT_EPOCHS {
            remaining.pop_first();
        }
        chunk
    }

    fn next_epoch(&self) -> Option<Epoch> {
        let walk = self.walk.lock();
        let (last, remaining) = walk.remaining.last_key_value()?;
        (remaining.left() == 0 && *last <= walk.last_requested).then_some(Epoch(last.0 + 1))
    }

    fn open(&self, epoch: Epoch) {
        self.begin(
            epoch,
            RemainingReads::from_turn(self.walk_of(epoch), self.rank, ReservoirTurn(0), &self.plan.share(0)),
        );
    }

    fn restart(&self) -> bool {
        // After a jump the next request decides where the walk begins.
        *self.walk.lock() = Walk::default();
        true
    }

    fn grouping(&self) -> Grouping {
        Grouping::Sequential
    }

    fn shown_size(&self) -> Option<u64> {
        Some(self.limits.size)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use feedline_data::testing::open;
    use feedline_order::Turn;

    use super::super::super::Ready;
    use super::super::buffer::Complete;
    use super::*;
    use crate::slot_ref::BatchSerial;
    use crate::state::Cursor;

    struct NoRun;

    impl Ready for NoRun {
        fn ready(&self, _: Vec<Task>) {}
    }

    fn write_shard(folder: &std::path::Path) {
        let mut builder = tar::Builder::new(std::fs::File::create(folder.join("0.tar")).unwrap());
        for id in 0..30 {
            let mut header = tar::Header::new_gnu();
            header.set_size(4);
            header.set_mode(0o644);
            builder.append_data(&mut header, format!("{id:02}.cls"), &b"1234"[..]).unwrap();
        }
        builder.finish().unwrap();
    }

    /// Requests the first batch of an epoch. Returns the number of tasks that are complete at once.
    fn request(order: &ReservoirOrder, epoch: u64, buffer: &mut ReadBuffer) -> usize {
        let task = Task {
            batch: BatchSerial(epoch),
            epoch_path: Cursor::start_of(Epoch(epoch)).epoch_path(&order.plan),
            first_turn: Turn(0),
            given: None,
            slots: 0..4,
            asked: Instant::now(),
            writer: None,
            cost: None,
            was_read_ahead: false,
            held: None,
        };
        let tasks = vec![TaskRequest { task, reading: Reading::Trimmed, ready: Arc::new(NoRun) }];
        let reads = order.locate(&tasks);
        let mut complete = Complete::new();
        for (task, reads) in tasks.into_iter().zip(reads) {
            buffer.request(task, reads, order, &mut complete);
        }
        complete.len()
    }

    #[test]
    fn law_7_a_request_from_before_a_jump_takes_no_sample_from_the_task_that_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        write_shard(folder.path());
        let shuffle = "shuffle = { kind = \"reservoir\", size = 0.3, readers = 2 }";
        let source = format!("[source]\nkind = \"tar\"\nshards = \"{}/*.tar\"", folder.path().display());
        let plan = open(&format!("batch_size = 4\n{shuffle}\n{source}")).unwrap();
        let order = ReservoirOrder::new(&plan, plan.sequence().reservoir().unwrap(), &Machine::default());
        let mut buffer = ReadBuffer::default();
        assert_eq!(request(&order, 0, &mut buffer), 0, "the walk begins and will read these samples");
        assert_eq!(
            request(&order, 2, &mut buffer),
            1,
            "the walk of this epoch has not begun: its samples are read early"
        );
        assert_eq!(request(&order, 1, &mut buffer), 0);
        assert_eq!(request(&order, 2, &mut buffer), 0, "now it has, and a task waits for the same samples");
        let mut complete = Complete::new();
        loop {
            let chunk = order.next_chunk(&mut buffer, true);
            if chunk.is_empty() {
                break;
            }
            for read in chunk {
                let number = buffer.pending_number(read.request).unwrap();
                assert!(buffer.plan(read.request, number, 0, &mut complete));
            }
        }
        assert_eq!(complete.len(), 3, "no task waits any more");
        assert!(buffer.take_waiting().is_empty());
    }
}
