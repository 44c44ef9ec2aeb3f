//! Prepares samples on a storage server, up to a cut of the client's plan.
//!
//! In: a sample and a form. Out: a record of the sample in that form, and its cost. The server runs the client's ops with the
//! client's draws and the same version of the code. So the client gets the bytes that it would have computed itself (law 1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline_codec::{CodecError, read_header, trim_progressive};
use feedline_data::batch::{EncodedContent, Sample, Value};
use feedline_data::cpu_time::thread_cpu_time;
use feedline_data::cut::Cut;
use feedline_data::memory::{BatchNeed, Budget, Cancel, NoMemory, Patience, Workspace};
use feedline_data::op::{ChainObserver, FailedOp, OpError, OpRange};
use feedline_data::plan::Plan;
use feedline_data::source::Origin;
use feedline_data::store::{Form, Packing, PeerRequest, ServerCost, StoreError, Trial, Version};
use feedline_order::SampleRequest;

use super::super::{LocalSupply, Reading, Supply, SupplyError};
use crate::cache::record;
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::supply::Loading;

/// Upper limit of memory for one sample.
const MAX_BYTES: u64 = 1 << 30;

/// Prepares the samples of one plan for clients.
#[derive(Debug)]
pub struct NearPreparer {
    plan: Arc<Plan>,
    supply: LocalSupply,
    metrics: Metrics,
    /// Stored bytes by ordinal, looked up at the first request. 0 means unknown.
    stored: Box<[AtomicU64]>,
}

/// The workspace of a server thread.
#[derive(Debug)]
pub struct NearWorkspace {
    scratch: Workspace,
    budget: Arc<Budget>,
}

impl NearWorkspace {
    /// A workspace whose work ends when `cancel` is set.
    pub fn new(cancel: Cancel) -> Self {
        let budget = Budget::fixed(MAX_BYTES, Some(MAX_BYTES));
        Self { scratch: Workspace::new(cancel, usize::MAX), budget }
    }
}

/// Why a sample could not be prepared for a client.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the causes say it")]
pub enum PrepareError {
    #[error(transparent)]
    Supply(#[from] SupplyError),
    #[error("{op} failed")]
    Op { op: String, source: Box<OpError> },
    #[error("the sample cannot be sent in this form")]
    Form,
    #[error("there is no sample {0} in the source")]
    NoSample(u64),
    #[error("{file:?} has changed since it was listed: it is {how}")]
    Changed { file: String, how: String },
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

impl PrepareError {
    /// Whether a seek index is the cause, so that a retry without it makes sense.
    fn is_about_index(&self) -> bool {
        match self {
            Self::Op { source, .. } => matches!(**source, OpError::Codec(CodecError::Index(_))),
            // A part of a picture or volume that a record cannot express. The whole one can be sent.
            Self::Form => true,
            Self::Supply(_) | Self::NoSample(_) | Self::Changed { .. } | Self::Memory(_) => false,
        }
    }
}

impl From<StoreError> for PrepareError {
    fn from(error: StoreError) -> Self {
        Self::Supply(error.into())
    }
}

/// A loaded sample, and the CPU time of loading it.
struct Loaded<'s> {
    sample: Sample<'s>,
    spent: Duration,
}

impl NearPreparer {
    /// A preparer for a plan that [`Plan::open_prefix`] opened.
    pub fn new(plan: Arc<Plan>, machine: &Machine) -> Self {
        let supply = LocalSupply::new(Arc::clone(&plan), machine);
        let stored = (0..plan.source().len()).map(|_| AtomicU64::new(0)).collect();
        Self { metrics: Metrics::new(&plan), supply, plan, stored }
    }

    /// The plan of the samples.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Answers a request. Returns a record and its cost.
    pub fn prepare(
        &self,
        peer_request: &PeerRequest,
        workspace: &mut NearWorkspace,
    ) -> Result<(Vec<u8>, ServerCost), PrepareError> {
        let &(PeerRequest::Sample { request, .. } | PeerRequest::Trials { request }) = peer_request;
        if self.plan.source().ordinal_of(request.id).is_none() {
            return Err(PrepareError::NoSample(request.id.0));
        }
        let NearWorkspace { scratch, budget } = workspace;
        // Every request counts as needed now: the client decides the order.
        scratch.begin(budget.begin(BatchNeed { run: 0, batch: 0 }, 0, Patience::Waits), 0)?;
        let prepared = match peer_request {
            // Checked after reading: if the file is unchanged now, the bytes read are those of the listed version.
            PeerRequest::Sample { form, stored, .. } => self
                .in_form(request, *form, scratch)
                .and_then(|prepared| self.check_stored(request, stored).map(|()| prepared)),
            PeerRequest::Trials { .. } => self.trials(request, scratch),
        };
        scratch.end_keeping(0);
        prepared
    }

    /// Fails if a file of a sample changed since it was listed.
    fn check_stored(&self, request: SampleRequest, stored: &[(String, Version)]) -> Result<(), PrepareError> {
        for (field, listed) in stored {
            let is_loaded = self.plan.loaded().iter().any(|(name, _)| **name == **field);
            if is_loaded
                && let Origin::Whole { store, name } = self.plan.source().origin(request.id, field)
                && let Some(now) = store.version(name)
                && now != *listed
            {
                return Err(PrepareError::Changed { file: name.to_owned(), how: now.difference_to(*listed) });
            }
        }
        Ok(())
    }

    fn in_form(
        &self,
        request: SampleRequest,
        form: Form,
        scratch: &mut Workspace,
    ) -> Result<(Vec<u8>, ServerCost), PrepareError> {
        if form.cut.0 > self.plan.ops().len() {
            return Err(PrepareError::Form);
        }
        let start = thread_cpu_time();
        // A form that is not trimmed needs the whole file, so an index would not help.
        let mut reading = if form.is_trimmed { Reading::Trimmed } else { Reading::Plain };
        let record = loop {
            match self.record(request, form, reading, scratch) {
                // The index does not match the file, or trimming does not make the sample smaller.
                Err(error) if reading == Reading::Trimmed && error.is_about_index() => reading = Reading::Plain,
                other => break other?,
            }
        };
        // If packing does not make the record smaller, it is sent plain. So the form may change.
        let (packed, packing) = form.packing.pack(record);
        let spent = thread_cpu_time().saturating_sub(start);
        let stored_bytes = self.stored_bytes(request)?;
        let form = Form { packing, ..form };
        Ok((packed, ServerCost { form, nanoseconds: spent.as_nanos() as u64, stored_bytes, ..ServerCost::default() }))
    }

    fn record(
        &self,
        request: SampleRequest,
        form: Form,
        reading: Reading,
        scratch: &mut Workspace,
    ) -> Result<Vec<u8>, PrepareError> {
        let Loaded { mut sample, .. } = self.load(request, reading, scratch)?;
        // In a form that is not trimmed the last op computes its whole result. Not with an approximate decoder: its pixels depend
        // on the crop after it, so a whole result would have other bytes.
        let cut = form.cut.0;
        let is_whole = !form.is_trimmed && !self.plan.is_approximate();
        let range = OpRange { ops: 0..cut, whole: if is_whole { cut.saturating_sub(1)..cut } else { 0..0 } };
        self.run(&range, request, &mut sample, scratch, &mut ())?;
        if cut == 0 && form.is_trimmed {
            self.trim(&mut sample, request, scratch);
        }
        record::write_parts(&sample).ok_or(PrepareError::Form)
    }

    fn load<'s>(
        &self,
        request: SampleRequest,
        reading: Reading,
        scratch: &mut Workspace,
    ) -> Result<Loaded<'s>, PrepareError> {
        let start = thread_cpu_time();
        let mut sample = Sample::new();
        let loading = Loading { request, reading, sample: &mut sample, workspace: scratch, metrics: &self.metrics };
        self.supply.load(loading)?;
        Ok(Loaded { sample, spent: thread_cpu_time().saturating_sub(start) })
    }

    fn run(
        &self,
        range: &OpRange,
        request: SampleRequest,
        sample: &mut Sample<'_>,
        scratch: &mut Workspace,
        observer: &mut impl ChainObserver,
    ) -> Result<(), PrepareError> {
        let ran = self.plan.chain().run(range, request, sample, scratch, observer);
        ran.map_err(|FailedOp { op, cause }| PrepareError::Op {
            op: self.plan.ops()[op].name().to_string(),
            source: cause.into(),
        })
    }

    /// Builds the seek indexes that are wanted. No decoder does it, because encoded pictures are sent.
    fn build_indexes(&self, sample: &mut Sample<'_>) {
        for (name, _) in self.plan.loaded().iter() {
            if let Ok(Value::Bytes(encoded)) = sample.get(name) {
                encoded.build_index();
            }
        }
    }

    /// Cuts encoded pictures to the part that the crop after the decoder needs, if that makes them smaller.
    fn trim(&self, sample: &mut Sample<'_>, request: SampleRequest, scratch: &mut Workspace) {
        self.build_indexes(sample);
        for (name, _) in self.plan.loaded().iter() {
            let Some((decoder, decoding)) = self.plan.chain().decoder_of(name) else { continue };
            let Ok(Value::Bytes(encoded)) = sample.get(name) else { continue };
            let memory = &*encoded.memory;
            // Where the bytes begin in their file, and its index.
            let parts = match &encoded.content {
                EncodedContent::Whole { index: Some(index) } => Some((0, index)),
                EncodedContent::Part { offset, index } => Some((*offset, index)),
                EncodedContent::Whole { index: None } => None,
                EncodedContent::Unindexed(_) | EncodedContent::Trimmed => continue,
            };
            let Ok(header) = parts.map_or_else(|| read_header(memory), |(_, index)| Ok(index.header())) else {
                continue;
            };
            let Some(need) = self.plan.chain().ahead(decoder, request).need(name, decoding.facts(&header)) else {
                continue;
            };
            let (crop, options) = (decoding.crop(&header, need), decoding.options(Some(need), &|| false));
            let trimmed = if let Some((offset, index)) = parts {
                index.trim(crop, &options, memory, offset).ok()
            } else {
                // All scans of a progressive file are read. Channels and orientation do not matter for its coefficients.
                let has_room = scratch.reserve(header.decode_bytes(crop, 1, false) as usize).is_ok();
                if has_room { trim_progressive(memory, crop, &options).ok().flatten() } else { None }
            };
            let Some(trimmed) = trimmed.filter(|trimmed| trimmed.len() < encoded.memory.len()) else {
                // A part cannot be cut further. The caller loads the whole sample instead.
                if encoded.is_whole() {
                    encoded.content = EncodedContent::Whole { index: None };
                }
                continue;
            };
            let old = std::mem::replace(&mut encoded.memory, trimmed.into());
            encoded.content = EncodedContent::Trimmed;
            sample.give_back(name, old, scratch);
        }
    }

    /// The stored size of a sample in bytes.
    fn stored_bytes(&self, request: SampleRequest) -> Result<u64, PrepareError> {
        let ordinal = self.plan.source().ordinal_of(request.id).ok_or(PrepareError::NoSample(request.id.0))?;
        let known = &self.stored[ordinal.0 as usize];
        let mut bytes = known.load(Ordering::Relaxed);
        if bytes > 0 {
            return Ok(bytes);
        }
        for (name, _) in self.plan.loaded().iter() {
            if let Some((_, range)) = self.plan.source().origin(request.id, name).open()? {
                bytes += range.end - range.start;
            }
        }
        known.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Measures a sample in all forms. Forms that cannot be sent are left out. If an op fails, all trials fail.
    fn trials(&self, request: SampleRequest, scratch: &mut Workspace) -> Result<(Vec<u8>, ServerCost), PrepareError> {
        let start = thread_cpu_time();
        let mut trials = Vec::new();
        for is_trimmed in [false, true] {
            if is_trimmed {
                // The first trimmed load may build a seek index or search a label. Later ones reuse the result, so it is not
                // measured.
                let Loaded { mut sample, .. } = self.load(request, Reading::Trimmed, scratch)?;
                self.build_indexes(&mut sample);
            }
            let reading = if is_trimmed { Reading::Trimmed } else { Reading::Plain };
            // Each pass starts from a fresh load, because ops change the sample.
            let Loaded { mut sample, spent } = self.load(request, reading, scratch)?;
            if is_trimmed {
                let form = Form { is_trimmed, ..Form::RAW };
                trials.extend(self.in_form(request, form, scratch).ok().map(|(bytes, spent)| Trial {
                    form,
                    bytes: bytes.len() as u64,
                    nanoseconds: spent.nanoseconds,
                }));
            } else if self.plan.loads_volumes() {
                let (bytes, nanoseconds) = (self.stored_bytes(request)?, spent.as_nanos() as u64);
                trials.push(Trial { form: Form::RAW, bytes, nanoseconds });
            } else {
                pack_trials(&sample, Form::RAW, spent, &mut trials);
            }
            // No op computes a whole result only for a trial. `pack_trials` estimates the size of the whole result instead.
            let range = OpRange { ops: 0..self.plan.ops().len(), whole: 0..0 };
            let mut each = EachForm { is_trimmed, spent, since: Duration::ZERO, trials: &mut trials };
            self.run(&range, request, &mut sample, scratch, &mut each)?;
        }
        let nanoseconds = thread_cpu_time().saturating_sub(start).as_nanos() as u64;
        let stored_bytes = self.stored_bytes(request)?;
        Ok((Vec::new(), ServerCost { nanoseconds, stored_bytes, trials, ..ServerCost::default() }))
    }
}

/// Measures each form that a sample passes through along the chain.
struct EachForm<'a> {
    is_trimmed: bool,
    /// CPU time of loading and ops so far, without that of packing.
    spent: Duration,
    /// CPU time of the thread when the current op began.
    since: Duration,
    trials: &'a mut Vec<Trial>,
}

impl ChainObserver for EachForm<'_> {
    fn before(&mut self, _: usize, _: &Sample<'_>, _: &mut Workspace) {
        self.since = thread_cpu_time();
    }

    fn after(&mut self, op: usize, sample: &Sample<'_>) {
        // Only the op's own time. Packing trials run between `after` and the next `before`.
        self.spent += thread_cpu_time().saturating_sub(self.since);
        let form = Form { cut: Cut(op + 1), is_trimmed: self.is_trimmed, packing: Packing::Plain };
        pack_trials(sample, form, self.spent, self.trials);
    }
}

/// Measures the current form of a sample in each packing.
fn pack_trials(sample: &Sample<'_>, form: Form, spent: Duration, trials: &mut Vec<Trial>) {
    let is_part = |value: &Value<'_>| matches!(value, Value::Pixels(pixels) if pixels.excerpt.is_some());
    if !form.is_trimmed && sample.values().any(|(_, value)| is_part(value)) {
        // Only a part of the pixels was computed, but this form would send all of them. `content_bytes` is the size of all.
        let bytes = sample.values().map(|(_, value)| value.content_bytes() as u64).sum();
        trials.push(Trial { form, bytes, nanoseconds: spent.as_nanos() as u64 });
        return;
    }
    for packing in Packing::ALL {
        let start = thread_cpu_time();
        let Some(record) = record::write_parts(sample) else { return };
        let bytes = packing.pack(record).0.len() as u64;
        let spent = spent + thread_cpu_time().saturating_sub(start);
        trials.push(Trial { form: Form { packing, ..form }, bytes, nanoseconds: spent.as_nanos() as u64 });
    }
}
