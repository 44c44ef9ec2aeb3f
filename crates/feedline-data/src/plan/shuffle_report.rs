//! How good the shuffle of a plan is, against a full one of the same samples.
//!
//! In: a plan and an epoch. Out: a [`ShuffleReport`], with a warning in words where classes come in heaps. Nothing is read but what
//! the source knows of its samples.

use feedline_order::{Division, Epoch, Ordinal, Position, Quality, Sequence, neighbour_curve};
use serde::Serialize;

use super::{Plan, PlanError, Settings, Shuffle};

/// Steps of the curves.
const CURVE_POINTS: u32 = 100;
/// Samples whose places are told, for a drawing.
const TOLD_PLACES: u64 = 2000;
/// Classes that follow each other so much more often than by chance call for a warning: as stored, and as delivered.
const SORTED: f64 = 0.5;
const HEAPED: f64 = 0.05;
/// And so do batches with so few of the classes that they would have.
const POOR: f64 = 0.75;

/// How good a shuffle is.
#[derive(Clone, Debug, Serialize)]
pub struct ShuffleReport {
    /// The shuffle, as the plan has it.
    pub shuffle: Shuffle,
    /// Samples in an epoch.
    pub samples: u64,
    /// Samples in the reservoir of each rank, where there is one.
    pub reservoir: Option<u64>,
    /// About the bytes that these take.
    pub reservoir_bytes: Option<u64>,
    /// Blocks that are read in sequence.
    pub blocks: Option<usize>,
    /// As stored.
    pub stored: Quality,
    /// As the plan delivers them.
    pub plan: Quality,
    /// As a full shuffle would.
    pub full: Quality,
    /// What should be done about it, if something should.
    pub warning: Option<String>,
    /// By how far neighbours come apart at most, the share of them that does: for the plan, and for a full shuffle.
    pub curves: [Vec<(f64, f64)>; 2],
    /// Where samples come and where they are stored, for some.
    pub places: Vec<(u64, u64)>,
}

impl Plan {
    /// Looks at the order of an epoch and of the next, over all ranks; an error with a sampler, which is its own order.
    pub fn shuffle_report(&self, epoch: Epoch) -> Result<ShuffleReport, PlanError> {
        let Settings { shuffle, sampler, seed, batch_size, .. } = self.settings();
        if sampler.is_some() {
            let (value, allowed) = ("given".to_owned(), "its order is its own, and no shuffle");
            return Err(PlanError::Setting { setting: "sampler", value, allowed });
        }
        let division = Division { world: self.config().rank.world.into(), batch_size: *batch_size as u64 };
        let (source, next) = (self.source(), Epoch(epoch.0 + 1));
        let len = source.len();
        let ordinals = |sequence: &Sequence, epoch| -> Vec<u64> {
            let visits = sequence.epoch(epoch);
            (0..len).map(|position| visits.at(Position(position)).ordinal.0).collect()
        };
        let class = |ordinal| source.class_of(source.id_at(Ordinal(ordinal))).filter(|class| *class >= 0);
        let classes: Option<Vec<i64>> = (0..len).map(class).collect();
        let quality = |sequence: &Sequence| {
            let (now, then) = (ordinals(sequence, epoch), ordinals(sequence, next));
            (Quality::of(&now, &then, division, classes.as_deref()), now)
        };
        let stored = quality(&Sequence::in_order(*seed, len)).0;
        let ((plan, own), (full, fully)) = (quality(self.sequence()), quality(&Sequence::shuffled(*seed, len)));
        let rule = self.sequence().reservoir();
        let step = (len / TOLD_PLACES).max(1) as usize;
        let place = |(position, ordinal): (usize, &u64)| (position as u64, *ordinal);
        Ok(ShuffleReport {
            shuffle: shuffle.clone(),
            samples: len,
            reservoir: rule.map(|rule| rule.size.min(rule.samples(0))),
            reservoir_bytes: rule.map(|rule| rule.size.min(rule.samples(0)) * rule.blocks.sample_bytes()),
            blocks: rule.map(|rule| rule.blocks.len()),
            warning: warning(shuffle, [&stored, &plan, &full]),
            curves: [neighbour_curve(&own, CURVE_POINTS), neighbour_curve(&fully, CURVE_POINTS)],
            places: own.iter().enumerate().step_by(step).map(place).collect(),
            stored,
            plan,
            full,
        })
    }
}

fn warning(shuffle: &Shuffle, [stored, plan, full]: [&Quality; 3]) -> Option<String> {
    let (stored, plan, full) = (stored.labels?, plan.labels?, full.labels?);
    let is_sorted = stored.correlation > SORTED;
    let is_heaped = plan.correlation > full.correlation.max(0.0) + HEAPED;
    let is_poor = plan.classes_per_batch < POOR * full.classes_per_batch;
    if !is_sorted || !(is_heaped || is_poor) {
        return None;
    }
    let remedy = match shuffle {
        Shuffle::Never => "take shuffle=True, or fl.reservoir(...)",
        Shuffle::Reservoir(_) | Shuffle::Full => {
            "take a larger reservoir (size), more readers, shorter blocks, or shuffle=True"
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
