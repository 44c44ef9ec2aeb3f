//! Planned order: which sample of a share comes at which turn.
//!
//! In: a frozen table of costs; or static facts (bytes, and which random ops will act); or the log of a run in arrival order. Out:
//! a permutation of each epoch's share, the same on every machine. Costs are rounded to classes first, so that small differences
//! have no effect.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use feedline_memory::Mutex;
use feedline_order::{
    Epoch, EpochPath, EpochSequence, OrderReport, Ordinal, Place, Rank, SLOW, SampleRequest, Share, ShareIndex, Tally,
    Turn,
};
use lru::LruCache;
use xxhash_rust::xxh3::xxh3_128;

use super::arrival_log::{Logged, MAX_LOG_BYTES, file_of_rank};
use super::limits::{self, MAX_LISTED};
use super::order::OrderRule;
use super::{Plan, PlanError, Settings};
use crate::cost::{CostFile, Costs};
use crate::op::WorkHint;
use crate::private_files::read_bounded;

/// Lower limit of epochs to keep: the delivered one, one ahead, and one for a report.
const MIN_KEPT_EPOCHS: u64 = 3;
const MAX_KEPT_EPOCHS: u64 = 1024;
/// Number of positions to cover with kept epochs. A run may look across the ends of many short epochs.
const KEPT_POSITIONS: u64 = 1 << 17;
/// Cost classes per factor of two: each class is 19 % wide.
const CLASSES_PER_OCTAVE: f64 = 4.0;
/// The default of the largest displacement, in batches.
const DEFAULT_DISPLACEMENT_BATCHES: u64 = 16;

/// The input of planned orders, and computed ones.
#[derive(Debug)]
pub(super) struct Planning {
    max_displacement: u64,
    basis: Basis,
    /// Computed orders by epoch and offset. The least recently used is dropped.
    kept: Mutex<LruCache<(Epoch, u64), PlannedCell>>,
}

/// The order of an epoch's share. Computed by the first thread that needs it.
type PlannedCell = Arc<OnceLock<Arc<Planned>>>;

/// What decides the order.
#[derive(Debug)]
enum Basis {
    /// A rule over the costs of samples. Costs come from a table. Without one they are estimated from file sizes and draws.
    Rule(OrderRule, Option<Box<Costs>>),
    /// The log of a run in arrival order.
    Log(Logged),
}

/// The order of one epoch's share, and its input.
#[derive(Debug)]
struct Planned {
    costs: Vec<u64>,
    order: Vec<u32>,
    /// The largest displacement of a sample.
    reach: u64,
}

impl Planned {
    /// The sample at `turn`.
    fn index_at(&self, turn: Turn) -> ShareIndex {
        ShareIndex(self.order[turn.0 as usize].into())
    }

    /// The samples that were skipped in the first `turns` turns, ascending.
    fn pending(&self, Turn(turns): Turn) -> Vec<ShareIndex> {
        let turn = |turn: u64| usize::try_from(turn).unwrap_or(usize::MAX).min(self.order.len());
        // No sample is displaced by more than `reach`. So the highest delivered index is among the last `reach` turns, and each
        // skipped sample comes within the next `2 * reach`.
        let late = &self.order[turn(turns.saturating_sub(self.reach))..turn(turns)];
        let next = late.iter().map(|&index| u64::from(index) + 1).max().unwrap_or(0).max(turns);
        let coming = &self.order[turn(turns)..turn(turns.saturating_add(2 * self.reach))];
        let passed_over = coming.iter().map(|&index| u64::from(index)).filter(|&index| index < next);
        let mut pending: Vec<ShareIndex> = passed_over.map(ShareIndex).collect();
        pending.sort_unstable();
        pending
    }
}

/// The file that decides a plan's order, if there is one, and its hash, which is part of the order's fingerprint.
pub(super) fn read_file(settings: &Settings, rank: Rank) -> Result<Option<(Vec<u8>, u128)>, PlanError> {
    let missing = |error: std::io::Error| format!("it cannot be read: {error}");
    let bytes = match (&settings.costs, &settings.replay) {
        (Some(path), _) => {
            read_bounded(Path::new(path), CostFile::MAX_BYTES).map_err(|error| costs_error(path, missing(error)))?
        }
        (None, Some(path)) => read_bounded(&file_of_rank(path, rank), MAX_LOG_BYTES)
            .map_err(|error| replay_error(path, missing(error)))?,
        (None, None) => return Ok(None),
    };
    let hash = xxh3_128(&bytes);
    Ok(Some((bytes, hash)))
}

fn costs_error(path: &str, problem: String) -> PlanError {
    PlanError::Costs { path: path.to_owned(), problem }
}

fn replay_error(path: &str, problem: String) -> PlanError {
    PlanError::Replay { path: path.to_owned(), problem }
}

impl Plan {
    pub(super) fn planning(&self, file: Option<Vec<u8>>) -> Result<Option<Planning>, PlanError> {
        let Settings { order, costs, replay, .. } = self.settings();
        let basis = match (order.rule(), costs, replay, file) {
            (Some(rule), Some(path), _, Some(bytes)) => {
                // The file was read before the plan existed, because its hash is a part of the fingerprints.
                let problem = "it is damaged, or belongs to a plan with other samples or ops".to_owned();
                let table = Costs::from_bytes(self, &bytes).ok_or_else(|| costs_error(path, problem))?;
                Basis::Rule(rule, Some(Box::new(table)))
            }
            (Some(rule), ..) => Basis::Rule(rule, None),
            (None, _, Some(path), Some(bytes)) => {
                Basis::Log(Logged::read(&bytes, self).map_err(|problem| replay_error(path, problem))?)
            }
            (None, ..) => return Ok(None),
        };
        limits::check("the number of samples in planned order or a replay", self.sequence().len(), MAX_LISTED)?;
        let max_displacement = self.max_displacement();
        // Many short epochs, or a few long ones, within fixed limits.
        let most = (KEPT_POSITIONS / self.share(0).samples().max(1)).clamp(MIN_KEPT_EPOCHS, MAX_KEPT_EPOCHS);
        let most = NonZeroUsize::new(most as usize).expect("at least MIN_KEPT_EPOCHS are kept");
        Ok(Some(Planning { max_displacement, basis, kept: Mutex::new(LruCache::new(most)) }))
    }

    /// How many places a sample may come later than in the sampler's order.
    pub fn max_displacement(&self) -> u64 {
        let Settings { max_displacement, batch_size, .. } = self.settings();
        max_displacement.unwrap_or(DEFAULT_DISPLACEMENT_BATCHES * *batch_size as u64)
    }

    /// Whether the order of delivery is known before the plan runs and differs from the sampler's.
    pub fn has_planned_order(&self) -> bool {
        self.planning.is_some()
    }

    /// Whether the order of delivery is decided while the plan runs: the sample that is ready first comes first.
    pub fn is_in_arrival_order(&self) -> bool {
        self.settings().order.is_decided_while_running() && self.planning.is_none()
    }

    /// Computes the order of an epoch, if there is one to compute. Takes half a second for a million samples.
    pub fn find_order(&self, epoch_path: &EpochPath) {
        self.planned(epoch_path.epoch, &epoch_path.share);
    }

    /// The place of the sample at `turn`. In arrival order this is only the expected place.
    pub fn place(&self, epoch_path: &EpochPath, turn: Turn) -> Place {
        match self.planned(epoch_path.epoch, &epoch_path.share) {
            Some(planned) => epoch_path.share.place(planned.index_at(turn)),
            None => epoch_path.share.place(epoch_path.index_at(turn)),
        }
    }

    /// The samples of the share that a planned order has skipped before `next_turn`.
    pub fn pending(&self, epoch: Epoch, share: &Share, next_turn: Turn) -> Vec<ShareIndex> {
        self.planned(epoch, share).map(|planned| planned.pending(next_turn)).unwrap_or_default()
    }

    /// What a planned order changes in an epoch of this rank. `None` in other orders.
    pub fn order_report(&self, epoch: Epoch) -> Option<OrderReport> {
        let planned = self.planned(epoch, &self.share(0))?;
        let Planned { costs, order, .. } = &*planned;
        // An integer mean is enough, because costs are rounded to classes.
        let mean = costs.iter().sum::<u64>() / (costs.len() as u64).max(1);
        let mut tally = Tally::new(self.settings().batch_size);
        for (turn, &number) in order.iter().enumerate() {
            tally.add(Turn(turn as u64), ShareIndex(number.into()), costs[number as usize] > u64::from(SLOW) * mean);
        }
        Some(tally.report(self.max_displacement()))
    }

    fn planned(&self, epoch: Epoch, share: &Share) -> Option<Arc<Planned>> {
        let planning = self.planning.as_ref()?;
        let mut kept = planning.kept.lock();
        // The lock covers only the lookup of the cell. The cell makes sure that one thread computes the order and the others
        // wait for it.
        let planned = Arc::clone(kept.get_or_insert((epoch, share.offset()), PlannedCell::default));
        drop(kept);
        // Computed without the lock, so that threads in another epoch do not wait.
        Some(Arc::clone(planned.get_or_init(|| Arc::new(self.find_planned(planning, epoch, share)))))
    }

    fn find_planned(&self, planning: &Planning, epoch: Epoch, share: &Share) -> Planned {
        let visits = self.sequence().epoch(epoch);
        let cost = |number| self.class_of_cost(planning, epoch, &visits, share.place(ShareIndex(number)));
        let costs: Vec<u64> = (0..share.samples()).map(cost).collect();
        let order = match &planning.basis {
            Basis::Rule(rule, _) => rule(&costs, planning.max_displacement),
            Basis::Log(logged) => logged.order(epoch, share.offset(), share.samples()),
        };
        let displacement = |(turn, &number): (usize, &u32)| (turn as u64).abs_diff(number.into());
        let reach = order.iter().enumerate().map(displacement).max().unwrap_or(0);
        Planned { costs, order, reach }
    }

    fn class_of_cost(&self, planning: &Planning, epoch: Epoch, visits: &EpochSequence, place: Place) -> u64 {
        let request = self.request_at(epoch, visits, place.position);
        let cost = match &planning.basis {
            Basis::Rule(_, Some(costs)) => costs.predict(self, request, WorkHint::Usual).as_nanos() as f64,
            Basis::Rule(_, None) | Basis::Log(_) => self.static_cost(visits.at(place.position).ordinal, request),
        };
        // `libm`, so that every machine rounds to the same class. Adding 1 avoids the logarithm of 0.
        libm::exp2(libm::round(libm::log2(cost + 1.0) * CLASSES_PER_OCTAVE) / CLASSES_PER_OCTAVE) as u64
    }

    /// An estimate: bytes, multiplied by the number of ops that work on them.
    fn static_cost(&self, ordinal: Ordinal, request: SampleRequest) -> f64 {
        let fires = |number: &usize| self.ops()[*number].op().fires(&self.chain().draw(*number, request));
        // One for loading.
        let working = 1 + (0..self.ops().len()).filter(fires).count();
        self.sizes()[ordinal.0 as usize] as f64 * working as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::open;
    use feedline_order::{Missing, planned_order};
    use proptest::prelude::*;

    #[test]
    fn computing_the_order_of_one_epoch_does_not_block_another() {
        let plan =
            open("batch_size = 8\norder = \"planned\"\n[source]\nkind = \"synthetic\"\nn = 1000000\nshape = [1]\n")
                .unwrap();
        let epoch_path = |epoch| EpochPath { epoch: Epoch(epoch), share: plan.share(0), rest: None };
        plan.find_order(&epoch_path(0));
        std::thread::scope(|scope| {
            let finding = scope.spawn(|| plan.find_order(&epoch_path(1)));
            let kept = || plan.planning.as_ref().unwrap().kept.lock().len();
            while kept() < 2 {
                std::thread::yield_now();
            }
            plan.place(&epoch_path(0), Turn(0));
            assert!(!finding.is_finished(), "the place was given after the order of the other epoch had been found");
        });
    }

    #[test]
    fn looking_ahead_over_short_epochs_keeps_the_order_of_the_current_one() {
        let plan =
            open("batch_size = 2\norder = \"planned\"\n[source]\nkind = \"synthetic\"\nn = 8\nshape = [1]\n").unwrap();
        let order = |epoch| plan.planned(Epoch(epoch), &plan.share(0)).unwrap();
        let under_way = order(0);
        (1..50).for_each(|epoch| drop(order(epoch)));
        assert!(Arc::ptr_eq(&order(0), &under_way));
    }

    proptest! {
        #[test]
        fn law_4_the_samples_skipped_by_a_planned_order_are_known_at_every_turn(
            costs in prop::collection::vec(prop_oneof![1..10_u64, 1..2000_u64], 1..200), bound in 0..64_u64,
        ) {
            let order = planned_order(&costs, bound);
            let reach = order.iter().enumerate().map(|(turn, &n)| (turn as u64).abs_diff(n.into())).max().unwrap();
            let planned = Planned { costs, order, reach };
            let mut missing = Missing::default();
            for turns in 0..=planned.order.len() {
                prop_assert_eq!(planned.pending(Turn(turns as u64)), missing.indices(), "after {} turns", turns);
                if let Some(&number) = planned.order.get(turns) {
                    missing.deliver(ShareIndex(number.into()));
                }
            }
        }
    }
}
