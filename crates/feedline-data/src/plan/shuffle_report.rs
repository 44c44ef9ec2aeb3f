//! Compares the shuffle of a plan with a full shuffle of the same samples.
//!
//! In: a plan and an epoch. Out: a [`ShuffleReport`], with a warning if samples of one class come in runs. It reads no data, only
//! what the source knows about its samples.

use feedline_order::{Division, Epoch, Ordinal, Position, Quality, Sequence, neighbour_curve};
use serde::Serialize;

use super::{Plan, PlanError, Settings, Shuffle};

/// Number of points in a curve.
const CURVE_POINTS: u32 = 100;
/// Number of samples whose places are reported, for a plot.
const REPORTED_PLACES: u64 = 2000;
/// Warn if the correlation of neighbouring classes exceeds this: as stored, and as delivered.
const SORTED_CORRELATION: f64 = 0.5;
const CLUSTERED_MARGIN: f64 = 0.05;
/// Warn if batches have less than this fraction of the classes that a full shuffle gives.
const FEW_CLASSES_FRACTION: f64 = 0.75;

/// The quality of a plan's shuffle.
#[derive(Clone, Debug, Serialize)]
pub struct ShuffleReport {
    /// The shuffle, as the plan has it.
    pub shuffle: Shuffle,
    /// Samples in an epoch.
    pub samples: u64,
    /// Samples in the reservoir of each rank, if there is one.
    pub reservoir: Option<u64>,
    /// Their approximate size in bytes.
    pub reservoir_bytes: Option<u64>,
    /// Number of blocks that are read in sequence.
    pub blocks: Option<usize>,
    /// The stored order.
    pub stored: Quality,
    /// The order of the plan.
    pub plan: Quality,
    /// A full shuffle.
    pub full: Quality,
    /// What to change, if anything.
    pub warning: Option<String>,
    /// The cumulative distribution of neighbour distances: for the plan, and for a full shuffle.
    pub curves: [Vec<(f64, f64)>; 2],
    /// The delivered and the stored place of some samples.
    pub places: Vec<(u64, u64)>,
}

impl Plan {
    /// Measures the order of an epoch and the next, over all ranks. Fails with a sampler, because a sampler defines its own order.
    pub fn shuffle_report(&self, epoch: Epoch) -> Result<ShuffleReport, PlanError> {
        let Settings { shuffle, sampler, seed, batch_size, .. } = self.settings();
        if sampler.is_some() {
            let (value, allowed) = ("given".to_owned(), "it defines its own order, so there is no shuffle to measure");
            return Err(PlanError::Setting { setting: "sampler", value, allowed });
        }
        let division = Division { world: self.config().rank.world.into(), batch_size: *batch_size as u64 };
        let (source, next) = (self.source(), Epoch(epoch.0 + 1));
        let len = source.len();
        let ordinals = |sequence: &Sequence, epoch| -> Vec<u64> {
            let visits = sequence.epoch(epoch);
            (0..len).map(|position| visits.at(Position(position)).ordinal.0).collect()
        };
        // A picture without a class has label -1. If any sample has no class, nothing is said about classes.
        let class = |ordinal| source.class_of(source.id_at(Ordinal(ordinal))).filter(|class| *class >= 0);
        let classes: Option<Vec<i64>> = (0..len).map(class).collect();
        let quality = |sequence: &Sequence| {
            let (now, then) = (ordinals(sequence, epoch), ordinals(sequence, next));
            (Quality::of(&now, &then, division, classes.as_deref()), now)
        };
        let stored = quality(&Sequence::in_order(*seed, len)).0;
        let ((plan, plan_order), (full, full_order)) =
            (quality(self.sequence()), quality(&Sequence::shuffled(*seed, len)));
        let rule = self.sequence().reservoir();
        let step = (len / REPORTED_PLACES).max(1) as usize;
        let place = |(position, ordinal): (usize, &u64)| (position as u64, *ordinal);
        Ok(ShuffleReport {
            shuffle: shuffle.clone(),
            samples: len,
            reservoir: rule.map(|rule| rule.size.min(rule.samples(0))),
            reservoir_bytes: rule.map(|rule| rule.size.min(rule.samples(0)) * rule.blocks.sample_bytes()),
            blocks: rule.map(|rule| rule.blocks.len()),
            warning: warning(shuffle, [&stored, &plan, &full]),
            curves: [neighbour_curve(&plan_order, CURVE_POINTS), neighbour_curve(&full_order, CURVE_POINTS)],
            places: plan_order.iter().enumerate().step_by(step).map(place).collect(),
            stored,
            plan,
            full,
        })
    }
}

fn warning(shuffle: &Shuffle, [stored, plan, full]: [&Quality; 3]) -> Option<String> {
    let (stored, plan, full) = (stored.labels?, plan.labels?, full.labels?);
    let is_sorted = stored.correlation > SORTED_CORRELATION;
    // Even a full shuffle has some correlation by chance, so the limit is relative to it.
    let is_clustered = plan.correlation > full.correlation.max(0.0) + CLUSTERED_MARGIN;
    let has_few_classes = plan.classes_per_batch < FEW_CLASSES_FRACTION * full.classes_per_batch;
    // Clusters of equal classes are the fault of the shuffle only if the data is stored that way.
    if !is_sorted || !(is_clustered || has_few_classes) {
        return None;
    }
    let remedy = match shuffle {
        Shuffle::Never => "use shuffle=True, or fl.reservoir(...)",
        Shuffle::Reservoir(_) | Shuffle::Full => {
            "use a larger reservoir (size), more readers, shorter blocks, or shuffle=True"
        }
    };
    Some(format!(
        "the data is stored sorted by class, and the shuffle does not undo it: a batch has {:.1} classes where a full shuffle \
         gives {:.1}, and the next sample is of the same class in {:.0} % of cases instead of {:.0} %; {remedy}",
        plan.classes_per_batch,
        full.classes_per_batch,
        100.0 * plan.same_next,
        100.0 * full.same_next
    ))
}
