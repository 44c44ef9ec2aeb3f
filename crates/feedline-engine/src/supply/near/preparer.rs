//! Prepares samples for others, up to a cut of their plan.
//!
//! In: a sample and a form. Out: a record of the sample in that form, and what it took. The ops, the draws and the code are
//! those that whoever asks would use himself, so he gets the bytes that he would have made (law 1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline_codec::CodecError;
use feedline_data::batch::{EncodedContent, Sample, Value};
use feedline_data::cpu_time::thread_cpu_time;
use feedline_data::cut::Cut;
use feedline_data::memory::{BatchNeed, Budget, Cancel, NoMemory, Patience, Workspace};
use feedline_data::op::{ChainObserver, FailedOp, OpError, OpRange};
use feedline_data::plan::Plan;
use feedline_data::source::Origin;
use feedline_data::store::{Asked, Form, Packing, ServerCost, StoreError, Trial, Version};
use feedline_order::SampleRequest;

use super::super::{LocalSupply, Reading, Supply, SupplyError};
use crate::cache::record;
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::supply::Loading;

/// Memory that one sample may take.
const MOST_BYTES: u64 = 1 << 30;

/// Prepares the samples of one plan.
#[derive(Debug)]
pub struct NearPreparer {
    plan: Arc<Plan>,
    supply: LocalSupply,
    metrics: Metrics,
    /// Stored bytes by sample, as they were when it was first asked for; 0 before that.
    stored: Box<[AtomicU64]>,
}

/// The tools of a thread that prepares for others.
#[derive(Debug)]
pub struct NearWorkspace {
    tools: Workspace,
    budget: Arc<Budget>,
}

impl NearWorkspace {
    /// Tools that give up when `cancel` is.
    pub fn new(cancel: Cancel) -> Self {
        let budget = Budget::asked(MOST_BYTES, Some(MOST_BYTES));
        Self { tools: Workspace::new(cancel, usize::MAX), budget }
    }
}

/// Why a sample could not be prepared for another.
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
    /// Whether a seek index is to blame, so that it may be tried without.
    fn is_about_index(&self) -> bool {
        match self {
            Self::Op { source, .. } => matches!(**source, OpError::Codec(CodecError::Index(_))),
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

/// A sample that was loaded, and the processor time of that.
struct Loaded<'s> {
    sample: Sample<'s>,
    spent: Duration,
}

impl NearPreparer {
    /// Prepares samples of a plan that was opened by [`Plan::open_prefix`].
    pub fn new(plan: Arc<Plan>, machine: &Machine) -> Self {
        let supply = LocalSupply::new(Arc::clone(&plan), machine);
        let stored = (0..plan.source().len()).map(|_| AtomicU64::new(0)).collect();
        Self { metrics: Metrics::new(&plan), supply, plan, stored }
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Does what is asked for; gives a record, and what it took.
    pub fn prepare(&self, asked: &Asked, workspace: &mut NearWorkspace) -> Result<(Vec<u8>, ServerCost), PrepareError> {
        let &(Asked::Sample { wanted, .. } | Asked::Trials { wanted }) = asked;
        if self.plan.source().ordinal_of(wanted.id).is_none() {
            return Err(PrepareError::NoSample(wanted.id.0));
        }
        let NearWorkspace { tools, budget } = workspace;
        tools.begin(budget.begin(BatchNeed { run: 0, batch: 0 }, 0, Patience::Waits), 0)?;
        let prepared = match asked {
            // Looked at afterwards: what was read is what was listed, if the file still is.
            Asked::Sample { form, stored, .. } => self
                .in_form(wanted, *form, tools)
                .and_then(|prepared| self.check_stored(wanted, stored).map(|()| prepared)),
            Asked::Trials { .. } => self.trials(wanted, tools),
        };
        tools.end_keeping(0);
        prepared
    }

    /// An error if a file of a sample is not the one that was listed.
    fn check_stored(&self, wanted: SampleRequest, stored: &[(String, Version)]) -> Result<(), PrepareError> {
        for (field, listed) in stored {
            let is_loaded = self.plan.loaded().iter().any(|(name, _)| **name == **field);
            if is_loaded
                && let Origin::Whole { store, name } = self.plan.source().origin(wanted.id, field)
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
        wanted: SampleRequest,
        form: Form,
        tools: &mut Workspace,
    ) -> Result<(Vec<u8>, ServerCost), PrepareError> {
        if form.cut.0 > self.plan.ops().len() {
            return Err(PrepareError::Form);
        }
        let start = thread_cpu_time();
        let mut reading = if form.is_trimmed { Reading::Trimmed } else { Reading::Plain };
        let record = loop {
            match self.record(wanted, form, reading, tools) {
                // The index is not that of the file, or would not help.
                Err(error) if reading == Reading::Trimmed && error.is_about_index() => reading = Reading::Plain,
                other => break other?,
            }
        };
        let (packed, packing) = form.packing.pack(record);
        let spent = thread_cpu_time().saturating_sub(start);
        let stored_bytes = self.stored_bytes(wanted)?;
        let form = Form { packing, ..form };
        Ok((packed, ServerCost { form, nanoseconds: spent.as_nanos() as u64, stored_bytes, ..ServerCost::default() }))
    }

    fn record(
        &self,
        wanted: SampleRequest,
        form: Form,
        reading: Reading,
        tools: &mut Workspace,
    ) -> Result<Vec<u8>, PrepareError> {
        let Loaded { mut sample, .. } = self.load(wanted, reading, tools)?;
        // The last op makes all of its result, unless the form says otherwise. What an approximate decoder makes depends on the
        // crop behind it.
        let cut = form.cut.0;
        let is_whole = !form.is_trimmed && !self.plan.is_approximate();
        let range = OpRange { ops: 0..cut, whole: if is_whole { cut.saturating_sub(1)..cut } else { 0..0 } };
        self.run(&range, wanted, &mut sample, tools, &mut ())?;
        if cut == 0 && form.is_trimmed {
            self.trim(&mut sample, wanted, tools);
        }
        record::write_parts(&sample).ok_or(PrepareError::Form)
    }

    fn load<'s>(
        &self,
        wanted: SampleRequest,
        reading: Reading,
        tools: &mut Workspace,
    ) -> Result<Loaded<'s>, PrepareError> {
        let start = thread_cpu_time();
        let mut sample = Sample::new();
        let loading =
            Loading { request: wanted, reading, sample: &mut sample, workspace: tools, metrics: &self.metrics };
        self.supply.load(loading)?;
        Ok(Loaded { sample, spent: thread_cpu_time().saturating_sub(start) })
    }

    fn run(
        &self,
        range: &OpRange,
        wanted: SampleRequest,
        sample: &mut Sample<'_>,
        tools: &mut Workspace,
        observer: &mut impl ChainObserver,
    ) -> Result<(), PrepareError> {
        let ran = self.plan.chain().run(range, wanted, sample, tools, observer);
        ran.map_err(|FailedOp { op, cause }| PrepareError::Op {
            op: self.plan.ops()[op].name().to_string(),
            source: cause.into(),
        })
    }

    /// Cuts encoded pictures to what the crop behind their decoder needs, where that makes them smaller.
    fn trim(&self, sample: &mut Sample<'_>, wanted: SampleRequest, tools: &mut Workspace) {
        for (name, _) in self.plan.loaded().iter() {
            let Some((decoder, decoding)) = self.plan.chain().decoder_of(name) else { continue };
            let Ok(Value::Bytes(encoded)) = sample.get(name) else { continue };
            let (offset, index) = match &encoded.content {
                EncodedContent::Whole { index: Some(index) } => (0, index),
                EncodedContent::Part { offset, index } => (*offset, index),
                EncodedContent::Whole { index: None } | EncodedContent::Trimmed => continue,
            };
            let header = index.header();
            let Some(need) = self.plan.chain().ahead(decoder, wanted).need(name, decoding.facts(&header)) else {
                continue;
            };
            let options = decoding.options(Some(need), &|| false);
            let trimmed = index.trim(decoding.crop(&header, need), &options, &encoded.memory, offset);
            let trimmed = match trimmed {
                Ok(trimmed) if trimmed.len() < encoded.memory.len() => trimmed,
                // A part is of no use to others: the sample is loaded whole then.
                _ if !encoded.is_whole() => continue,
                _ => {
                    encoded.content = EncodedContent::Whole { index: None };
                    continue;
                }
            };
            let old = std::mem::replace(&mut encoded.memory, trimmed.into());
            encoded.content = EncodedContent::Trimmed;
            sample.give_back(name, old, tools);
        }
    }

    /// Bytes of a sample as it is stored.
    fn stored_bytes(&self, wanted: SampleRequest) -> Result<u64, PrepareError> {
        let ordinal = self.plan.source().ordinal_of(wanted.id).ok_or(PrepareError::NoSample(wanted.id.0))?;
        let known = &self.stored[ordinal.0 as usize];
        let mut bytes = known.load(Ordering::Relaxed);
        if bytes > 0 {
            return Ok(bytes);
        }
        for (name, _) in self.plan.loaded().iter() {
            if let Some((_, range)) = self.plan.source().origin(wanted.id, name).open()? {
                bytes += range.end - range.start;
            }
        }
        known.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// What a sample takes in all forms. Where a form cannot be had, it is left out.
    fn trials(&self, wanted: SampleRequest, tools: &mut Workspace) -> Result<(Vec<u8>, ServerCost), PrepareError> {
        let start = thread_cpu_time();
        let mut trials = Vec::new();
        for is_trimmed in [false, true] {
            if is_trimmed {
                // What the first sight of a file costs, none of the later ones does.
                drop(self.load(wanted, Reading::Trimmed, tools)?);
            }
            let reading = if is_trimmed { Reading::Trimmed } else { Reading::Plain };
            let Loaded { mut sample, spent } = self.load(wanted, reading, tools)?;
            if is_trimmed {
                let form = Form { is_trimmed, ..Form::RAW };
                trials.extend(self.in_form(wanted, form, tools).ok().map(|(bytes, spent)| Trial {
                    form,
                    bytes: bytes.len() as u64,
                    nanoseconds: spent.nanoseconds,
                }));
            } else if self.plan.loads_volumes() {
                let (bytes, nanoseconds) = (self.stored_bytes(wanted)?, spent.as_nanos() as u64);
                trials.push(Trial { form: Form::RAW, bytes, nanoseconds });
            } else {
                pack_trials(&sample, Form::RAW, spent, &mut trials);
            }
            // Ops that follow look at parts of what is there, so no op makes a whole result for the trial alone.
            let range = OpRange { ops: 0..self.plan.ops().len(), whole: 0..0 };
            let mut each = EachForm { is_trimmed, spent, since: Duration::ZERO, trials: &mut trials };
            self.run(&range, wanted, &mut sample, tools, &mut each)?;
        }
        let nanoseconds = thread_cpu_time().saturating_sub(start).as_nanos() as u64;
        let stored_bytes = self.stored_bytes(wanted)?;
        Ok((Vec::new(), ServerCost { nanoseconds, stored_bytes, trials, ..ServerCost::default() }))
    }
}

/// Tries each form that a sample passes through on its way along the chain.
struct EachForm<'a> {
    is_trimmed: bool,
    /// Processor time until now, without that of the trials.
    spent: Duration,
    since: Duration,
    trials: &'a mut Vec<Trial>,
}

impl ChainObserver for EachForm<'_> {
    fn before(&mut self, _: usize, _: &Sample<'_>, _: &mut Workspace) {
        self.since = thread_cpu_time();
    }

    fn after(&mut self, op: usize, sample: &Sample<'_>) {
        self.spent += thread_cpu_time().saturating_sub(self.since);
        let form = Form { cut: Cut(op + 1), is_trimmed: self.is_trimmed, packing: Packing::Plain };
        pack_trials(sample, form, self.spent, self.trials);
    }
}

/// What a sample takes as it is now, in each packing.
fn pack_trials(sample: &Sample<'_>, form: Form, spent: Duration, trials: &mut Vec<Trial>) {
    let is_part = |value: &Value<'_>| matches!(value, Value::Pixels(pixels) if pixels.excerpt.is_some());
    if !form.is_trimmed && sample.values().any(|(_, value)| is_part(value)) {
        // Of what would be made whole only a part was made.
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
