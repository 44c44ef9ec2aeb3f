//! Caches samples after the deterministic ops at the start of a chain, in memory or on disk.
//!
//! In: samples on their way through the ops. Out: the same samples in later epochs, without reading and without these ops. The
//! cache wraps another supply. Its samples have the bytes that the inner supply and the ops would produce (law 1).
//!
//! With a cache on disk, or in memory shared between loaders, a record carries the stamp of its files: a changed file is a miss. A
//! memory cache of one loader alone has no stamps and does not notice changed files.
//!
//! Always true: a cached sample stays cached, so under random access only the samples that did not fit are misses. Memory and disk
//! each stay below their limit. On disk, samples that other plans cache after this run started are not counted.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use feedline_data::batch::{BatchLayout, Sample, Value};
use feedline_data::cut::Cut;
use feedline_data::dtype::Dtype;
use feedline_data::memory::{NoMemory, Workspace};
use feedline_data::op::WorkHint;
use feedline_data::plan::{CacheConfig, CacheForm, Plan};
use feedline_data::private_files::CacheFolder;
use feedline_data::source::sample_stamp;
use feedline_data::store::StoreError;
use feedline_memory::{Mutex, SlotWriter};
use feedline_order::{Ordinal, Place, SampleRequest};

use crate::cache::record::{self, Resume};
use crate::cache::{KeptCache, Memories, MemoryShelf, Shelf};
use crate::machine::Machine;
use crate::metrics::{Metrics, OpTotals, ReservoirSnapshot, TrafficMeter};
use crate::offload::OffloadReport;
use crate::supply::{Keeping, Loading, Made, MakeError, Making, Reading, Ready, Supply, SupplyError, Task};

/// Number of samples to measure before the cut is chosen.
const MEASURED_SAMPLES: u64 = 32;
/// In a small set one sample in this many is measured, so that few but large samples are cached from the first epoch on.
const MEASURED_SHARE: u64 = 8;

/// A supply that caches the samples of another one.
#[derive(Debug)]
pub(super) struct PrefixCache {
    plan: Arc<Plan>,
    inner: Arc<dyn Supply>,
    /// The cut at which samples are cached, once it is known, and the records of a run alone.
    kept: Arc<KeptCache>,
    /// The records in memory, once the cut is known.
    memory: OnceLock<Arc<MemoryShelf>>,
    memory_limit: u64,
    /// Records that runs of this process share.
    memories: Option<Arc<Memories>>,
    /// The records on disk, in one folder per cut.
    disk: Option<Disk>,
}

#[derive(Debug)]
struct Disk {
    shelf: OnceLock<Shelf>,
    cache_folder: CacheFolder,
    limit: u64,
    /// Set when a record did not fit or could not be written. From then on nothing is written.
    is_full: AtomicBool,
    /// One bit per sample, by ordinal: whether an intact record is known to be on disk.
    known: Mutex<Vec<u8>>,
}

impl Disk {
    fn knows(&self, Ordinal(ordinal): Ordinal) -> bool {
        let known = self.known.lock();
        known.get((ordinal / 8) as usize).is_some_and(|byte| byte >> (ordinal % 8) & 1 == 1)
    }

    fn learn(&self, Ordinal(ordinal): Ordinal) {
        let mut known = self.known.lock();
        let place = (ordinal / 8) as usize;
        if known.len() <= place {
            known.resize(place + 1, 0);
        }
        known[place] |= 1 << (ordinal % 8);
    }
}

impl PrefixCache {
    /// A cache around `inner` for the samples of `plan`.
    pub(super) fn new(plan: Arc<Plan>, inner: Arc<dyn Supply>, config: &CacheConfig, machine: &Machine) -> Self {
        let kept = machine.kept_cache.clone().unwrap_or_default();
        if let Some(form) = config.form {
            kept.cut.get_or_init(|| plan.cut_of(form));
        }
        let disk = config.disk.zip(machine.cache_folder.as_ref()).map(|(limit, folder)| Disk {
            shelf: OnceLock::new(),
            cache_folder: folder.clone(),
            limit: limit.0,
            is_full: AtomicBool::new(false),
            known: Mutex::default(),
        });
        Self {
            plan,
            inner,
            kept,
            memory: OnceLock::new(),
            memory_limit: config.ram.map_or(0, |ram| ram.0),
            memories: machine.memories.clone(),
            disk,
        }
    }

    /// The cut. If the plan does not name it, the cut that saves the most time per byte. `None` until enough samples are measured.
    fn cut(&self, metrics: &Metrics) -> Option<Cut> {
        if let Some(cut) = self.kept.cut.get() {
            return Some(*cut);
        }
        // Number of ops that may be cached. The candidates are the cuts from 0 to this number.
        let longest = self.plan.cut_of(CacheForm::Resized).0;
        let (read_time, read_bytes, reads) = metrics.read.read();
        let measured = longest.checked_sub(1).map_or(reads, |last| metrics.ops[last].read().samples);
        if measured < MEASURED_SAMPLES.min(self.plan.source().len().div_ceil(MEASURED_SHARE)) {
            return None;
        }
        // A cached sample saves its read and all ops before the cut. Divided by the bytes it occupies, this ranks the cuts.
        let mut saved = read_time.as_secs_f64() / reads.max(1) as f64;
        let mut best = (saved / (read_bytes as f64 / reads.max(1) as f64).max(1.0), Cut(0));
        for (number, op) in metrics.ops[..longest].iter().enumerate() {
            let OpTotals { busy, bytes_out: bytes, samples, .. } = op.read();
            saved += busy.as_secs_f64() / samples.max(1) as f64;
            let worth = saved / (bytes as f64 / samples.max(1) as f64).max(1.0);
            // On a tie the later cut wins: it saves more time in total if all samples fit.
            if worth >= best.0 {
                best = (worth, Cut(number + 1));
            }
        }
        // Another thread may have decided first. All threads use the one that was stored.
        let cut = *self.kept.cut.get_or_init(|| best.1);
        tracing::info!(form = self.plan.form_of(cut), "chose what the cache keeps");
        Some(cut)
    }

    fn shelf<'a>(&self, disk: &'a Disk, cut: Cut) -> &'a Shelf {
        disk.shelf.get_or_init(|| {
            let below = Path::new("samples").join(self.plan.prefix_fingerprint(cut).to_string());
            // The limit covers all cached samples in the folder, also those of other cuts and other sources.
            let others = Shelf::bytes_beside(&disk.cache_folder.join(&below));
            Shelf::new(disk.cache_folder.clone(), below, Some(disk.limit.saturating_sub(others)))
        })
    }

    fn ordinal(&self, request: SampleRequest) -> Ordinal {
        self.plan.source().ordinal_of(request.id).unwrap_or_default()
    }

    /// The records in memory, if memory may be used.
    fn memory(&self) -> Option<&MemoryShelf> {
        let cut = *self.kept.cut.get().filter(|_| self.memory_limit > 0)?;
        let shelf = self.memory.get_or_init(|| {
            let prefix = self.plan.prefix_fingerprint(cut);
            let shelf = self.memories.as_ref().map_or_else(|| self.kept.shelf(prefix), |common| common.shelf(prefix));
            shelf.widen(self.memory_limit);
            shelf
        });
        Some(shelf)
    }

    fn is_in_memory(&self, request: SampleRequest) -> bool {
        self.memory().is_some_and(|memory| memory.has(request.id.0))
    }

    /// Whether a sample is cached, as far as known without reading it.
    fn has(&self, request: SampleRequest) -> bool {
        let on_disk = || Some(self.shelf(self.disk.as_ref()?, *self.kept.cut.get()?).has(request.id.0));
        self.is_in_memory(request) || on_disk().unwrap_or(false)
    }

    /// Whether new samples can be cached.
    fn has_room(&self) -> bool {
        let on_disk = self.disk.as_ref().is_some_and(|disk| !disk.is_full.load(Ordering::Relaxed));
        self.kept.cut.get().is_some() && (on_disk || self.memory().is_some_and(|memory| !memory.is_full()))
    }

    /// The stamp of a sample's files. 0 if no record outlives the loader: then none is needed, and reading one may open the files.
    fn stamp(&self, request: SampleRequest) -> Result<u64, StoreError> {
        let fields = self.plan.loaded().iter().map(|(name, _)| &**name);
        if self.disk.is_some() || self.memories.is_some() {
            sample_stamp(&**self.plan.source(), request.id, fields)
        } else {
            Ok(0)
        }
    }

    /// Stores a record in memory if it fits.
    fn keep_in_memory(&self, request: SampleRequest, stamp: u64, record: Arc<Vec<u8>>, metrics: &Metrics) {
        let len = record.len();
        if self.memory().is_some_and(|memory| memory.put(request.id.0, stamp, record)) {
            metrics.cache.add_to_memory(len);
        }
    }

    /// Finds the foregrounds of labels that later epochs will need, so that they are cached too.
    fn find_foregrounds(
        &self,
        cut: Cut,
        request: SampleRequest,
        sample: &Sample<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), NoMemory> {
        let ahead = self.plan.chain().ahead_from(cut.0, request);
        for (name, value) in sample.values() {
            if let Value::Volume(label) = value
                && label.dtype == Dtype::U8
                && label.excerpt.is_none()
                && ahead.asks_for_foreground(name)
            {
                label.foreground(workspace)?;
            }
        }
        Ok(())
    }

    fn find(
        &self,
        request: SampleRequest,
        cut: Cut,
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) -> Result<Option<Arc<Vec<u8>>>, StoreError> {
        let is_shared_hit = self.memories.is_some() && self.is_in_memory(request);
        // Reading a stamp may open the files, so it is read only if there may be a record with a stamp.
        let stamp = if is_shared_hit || self.disk.is_some() { self.stamp(request)? } else { 0 };
        let kept = self.memory().and_then(|memory| memory.get(request.id.0, stamp));
        if kept.is_some() {
            return Ok(kept);
        }
        let Some(disk) = &self.disk else { return Ok(None) };
        let mut bytes = Vec::new();
        if !self.shelf(disk, cut).get(request.id.0, stamp, &mut bytes, |len| workspace.reserve(len))? {
            return Ok(None);
        }
        // The record is intact and has the right stamp, so it is not written again.
        disk.learn(self.ordinal(request));
        let record = Arc::new(bytes);
        self.keep_in_memory(request, stamp, Arc::clone(&record), metrics);
        Ok(Some(record))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Supply for PrefixCache {
    fn request_whole(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        self.inner.request_whole(tasks, ready);
    }

    fn reservoir(&self) -> Option<ReservoirSnapshot> {
        self.inner.reservoir()
    }

    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        if !self.plan.source().is_remote() {
            return self.inner.request(tasks, ready);
        }
        // A cached sample is not fetched. A sample that will be cached is fetched whole.
        let is_here = |task: &mut Task| task.requests(&self.plan).into_iter().all(|request| self.has(request));
        let mut tasks = tasks;
        let here: Vec<Task> = tasks.extract_if(.., is_here).collect();
        if !here.is_empty() {
            ready.ready(here);
        }
        match tasks {
            tasks if tasks.is_empty() => {}
            // Until the cut is known, ops must run here, because their costs decide it.
            tasks if self.has_room() || self.kept.cut.get().is_none() => self.inner.request_whole(tasks, ready),
            tasks => self.inner.request(tasks, ready),
        }
    }

    fn forget(&self) {
        self.inner.forget();
    }

    fn task_time(&self) -> Duration {
        self.inner.task_time()
    }

    fn layout(&self) -> Option<Arc<BatchLayout>> {
        self.inner.layout()
    }

    fn makes_samples(&self) -> bool {
        self.inner.makes_samples()
    }

    fn make(&self, making: Making<'_>) -> Result<Vec<Made>, MakeError> {
        self.inner.make(making)
    }

    fn fills_rows(&self) -> bool {
        // A sample is looked up and cached by itself.
        false
    }

    fn fill_rows(&self, samples: &[(Place, SampleRequest)], first: usize, writer: &mut SlotWriter) {
        self.inner.fill_rows(samples, first, writer);
    }

    fn samples_ahead(&self) -> usize {
        self.inner.samples_ahead()
    }

    fn traffic(&self) -> Arc<TrafficMeter> {
        self.inner.traffic()
    }

    fn work_hint(&self, request: SampleRequest) -> WorkHint {
        match self.inner.work_hint(request) {
            WorkHint::Search if self.has(request) => WorkHint::Usual,
            work_hint => work_hint,
        }
    }

    fn offload(&self) -> Option<OffloadReport> {
        self.inner.offload()
    }

    fn load(&self, loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        let mut loading = loading;
        let Loading { request, reading, ref mut sample, ref mut workspace, metrics } = loading;
        if let Some(cut) = self.cut(metrics).filter(|_| reading != Reading::Plain)
            && let Some(bytes) = self.find(request, cut, workspace, metrics)?
            && record::read(&bytes, sample, Resume { plan: &self.plan, cut, request }, workspace)
                .map_err(StoreError::from)?
                .is_some()
        {
            metrics.cache.add_hit();
            return Ok(cut);
        }
        metrics.cache.add_miss();
        // A seek index is only useful in the record of an encoded picture. A decoded one is never read in parts.
        let is_encoded = self.kept.cut.get() == Some(&Cut(0));
        let is_whole = reading == Reading::Complete;
        if is_whole && !is_encoded {
            loading.reading = Reading::Plain;
        }
        match self.inner.load(loading.attempt()) {
            // The damage may lie outside the part that the ops need, so the sample is prepared without being cached.
            Err(SupplyError::Volume(error)) if is_whole && error.no_memory().is_none() => {
                loading.reading = Reading::Trimmed;
                self.inner.load(loading)
            }
            loaded => loaded,
        }
    }

    fn keeps(&self, request: SampleRequest, metrics: &Metrics) -> Option<Keeping> {
        let cut = self.cut(metrics)?;
        // In memory that runs share, a record of an older version of the file is replaced.
        let is_current = |memory: &MemoryShelf| {
            self.memories.is_none() || self.stamp(request).is_ok_and(|stamp| memory.get(request.id.0, stamp).is_some())
        };
        let has = |memory: &MemoryShelf| memory.has(request.id.0) && is_current(memory);
        let memory_takes = self.memory().is_some_and(|memory| !memory.is_full() && !has(memory));
        let disk_takes = |disk: &Disk| !disk.is_full.load(Ordering::Relaxed) && !disk.knows(self.ordinal(request));
        let is_wanted = memory_takes || self.disk.as_ref().is_some_and(disk_takes);
        // A file that cannot be opened fails when it is loaded, with an error that says why.
        is_wanted.then(|| Some(Keeping { cut, stamp: self.stamp(request).ok()? }))?
    }

    fn keep(
        &self,
        keeping: Keeping,
        request: SampleRequest,
        sample: &Sample<'_>,
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) {
        // Another thread or run has stored it since `keeps` was called.
        let is_in_memory = self.memory().is_some_and(|memory| memory.get(request.id.0, keeping.stamp).is_some());
        if is_in_memory && self.disk.as_ref().is_none_or(|disk| disk.knows(self.ordinal(request))) {
            return;
        }
        let len = sample.values().map(|(_, value)| value.content_bytes()).sum();
        if workspace.reserve(len).is_err() {
            return;
        }
        // After `reserve`: without room for the record the search would be in vain.
        if self.find_foregrounds(keeping.cut, request, sample, workspace).is_err() {
            return;
        }
        let Some(bytes) = record::write(sample).filter(|bytes| bytes.len() <= Shelf::MAX_CONTENT_BYTES) else { return };
        // The file changed while the sample was prepared, so the record must not carry its stamp.
        if self.stamp(request).ok() != Some(keeping.stamp) {
            return;
        }
        if let Some(disk) = self.disk.as_ref().filter(|disk| !disk.knows(self.ordinal(request))) {
            if self.shelf(disk, keeping.cut).put(request.id.0, keeping.stamp, &bytes) {
                disk.learn(self.ordinal(request));
                metrics.cache.add_to_disk(bytes.len());
            } else {
                // No room, or a failed write, which `Shelf::put` has logged.
                disk.is_full.store(true, Ordering::Relaxed);
            }
        }
        self.keep_in_memory(request, keeping.stamp, Arc::new(bytes), metrics);
    }
}
