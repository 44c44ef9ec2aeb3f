//! A checked plan.
//!
//! In: a source, ops and settings. Out: a [`Plan`], or the first setting that does not fit. A plan never changes. Facts that take
//! time to find, such as the sizes of all samples, are looked up at their first use.

use std::sync::{Arc, OnceLock};

use feedline_order::{
    Epoch, EpochPath, EpochSequence, Position, Rank, SampleRequest, Segments, Sequence, Share, Turn, Visit,
};

use super::planning::{self, Planning};
use super::{
    ByteSize, Document, Fingerprints, INDEX_FIELD, KEY_FIELD, OnError, Order, PADDED_FIELD, PlanError, RunConfig,
    Settings, Shuffle, limits,
};
use crate::batch::{BatchLayout, FieldTypes, Kind};
use crate::dtype::Dtype;
use crate::op::{OpChain, PlannedOp, UnwritableOp};
use crate::source::Source;

/// A plan in which source, ops and settings fit together.
#[derive(Debug)]
pub struct Plan {
    source: Arc<dyn Source>,
    chain: OpChain,
    settings: Settings,
    config: RunConfig,
    sequence: Sequence,
    /// The names in `types`, in the same order.
    delivered: Vec<Arc<str>>,
    types: FieldTypes,
    layout: BatchLayout,
    fingerprints: Fingerprints,
    /// Set if the order of delivery is planned or replayed.
    pub(super) planning: Option<Planning>,
    /// Stored bytes by ordinal, once looked up: see `sizes.rs`.
    pub(super) sizes: OnceLock<Vec<u64>>,
    /// Pixels or volume elements by ordinal, once looked up: see `sizes.rs`.
    pub(super) elements: OnceLock<Vec<u64>>,
    /// The division for jobs that share samples, once computed.
    pub(super) segments: OnceLock<Segments>,
}

impl Plan {
    /// Checks that source, ops and settings fit together.
    pub fn new(
        source: Arc<dyn Source>,
        ops: Vec<PlannedOp>,
        settings: Settings,
        config: RunConfig,
    ) -> Result<Self, PlanError> {
        limits::check_numbers(source.len(), ops.len(), &settings, &config, config.rank)?;
        Self::with_sequence(source, ops, settings, config, sequence)
    }

    /// Like [`Plan::new`], for an order that no setting can express. The numbers come from a checked plan.
    pub(super) fn with_sequence(
        source: Arc<dyn Source>,
        ops: Vec<PlannedOp>,
        settings: Settings,
        config: RunConfig,
        sequence: impl FnOnce(&dyn Source, &Settings, Rank) -> Result<Sequence, PlanError>,
    ) -> Result<Self, PlanError> {
        check_settings(&settings, &config)?;
        let mut types = source.fields();
        for (number, op) in ops.iter().enumerate() {
            // Each op sees the kinds that the ops before it leave behind.
            op.check(&mut types, &ops[number + 1..])?;
        }
        let types = delivered_types(types, &settings, &config)?;
        // Fields that no op uses and no batch contains are never read.
        let needed =
            |name: &str| types.get(name).is_some() || ops.iter().any(|op| op.op().on().names().any(|n| n == name));
        let mut loaded = FieldTypes::new();
        for (name, kind) in source.fields().iter().filter(|(name, _)| needed(name)) {
            loaded.set(name, kind.clone());
        }
        let sequence = sequence(&*source, &settings, config.rank)?;
        let share = Share::new(sequence.len(), 0, config.rank, settings.batch_size, settings.drop_last);
        // A batch that is larger than the rank's share never fills, so its slab needs no more slots than that.
        let slots = settings.batch_size.min(usize::try_from(share.samples().max(1)).unwrap_or(usize::MAX));
        let layout = BatchLayout::new(&types, &settings.ragged, slots)
            .map_err(|error| PlanError::TooLarge(error.to_string()))?;
        limits::check("the size of a batch in bytes", layout.slab().total_bytes() as u64, limits::MAX_BATCH_BYTES)?;
        let (table, table_hash) = planning::read_file(&settings, config.rank)?.unzip();
        let fingerprints = Fingerprints::new(source.identity(), &ops, &settings, &config, &sequence, table_hash);
        let delivered = types.iter().map(|(name, _)| Arc::clone(name)).collect();
        let (planning, sizes, elements) = (None, OnceLock::new(), OnceLock::new());
        let chain = OpChain::new(ops, loaded, settings.seed);
        let mut plan = Self {
            source,
            chain,
            settings,
            config,
            sequence,
            delivered,
            types,
            layout,
            fingerprints,
            planning,
            sizes,
            elements,
            segments: OnceLock::new(),
        };
        plan.check_cache()?;
        // Last, because planning needs the finished plan.
        plan.planning = plan.planning(table)?;
        Ok(plan)
    }

    /// The source.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// The ops, in order.
    pub fn ops(&self) -> &[PlannedOp] {
        self.chain.ops()
    }

    /// The ops, with their draws.
    pub fn chain(&self) -> &OpChain {
        &self.chain
    }

    /// The settings that decide the stream.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The settings of execution.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// The order of the samples.
    pub fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// The fields to load: every field that is delivered, or that an op uses.
    pub fn loaded(&self) -> &FieldTypes {
        self.chain.loaded()
    }

    /// The names of the fields in a batch.
    pub fn delivered(&self) -> &[Arc<str>] {
        &self.delivered
    }

    /// The fields of a batch, with their kinds.
    pub fn types(&self) -> &FieldTypes {
        &self.types
    }

    /// The memory layout of a batch.
    pub fn layout(&self) -> &BatchLayout {
        &self.layout
    }

    /// The hashes of this plan.
    pub fn fingerprints(&self) -> &Fingerprints {
        &self.fingerprints
    }

    /// This rank's share of an epoch from `offset` on.
    pub fn share(&self, offset: u64) -> Share {
        let Settings { batch_size, drop_last, .. } = self.settings;
        Share::new(self.sequence.len(), offset, self.config.rank, batch_size, drop_last)
    }

    /// Number of batches of this rank in a whole epoch.
    pub fn batches_per_epoch(&self) -> u64 {
        self.share(0).batches()
    }

    /// Upper limit of substituted samples in one epoch.
    pub fn substitutes_allowed(&self) -> u64 {
        match self.settings.on_error {
            OnError::Raise => 0,
            OnError::Substitute { max_fraction } => (self.share(0).samples() as f64 * max_fraction).ceil() as u64,
        }
    }

    /// The plan as a document.
    pub fn document(&self) -> Result<Document, PlanError> {
        self.document_with(PlannedOp::table)
    }

    /// The plan as a document for another process of this user on this machine. Unlike a written plan it may have any function.
    pub fn handed_over(&self) -> Result<Document, PlanError> {
        self.document_with(PlannedOp::handed_over)
    }

    fn document_with(
        &self,
        table: impl Fn(&PlannedOp) -> Result<toml::Table, UnwritableOp>,
    ) -> Result<Document, PlanError> {
        let ops: Result<Vec<_>, PlanError> = self.ops().iter().map(|op| Ok(table(op)?)).collect();
        Ok(Document {
            source: self.source.spec()?,
            ops: ops?,
            settings: self.settings.clone(),
            config: self.config.clone(),
        })
    }

    /// The same plan for another rank.
    pub fn for_rank(&self, rank: Rank) -> Result<Self, PlanError> {
        let config = RunConfig { rank, ..self.config.clone() };
        Self::new(Arc::clone(&self.source), self.ops().to_vec(), self.settings.clone(), config)
    }

    /// The same plan over a newly opened source.
    pub fn refreshed(&self) -> Result<Self, PlanError> {
        Self::new(self.source.refreshed()?, self.ops().to_vec(), self.settings.clone(), self.config.clone())
    }

    /// The request for the sample at a position: everything that its bytes depend on.
    pub fn request_at(&self, epoch: Epoch, visits: &EpochSequence, position: Position) -> SampleRequest {
        self.request_of(epoch, visits.at(position))
    }

    /// The request for the sample of a visit.
    pub fn request_of(&self, epoch: Epoch, visit: Visit) -> SampleRequest {
        SampleRequest { id: self.source.id_at(visit.ordinal), epoch, occurrence: visit.occurrence }
    }

    /// The ids of the first samples of an epoch, in the order of delivery. For inspection.
    pub fn ids(&self, epoch: Epoch, count: u64) -> Vec<u64> {
        let epoch_path = EpochPath { epoch, share: self.share(0), rest: None };
        let visits = self.sequence.epoch(epoch);
        let turns = 0..count.min(epoch_path.share.samples());
        turns.map(|turn| self.source.id_at(visits.at(self.place(&epoch_path, Turn(turn)).position).ordinal).0).collect()
    }
}

fn sequence(source: &dyn Source, settings: &Settings, rank: Rank) -> Result<Sequence, PlanError> {
    let (seed, len) = (settings.seed, source.len());
    Ok(match &settings.sampler {
        Some(sampler) => Sequence::sampled(
            seed,
            sampler,
            len,
            |id| source.ordinal_of(id),
            |ordinal| source.class_of(source.id_at(ordinal)),
        )?,
        None => settings.shuffle.sequence(seed, source, rank)?,
    })
}

fn check_settings(settings: &Settings, config: &RunConfig) -> Result<(), PlanError> {
    let refuse = |setting, value: String, allowed| Err(PlanError::Setting { setting, value, allowed });
    if settings.batch_size == 0 {
        return refuse("batch_size", "0".to_owned(), "it has to be at least 1");
    }
    if settings.sampler.is_some() && settings.shuffle != Shuffle::Never {
        let value = format!("{} beside a sampler", settings.shuffle);
        return refuse("shuffle", value, "the sampler decides the order; leave shuffle out");
    }
    if matches!(settings.shuffle, Shuffle::Reservoir(_)) && config.cache.is_some() {
        let allowed = "cached samples are not read in sequence; use shuffle=True, or no cache";
        return refuse("cache", "given with a reservoir".to_owned(), allowed);
    }
    if let OnError::Substitute { max_fraction } = settings.on_error
        && !(0.0..=1.0).contains(&max_fraction)
    {
        return refuse("max_fraction", max_fraction.to_string(), "it has to lie between 0 and 1");
    }
    let order = settings.order;
    let misplaced = [
        ("costs", settings.costs.is_some(), order.rule().is_some(), "it belongs to order=\"planned\""),
        ("replay", settings.replay.is_some(), order.is_decided_while_running(), "it belongs to order=\"arrival\""),
        (
            "arrival_log",
            config.arrival_log.is_some(),
            order.is_decided_while_running(),
            "it belongs to order=\"arrival\"",
        ),
        (
            "max_displacement",
            settings.max_displacement.is_some(),
            order != Order::Strict,
            "it belongs to order=\"planned\" and \"arrival\"",
        ),
    ];
    if let Some((setting, .., allowed)) = misplaced.into_iter().find(|&(_, is_given, fits, _)| is_given && !fits) {
        return refuse(setting, format!("given with {order} order"), allowed);
    }
    if settings.replay.is_some() && config.arrival_log.is_some() {
        return refuse("arrival_log", "given with replay".to_owned(), "a replayed run already has a log");
    }
    // TOML integers are signed.
    if i64::try_from(settings.seed.0).is_err() {
        return refuse("seed", settings.seed.0.to_string(), "it has to lie between 0 and 2^63 - 1");
    }
    if config.num_workers.count() == 0 {
        return refuse(
            "num_workers",
            "0".to_owned(),
            "it has to be \"auto\" or at least 1: the engine has its own threads",
        );
    }
    if config.prefetch_batches == Some(0) {
        return refuse("prefetch_batches", "0".to_owned(), "it has to be at least 1");
    }
    if config.memory_budget == Some(ByteSize(0)) {
        return refuse("memory_budget", "0".to_owned(), "it has to be at least a byte, e.g. \"512MB\"");
    }
    let rank = config.rank;
    if rank.world == 0 || rank.rank >= rank.world {
        let value = format!("{} of world_size {}", rank.rank, rank.world);
        return refuse("rank", value, "it has to lie below world_size");
    }
    Ok(())
}

/// The fields of a batch, in order: the requested ones, or all fields of the samples and of the engine.
fn delivered_types(mut types: FieldTypes, settings: &Settings, config: &RunConfig) -> Result<FieldTypes, PlanError> {
    let add_engine_field = |types: &mut FieldTypes, name: &str| match name {
        INDEX_FIELD => types.set(INDEX_FIELD, Kind::tensor(Dtype::I64, &[])),
        PADDED_FIELD => types.set(PADDED_FIELD, Kind::tensor(Dtype::Bool, &[])),
        KEY_FIELD => types.set(KEY_FIELD, Kind::Text),
        _ => {}
    };
    add_engine_field(&mut types, INDEX_FIELD);
    // Ranks are padded to equal length only if several share an epoch and nothing is dropped. The field marks the padding.
    if config.rank.world > 1 && !settings.drop_last {
        add_engine_field(&mut types, PADDED_FIELD);
    }
    let no_field = |what, field: &str, types: &FieldTypes| {
        let (field, has) = (field.to_owned(), format!("{}, \"key\"", types.names()));
        PlanError::NoSuchField { what, field, has }
    };
    if let Some(fields) = &settings.fields {
        let mut chosen = FieldTypes::new();
        for name in fields {
            add_engine_field(&mut types, name);
            let kind = types.get(name).ok_or_else(|| no_field("fields", name, &types))?;
            chosen.set(name, kind.clone());
        }
        types = chosen;
    }
    if let Some(name) = settings.ragged.iter().find(|name| types.get(name).is_none()) {
        return Err(no_field("ragged", name, &types));
    }
    let is_encoded = |(name, kind): &(&Arc<str>, &Kind)| {
        **kind == Kind::Bytes && !settings.ragged.iter().any(|field| **field == ***name)
    };
    if let Some((field, _)) = types.iter().find(is_encoded) {
        return Err(PlanError::StillEncoded { field: field.to_string() });
    }
    Ok(types)
}
