//! The plan to check, and its configurations, which must not differ.

use std::sync::Arc;

use feedline_data::batch::Batch;
use feedline_data::plan::{OnError, Order, Plan, PlanError, RunConfig, Settings, Workers};
use feedline_engine::error::Error;
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;
use feedline_order::{Epoch, Place, Position, SampleId, SampleRequest, ShareIndex};

use super::probe::Probe;

/// Interval between two checks whether to stop.
const POLL: std::time::Duration = std::time::Duration::from_millis(50);
/// Least number of batches to check, if the epoch has them.
const MIN_BATCHES: u64 = 4;

/// How much of a plan is checked.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Epochs.
    pub epochs: u64,
    /// Samples of each epoch to prepare in each configuration.
    pub samples: u64,
    /// Samples of an epoch whose numbers are checked.
    pub ids: u64,
}

/// Observes a verification, and may stop it.
pub trait Watch {
    /// Check number `number` of `of` begins.
    fn begins(&self, _name: &'static str, _number: usize, _of: usize) {}

    /// A configuration has delivered more samples.
    fn delivered(&self, _configuration: &str, _samples: u64) {}

    /// Whether to stop. Called several times per second.
    fn wants_to_stop(&self) -> bool {
        false
    }
}

/// Why the laws could not be checked.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum VerifyError {
    #[error("the verification was stopped")]
    Stopped,
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("with {configuration}")]
    Run { configuration: String, source: Error },
    #[error("an epoch of this plan has no batch, so there is nothing to check")]
    Nothing,
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// A configuration of a plan.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub name: String,
    pub settings: Settings,
    pub config: RunConfig,
    /// A probe op at the end of the chain.
    pub probe: Option<Arc<Probe>>,
    /// Whether samples are loaded and prepared, or only counted.
    pub has_data: bool,
}

impl Variant {
    /// The same configuration with a change and another name.
    pub(super) fn with(&self, name: &str, change: impl FnOnce(&mut Settings, &mut RunConfig)) -> Self {
        let mut variant = Self { name: name.to_owned(), ..self.clone() };
        change(&mut variant.settings, &mut variant.config);
        variant
    }

    /// The same with another order of delivery.
    pub(super) fn in_order(&self, order: Order, max_displacement: Option<u64>, name: &str) -> Self {
        self.with(name, |settings, _| {
            (settings.order, settings.max_displacement) = (order, max_displacement);
            (settings.costs, settings.replay) = (None, None);
        })
    }

    /// Whether its order of delivery is known before it runs.
    pub(super) fn is_predetermined(&self) -> bool {
        !self.settings.order.is_decided_while_running() || self.settings.replay.is_some()
    }

    /// The same configuration with a probe op at the end of the chain.
    pub(super) fn probed(&self, probe: &Arc<Probe>) -> Self {
        Self { probe: Some(Arc::clone(probe)), ..self.clone() }
    }
}

/// The plan to check.
pub(super) struct Subject<'a> {
    pub plan: Arc<Plan>,
    pub extent: Extent,
    pub machine: Machine,
    pub watch: &'a dyn Watch,
    /// The op or source whose bytes change from run to run, once known. Then only sample numbers can be compared.
    pub unstable: Option<String>,
}

impl Subject<'_> {
    /// The plan with 1 worker, the fields that checks need, substitutes for bad samples, and without a log.
    pub(super) fn own(&self) -> Variant {
        let mut settings = self.plan.settings().clone();
        let mut names: Vec<String> = self.plan.delivered().iter().map(ToString::to_string).collect();
        names.extend(["index", "padded"].map(str::to_owned).into_iter().filter(|own| !self.delivers(own)));
        settings.fields = Some(names);
        // A bad sample must not end a check, however many there are.
        settings.on_error = OnError::Substitute { max_fraction: 1.0 };
        let config = RunConfig { arrival_log: None, num_workers: Workers::Count(1), ..self.plan.config().clone() };
        Variant { name: "1 worker".to_owned(), settings, config, probe: None, has_data: true }
    }

    fn delivers(&self, name: &str) -> bool {
        self.plan.delivered().iter().any(|field| **field == *name)
    }

    /// The plan in strict order, with 1 worker.
    pub(super) fn strict(&self) -> Variant {
        let own = self.own();
        if own.settings.order == Order::Strict {
            own
        } else {
            own.in_order(Order::Strict, None, "strict order, 1 worker")
        }
    }

    /// Whether the order of delivery of the plan is known before it runs.
    pub(super) fn is_predetermined(&self) -> bool {
        !self.plan.is_in_arrival_order()
    }

    /// Why not even sample numbers can be compared: samples may fail at random.
    pub(super) fn random_failures(&self, has_bad: bool) -> Option<String> {
        let who = self.unstable.as_ref().filter(|_| has_bad)?;
        Some(format!("samples may be bad in one run and good in another: {who}"))
    }

    /// A variant, checked, over the same open source.
    pub(super) fn open(&self, variant: &Variant) -> Result<Arc<Plan>, PlanError> {
        // Without data the ops have no input, so they are left out.
        let mut ops = if variant.has_data { self.plan.ops().to_vec() } else { Vec::new() };
        ops.extend(variant.probe.as_ref().map(Probe::planned));
        let source = Arc::clone(self.plan.source());
        Ok(Arc::new(Plan::new(source, ops, variant.settings.clone(), variant.config.clone())?))
    }

    /// A loader for a configuration. Costs learned with a probe op are not saved.
    pub(super) fn loader(&self, variant: &Variant) -> Result<Loader, VerifyError> {
        let mut machine = self.machine.clone();
        // Saved costs belong to the plan without a probe. Its fingerprint is another one, but the folder would fill up.
        if variant.probe.is_some() || !variant.has_data {
            machine.cache_folder = None;
        }
        Ok(Loader::new(self.open(variant)?, &machine))
    }

    /// Takes up to `most` batches of the next iteration. Returns whether the epoch has ended.
    pub(super) fn take(
        &self,
        loader: &Loader,
        configuration: &str,
        most: u64,
        mut each: impl FnMut(&Batch),
    ) -> Result<bool, VerifyError> {
        let failed = |source| VerifyError::Run { configuration: configuration.to_owned(), source };
        let iteration = loader.begin().map_err(failed)?;
        let mut taken = 0;
        while taken < most {
            self.check()?;
            match loader.next_within(iteration, POLL).map_err(failed)? {
                Next::Batch(batch) => {
                    taken += 1;
                    each(&batch);
                    self.watch.delivered(configuration, batch.len as u64);
                }
                Next::End => return Ok(true),
                Next::NotYet => {}
            }
        }
        // The last batch may have been taken without asking for the end.
        Ok(taken == loader.plan().batches_per_epoch())
    }

    /// Fails if the user wants to stop.
    pub(super) fn check(&self) -> Result<(), VerifyError> {
        if self.watch.wants_to_stop() { Err(VerifyError::Stopped) } else { Ok(()) }
    }

    /// Number of batches of an epoch that are checked.
    pub(super) fn batches(&self) -> u64 {
        let requested = self.extent.samples.div_ceil(self.plan.settings().batch_size as u64);
        requested.max(MIN_BATCHES).min(self.plan.batches_per_epoch())
    }

    /// Number of samples of an epoch that are checked.
    pub(super) fn samples(&self) -> u64 {
        self.batches().saturating_mul(self.plan.settings().batch_size as u64).min(self.plan.share(0).samples())
    }

    /// Whether whole epochs are checked.
    pub(super) fn sees_all(&self) -> bool {
        self.batches() == self.plan.batches_per_epoch()
    }

    /// The places and samples of the first turns of an epoch in strict order.
    pub(super) fn sequence(&self, epoch: Epoch, turns: u64) -> Vec<(Place, SampleRequest)> {
        let (share, visits) = (self.plan.share(0), self.plan.sequence().epoch(epoch));
        let places = (0..turns.min(share.samples())).map(|turn| share.place(ShareIndex(turn)));
        places.map(|place| (place, self.plan.request_at(epoch, &visits, place.position))).collect()
    }

    /// The name of a sample, for people.
    pub(super) fn key(&self, id: SampleId) -> String {
        match self.plan.source().ordinal_of(id) {
            Some(_) => self.plan.source().key(id).into_owned(),
            None => format!("number {}, which is not in the source", id.0),
        }
    }

    /// Samples that a sampler gives more than once in an epoch.
    pub(super) fn repeated(&self, epoch: Epoch) -> std::collections::HashSet<SampleId> {
        if self.plan.settings().sampler.is_none() {
            return std::collections::HashSet::new();
        }
        let visits = self.plan.sequence().epoch(epoch);
        let visits = (0..self.plan.sequence().len()).map(|position| visits.at(Position(position)));
        visits.filter(|visit| visit.occurrence.0 > 0).map(|visit| self.plan.source().id_at(visit.ordinal)).collect()
    }
}
