//! Planned order: which sample of a share is delivered when.
//!
//! In: a frozen table of costs, or static facts: bytes, and the draws that fire. Out: a permutation of each epoch's share, the
//! same on every machine. Costs are rounded to classes first, so that small differences change nothing.

use std::collections::VecDeque;
use std::fs;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use super::{Order, Plan, PlanError, Settings};
use crate::cost::Costs;
use crate::order::{Epoch, EpochSequence, Place, Share, planned_order};
use crate::supply::Wanted;

/// Epochs whose order is kept: the one that is delivered, and the one that is looked at.
const KEPT_EPOCHS: usize = 3;
/// Classes of cost for a factor of two.
const CLASSES: f64 = 4.0;
/// A sample that takes more than this many times the mean is called slow in reports.
const SLOW: u64 = 2;
/// The greatest displacement that is taken unasked, in batches.
const BATCHES: u64 = 16;

/// What planned orders are made of.
#[derive(Debug)]
pub(super) struct Planning {
    max_displacement: u64,
    frozen: Option<Costs>,
    /// Bytes of each sample, by ordinal.
    bytes: OnceLock<Vec<u64>>,
    kept: Mutex<VecDeque<Kept>>,
}

#[derive(Debug)]
struct Kept {
    epoch: Epoch,
    share: Share,
    planned: Arc<Planned>,
}

/// The order of one epoch's share, and what it was made of.
#[derive(Debug)]
struct Planned {
    costs: Vec<u64>,
    order: Vec<u32>,
}

/// What a planned order changes: how far samples are from their places, and whether batches differ in what they hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct OrderReport {
    pub samples: u64,
    pub max_displacement: u64,
    pub largest_displacement: u64,
    pub mean_displacement: f64,
    pub slow_samples: u64,
    pub slow_per_batch_least: u64,
    pub slow_per_batch_mean: f64,
    pub slow_per_batch_most: u64,
    /// The same if the sampler's order were kept.
    pub slow_per_batch_most_in_order: u64,
}

/// The bytes of a table of costs that a plan names, and their hash, which is part of the order.
pub(super) fn read_table(settings: &Settings) -> Result<Option<(Vec<u8>, u128)>, PlanError> {
    let Some(path) = &settings.costs else { return Ok(None) };
    let missing = |source| PlanError::Costs { path: path.clone(), problem: format!("it cannot be read: {source}") };
    let bytes = fs::read(path).map_err(missing)?;
    let hash = xxh3_128(&bytes);
    Ok(Some((bytes, hash)))
}

impl Plan {
    pub(super) fn planning(&self, table: Option<Vec<u8>>) -> Result<Option<Planning>, PlanError> {
        let Settings { order, max_displacement, batch_size, costs, .. } = self.settings();
        if *order == Order::Strict {
            return Ok(None);
        }
        if u32::try_from(self.sequence().len()).is_err() {
            let (value, allowed) = ("\"planned\"".to_owned(), "it takes at most 4 billion samples");
            return Err(PlanError::Setting { setting: "order", value, allowed });
        }
        let frozen = table.map(|bytes| {
            let problem = "it is damaged, or of a plan with other samples or ops".to_owned();
            Costs::from_bytes(self, &bytes)
                .ok_or_else(|| PlanError::Costs { path: costs.clone().unwrap_or_default(), problem })
        });
        Ok(Some(Planning {
            max_displacement: max_displacement.unwrap_or(BATCHES * *batch_size as u64),
            frozen: frozen.transpose()?,
            bytes: OnceLock::new(),
            kept: Mutex::default(),
        }))
    }

    /// The place of sample `number` of a share, in the order of delivery.
    pub fn place(&self, epoch: Epoch, share: &Share, number: u64) -> Place {
        match self.planned(epoch, share) {
            Some(planned) => share.place(u64::from(planned.order[number as usize])),
            None => share.place(number),
        }
    }

    /// What planned order does to an epoch of this rank; nothing in strict order.
    pub fn order_report(&self, epoch: Epoch) -> Option<OrderReport> {
        let share = self.share(0);
        let planned = self.planned(epoch, &share)?;
        let Planned { costs, order } = &*planned;
        let displacement = |(place, &number): (usize, &u32)| (place as u64).abs_diff(u64::from(number));
        let mean = costs.iter().sum::<u64>() / (costs.len() as u64).max(1);
        let is_slow = |number: u32| costs[number as usize] > SLOW * mean;
        let batch_size = self.settings().batch_size;
        let slow_in = |batch: &[u32]| batch.iter().filter(|&&number| is_slow(number)).count() as u64;
        let batches: Vec<u64> = order.chunks(batch_size).map(slow_in).collect();
        let in_order: Vec<u32> = (0..order.len() as u32).collect();
        let slow_samples = batches.iter().sum();
        Some(OrderReport {
            samples: order.len() as u64,
            max_displacement: self.planning.as_ref()?.max_displacement,
            largest_displacement: order.iter().enumerate().map(displacement).max().unwrap_or(0),
            mean_displacement: order.iter().enumerate().map(displacement).sum::<u64>() as f64
                / order.len().max(1) as f64,
            slow_samples,
            slow_per_batch_least: batches.iter().copied().min().unwrap_or(0),
            slow_per_batch_mean: slow_samples as f64 / batches.len().max(1) as f64,
            slow_per_batch_most: batches.iter().copied().max().unwrap_or(0),
            slow_per_batch_most_in_order: in_order.chunks(batch_size).map(slow_in).max().unwrap_or(0),
        })
    }

    fn planned(&self, epoch: Epoch, share: &Share) -> Option<Arc<Planned>> {
        let planning = self.planning.as_ref()?;
        let mut kept = planning.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept.iter().find(|kept| kept.epoch == epoch && kept.share == *share) {
            return Some(Arc::clone(&found.planned));
        }
        let visits = self.sequence().epoch(epoch);
        let cost = |number| self.class_of_cost(planning, epoch, &visits, share.place(number));
        let costs: Vec<u64> = (0..share.samples()).map(cost).collect();
        let planned = Arc::new(Planned { order: planned_order(&costs, planning.max_displacement), costs });
        kept.truncate(KEPT_EPOCHS - 1);
        kept.push_front(Kept { epoch, share: *share, planned: Arc::clone(&planned) });
        Some(planned)
    }

    fn class_of_cost(&self, planning: &Planning, epoch: Epoch, visits: &EpochSequence, place: Place) -> u64 {
        let wanted = self.wanted(epoch, visits, place.position);
        let cost = match &planning.frozen {
            Some(costs) => costs.predict(self, wanted).as_nanos() as f64,
            None => self.static_cost(planning, visits.at(place.position).ordinal, wanted),
        };
        libm::exp2(libm::round(libm::log2(cost + 1.0) * CLASSES) / CLASSES) as u64
    }

    /// Bytes, as often as ops work on them.
    fn static_cost(&self, planning: &Planning, ordinal: u64, wanted: Wanted) -> f64 {
        let bytes = planning.bytes.get_or_init(|| self.bytes_of_samples());
        let fires = |number: &usize| self.ops()[*number].op().fires(&self.draw(*number, wanted));
        let working = 1 + (0..self.ops().len()).filter(fires).count();
        bytes[ordinal as usize] as f64 * working as f64
    }

    /// Bytes of each sample as they are stored; those that cannot be opened count as empty.
    pub fn bytes_of_samples(&self) -> Vec<u64> {
        let source = self.source();
        let bytes_of = |id, field: &str| match source.origin(id, field).open() {
            Ok(Some((_, range))) => range.end - range.start,
            Ok(None) | Err(_) => 1,
        };
        let of_sample = |ordinal| {
            let id = source.id_at(ordinal);
            self.loaded().iter().map(|(field, _)| bytes_of(id, field)).sum()
        };
        (0..source.len()).map(of_sample).collect()
    }
}
