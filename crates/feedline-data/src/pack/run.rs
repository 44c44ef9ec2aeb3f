//! Packs a source: workers prepare samples, and this thread writes them in order.

use feedline_order::Ordinal;
use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use xxhash_rust::xxh3::xxh3_64;

use super::journal::{FinishedShard, Journal, Recipe};
use super::key::Keys;
use super::options::Options;
use super::queue::PackQueue;
use super::sample::{PackedFields, Preparer, ReadySample};
use super::shard::{ShardWriter, Syncer, remove_partial};
use super::summary::{PackError, Summary};
use crate::memory::Cancel;
use crate::source::Source;

/// Interval at which the writer checks for cancellation.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// Observes packing, and may stop it.
pub trait Watch {
    /// Called with the number of finished samples of the source.
    fn reached(&mut self, samples: u64);

    /// Whether to stop. Called several times per second.
    fn wants_to_stop(&mut self) -> bool;
}

/// Packs `source` into `folder`, or continues an earlier run.
pub fn pack(
    source: &dyn Source,
    folder: &Path,
    options: &Options,
    workers: usize,
    watch: &mut dyn Watch,
) -> Result<Summary, PackError> {
    let fields = PackedFields::of(&source.fields())?;
    let write = |source| PackError::Write { path: folder.to_owned(), source };
    fs::create_dir_all(folder).map_err(write)?;
    let recipe = Recipe::new(source.identity(), source.len(), options);
    let is_current = |first: u64, shard: &FinishedShard| {
        let stamps = (first..shard.next).map(|ordinal| fields.stamp(source, source.id_at(Ordinal(ordinal))));
        stamps.fold(0, join_stamps) == shard.stamp
    };
    let (journal, finished) = Journal::open(folder, &recipe, is_current)?;
    remove_partial(folder).map_err(write)?;
    let mut summary = Summary::default();
    for shard in &finished {
        shard.add_to(&mut summary);
        watch.reached(shard.next);
    }
    summary.resumed_samples = summary.samples;
    let start = finished.last().map_or(0, |shard| shard.next);
    // Keys depend on all names before them, so those of finished shards are computed again.
    let mut keys = first_keys(source, &fields, start, watch)?;
    let cancel = Cancel::default();
    let queue = PackQueue::new(start, source.len(), cancel.clone());
    let (syncer, sync) = Syncer::new();
    let packed = thread::scope(|scope| {
        // However this closure ends, the threads end too: workers by the token, the syncer by its closed queue.
        let _stop = StopAtEnd(&cancel);
        scope.spawn(sync);
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                let _stop = StopIfPanicking(&cancel);
                let mut preparer = Preparer::new(source, &fields, options, cancel.clone());
                while let Some(number) = queue.claim() {
                    queue.put(number, preparer.prepare(source.id_at(Ordinal(number))));
                }
            });
        }
        let shards = summary.shards;
        // Moved into the closure: dropping it closes the queue and ends the thread before the scope joins it.
        let syncer = syncer;
        let mut writer = Writer {
            source,
            folder,
            options,
            syncer: &syncer,
            journal,
            shards,
            shard: None,
            done: FinishedShard::default(),
        };
        for number in start..source.len() {
            let ready = take(&queue, &cancel, watch)?;
            let key = keys.next(&ready.name, &ready.ending);
            writer.push(number, &key, ready, &mut summary)?;
            watch.reached(number + 1);
        }
        writer.end(&mut summary)
    });
    packed?;
    summary.renamed = keys.renamed;
    Ok(summary)
}

/// Cancels the token when dropped.
pub(super) struct StopAtEnd<'a>(pub &'a Cancel);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Cancels the token if its thread panics. Otherwise the writer would wait forever for the sample of that thread.
struct StopIfPanicking<'a>(&'a Cancel);

impl Drop for StopIfPanicking<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.cancel();
        }
    }
}

/// The keys after the first `count` samples.
fn first_keys(
    source: &dyn Source,
    fields: &PackedFields,
    count: u64,
    watch: &mut dyn Watch,
) -> Result<Keys, PackError> {
    let names = (0..source.len()).map(|ordinal| source.key(source.id_at(Ordinal(ordinal))));
    let mut keys = Keys::below_common_folder(names);
    for ordinal in 0..count {
        if ordinal % 1024 == 0 && watch.wants_to_stop() {
            return Err(PackError::Cancelled);
        }
        let id = source.id_at(Ordinal(ordinal));
        let ending = fields.first().and_then(|field| source.ending(id, field)).unwrap_or_default();
        keys.next(&source.key(id), &ending);
    }
    Ok(keys)
}

/// The stamp of several samples, combined one by one.
fn join_stamps(before: u64, next: u64) -> u64 {
    xxh3_64([before, next].map(u64::to_le_bytes).as_flattened())
}

/// Blocks for the sample that the writer needs.
fn take(queue: &PackQueue, cancel: &Cancel, watch: &mut dyn Watch) -> Result<ReadySample, PackError> {
    loop {
        if watch.wants_to_stop() || cancel.is_cancelled() {
            return Err(PackError::Cancelled);
        }
        if let Some(made) = queue.take_within(CANCEL_POLL) {
            return made;
        }
    }
}

/// Writes samples into one shard after the other.
struct Writer<'a> {
    source: &'a dyn Source,
    folder: &'a Path,
    options: &'a Options,
    syncer: &'a Syncer,
    journal: Journal,
    /// Number of shards so far.
    shards: u64,
    shard: Option<ShardWriter<'a>>,
    /// What was done since the last finished shard.
    done: FinishedShard,
}

impl Writer<'_> {
    fn push(&mut self, number: u64, key: &str, mut ready: ReadySample, summary: &mut Summary) -> Result<(), PackError> {
        let limit = self.options.shard_size.0;
        // Before the sample is counted, so that the journal line of the finished shard does not include it.
        if self.shard.as_ref().is_some_and(|shard| !shard.has_room(key, &ready, limit)) {
            self.finish(summary)?;
        }
        self.done.next = number + 1;
        self.done.stamp = join_stamps(self.done.stamp, ready.stamp);
        self.done.damaged.append(&mut ready.damaged);
        if ready.members.is_empty() {
            self.done.skipped += 1;
            return Ok(());
        }
        self.done.resized += ready.resized;
        if self.shard.is_none() {
            self.shard = Some(ShardWriter::begin(self.folder, self.shards, self.syncer)?);
            self.shards += 1;
        }
        let shard = self.shard.as_mut().expect("a shard was begun");
        shard.push(key, ready)
    }

    /// Finishes the current shard.
    fn finish(&mut self, summary: &mut Summary) -> Result<(), PackError> {
        if let Some(shard) = self.shard.take() {
            (self.done.shard, self.done.samples) = (shard.name().to_owned(), shard.samples());
            let written = shard.finish(self.source.classes())?;
            (self.done.bytes, self.done.index_bytes) = (written.bytes, written.index_bytes);
            summary.written_bytes += written.bytes + written.index_bytes;
        }
        let done = std::mem::take(&mut self.done);
        // After `finish` has renamed both files: a line in the journal means that the shard is complete.
        self.journal.add(&done)?;
        done.add_to(summary);
        Ok(())
    }

    /// Finishes the last shard.
    fn end(mut self, summary: &mut Summary) -> Result<(), PackError> {
        // Also without an open shard, if all remaining samples were left out: the line records how far the source was read.
        if self.done.next > 0 { self.finish(summary) } else { Ok(()) }
    }
}
