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
use feedline_data::memory::{Budget, Cancel, NoMemory, Patience, Workspace};
use feedline_data::op::OpError;
use feedline_data::plan::Plan;
use feedline_data::source::Origin;
use feedline_data::store::{Asked, Form, Packing, Spent, StoreError, Trial, Version};
use feedline_order::SampleRequest;

use super::super::{LocalSupply, Reading, Supply, SupplyError};
use crate::cache::record;
use crate::machine::Machine;
use crate::metrics::Metrics;

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

/// How far a sample is, and what that took.
struct Progress<'s> {
    sample: Sample<'s>,
    done: usize,
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
    pub fn prepare(&self, asked: &Asked, workspace: &mut NearWorkspace) -> Result<(Vec<u8>, Spent), PrepareError> {
        let &(Asked::Sample { wanted, .. } | Asked::Trials { wanted }) = asked;
        if self.plan.source().ordinal_of(wanted.id).is_none() {
            return Err(PrepareError::NoSample(wanted.id.0));
        }
        let NearWorkspace { tools, budget } = workspace;
        tools.begin(budget.begin((0, 0), 0, Patience::Waits), 0)?;
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
    ) -> Result<(Vec<u8>, Spent), PrepareError> {
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
        Ok((packed, Spent { form, nanoseconds: spent.as_nanos() as u64, stored_bytes, ..Spent::default() }))
    }

    fn record(
        &self,
        wanted: SampleRequest,
        form: Form,
        reading: Reading,
        tools: &mut Workspace,
    ) -> Result<Vec<u8>, PrepareError> {
        let mut progress = self.load(wanted, reading, tools)?;
        while progress.done < form.cut.0 {
            self.step(&mut progress, wanted, form, tools)?;
        }
        if form.cut.0 == 0 && form.is_trimmed {
            self.trim(&mut progress.sample, wanted, tools);
        }
        record::write_parts(&progress.sample).ok_or(PrepareError::Form)
    }

    fn load<'s>(
        &self,
        wanted: SampleRequest,
        reading: Reading,
        tools: &mut Workspace,
    ) -> Result<Progress<'s>, PrepareError> {
        let start = thread_cpu_time();
        let mut sample = Sample::new();
        self.supply.load(wanted, reading, &mut sample, tools, &self.metrics)?;
        Ok(Progress { sample, done: 0, spent: thread_cpu_time().saturating_sub(start) })
    }

    /// Does the next op; the last one before the cut makes all of its result, unless the form says otherwise.
    fn step(
        &self,
        progress: &mut Progress<'_>,
        wanted: SampleRequest,
        form: Form,
        tools: &mut Workspace,
    ) -> Result<(), PrepareError> {
        let (start, number) = (thread_cpu_time(), progress.done);
        let planned = &self.plan.ops()[number];
        let draw = self.plan.chain().draw(number, wanted);
        // What an approximate decoder makes depends on the crop behind it.
        let is_whole = number + 1 == form.cut.0 && !form.is_trimmed && !self.plan.is_approximate();
        let applied = if is_whole {
            planned.op().apply(&mut progress.sample, &draw, tools)
        } else {
            planned.op().apply_ahead(&mut progress.sample, &draw, &self.plan.chain().ahead(number, wanted), tools)
        };
        applied.map_err(|source| PrepareError::Op { op: planned.name().to_string(), source: source.into() })?;
        progress.done += 1;
        progress.spent += thread_cpu_time().saturating_sub(start);
        Ok(())
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
        let known = &self.stored[ordinal as usize];
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
    fn trials(&self, wanted: SampleRequest, tools: &mut Workspace) -> Result<(Vec<u8>, Spent), PrepareError> {
        let start = thread_cpu_time();
        let mut trials = Vec::new();
        for is_trimmed in [false, true] {
            if is_trimmed {
                // What the first sight of a file costs, none of the later ones does.
                drop(self.load(wanted, Reading::Trimmed, tools)?);
            }
            let reading = if is_trimmed { Reading::Trimmed } else { Reading::Plain };
            let mut progress = self.load(wanted, reading, tools)?;
            if is_trimmed {
                let form = Form { is_trimmed, ..Form::RAW };
                trials.extend(self.in_form(wanted, form, tools).ok().map(|(bytes, spent)| Trial {
                    form,
                    bytes: bytes.len() as u64,
                    nanoseconds: spent.nanoseconds,
                }));
            } else if self.plan.loads_volumes() {
                let (bytes, nanoseconds) = (self.stored_bytes(wanted)?, progress.spent.as_nanos() as u64);
                trials.push(Trial { form: Form::RAW, bytes, nanoseconds });
            } else {
                pack_trials(&progress, Form::RAW, &mut trials);
            }
            while progress.done < self.plan.ops().len() {
                let cut = Cut(progress.done + 1);
                let form = Form { cut, is_trimmed, packing: Packing::Plain };
                // Ops that follow look at parts of what is there, so a whole result is made for the trial alone.
                let ahead = Form { is_trimmed: true, ..form };
                self.step(&mut progress, wanted, ahead, tools)?;
                pack_trials(&progress, form, &mut trials);
            }
        }
        let nanoseconds = thread_cpu_time().saturating_sub(start).as_nanos() as u64;
        let stored_bytes = self.stored_bytes(wanted)?;
        Ok((Vec::new(), Spent { nanoseconds, stored_bytes, trials, ..Spent::default() }))
    }
}

/// What a sample takes as it is now, in each packing.
fn pack_trials(progress: &Progress<'_>, form: Form, trials: &mut Vec<Trial>) {
    let is_part = |value: &Value<'_>| matches!(value, Value::Pixels(pixels) if pixels.excerpt.is_some());
    if !form.is_trimmed && progress.sample.values().any(|(_, value)| is_part(value)) {
        // Of what would be made whole only a part was made.
        let bytes = progress.sample.values().map(|(_, value)| value.content_bytes() as u64).sum();
        trials.push(Trial { form, bytes, nanoseconds: progress.spent.as_nanos() as u64 });
        return;
    }
    for packing in Packing::ALL {
        let start = thread_cpu_time();
        let Some(record) = record::write_parts(&progress.sample) else { return };
        let bytes = packing.pack(record).0.len() as u64;
        let spent = progress.spent + thread_cpu_time().saturating_sub(start);
        trials.push(Trial { form: Form { packing, ..form }, bytes, nanoseconds: spent.as_nanos() as u64 });
    }
}
