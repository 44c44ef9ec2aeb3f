//! A part of a source, with the parent's indices: a random share or a list.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use delegate::delegate;
use feedline_order::random::{Purpose, StreamKey, unit};
use feedline_order::{Block, Epoch, Ordinal, Permutation, SampleId, Seed};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::{Opener, Origin, Source, SourceError, parameters};
use crate::batch::FieldTypes;
use crate::store::{Peer, StoreError};

/// The rule that selects the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Part {
    /// The samples with these indices.
    Indices {
        /// Indices of the parent's samples, in any order, each at most once.
        indices: Vec<u64>,
    },
    /// The share `from..to` of a random division.
    Share {
        /// The seed of the division.
        seed: u64,
        /// The start of the share, from 0 to 1.
        from: f64,
        /// The end of the share. If it is before the start, the share is everything except what lies between.
        to: f64,
        /// Divide each stratum alone, so that every part has the same mix; the whole source if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<Stratum>,
    },
}

/// The property that groups samples. A stratified division divides each group in the same proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stratum {
    /// Their class.
    Label,
}

/// Part of another source.
#[derive(Debug)]
pub struct SubsetSource {
    parent: Arc<dyn Source>,
    part: Part,
    ids: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    of: toml::Table,
    indices: Option<Vec<u64>>,
    seed: Option<u64>,
    from: Option<f64>,
    to: Option<f64>,
    by: Option<Stratum>,
}

impl SubsetSource {
    /// About this many samples, drawn from all of `parent`. All samples if the parent has no more than that.
    pub fn some(parent: &Arc<dyn Source>, samples: u64) -> Result<Arc<dyn Source>, SourceError> {
        if samples >= parent.len() {
            return Ok(Arc::clone(parent));
        }
        let part = Part::Share { seed: 0, from: 0.0, to: samples as f64 / parent.len() as f64, by: None };
        Ok(Arc::new(Self::new(Arc::clone(parent), part)?))
    }

    /// The given part of `parent`.
    pub fn new(parent: Arc<dyn Source>, part: Part) -> Result<Self, SourceError> {
        let mut ids = match &part {
            Part::Indices { indices } => indices.clone(),
            Part::Share { seed, from, to, by } => {
                let range = CyclicRange::new(*from, *to)?;
                match by {
                    None => share(&*parent, Seed(*seed), range),
                    Some(Stratum::Label) => share_by_label(&*parent, Seed(*seed), range)?,
                }
            }
        };
        // Ascending ids are what `ordinal_of` (binary search) and `blocks` (samples in source order) rely on.
        ids.sort_unstable();
        if let Some([twice, _]) = ids.array_windows().find(|[id, next]| id == next) {
            let text = format!("subset() contains index {twice} twice; use a sampler to repeat samples");
            return Err(SourceError::Parameter(text));
        }
        if let Some(id) = ids.iter().find(|&&id| parent.ordinal_of(SampleId(id)).is_none()) {
            let text = format!("subset() contains index {id}, which is not in the source of {} samples", parent.len());
            return Err(SourceError::Parameter(text));
        }
        if ids.is_empty() {
            return Err(SourceError::Parameter(format!(
                "this part of a source with {} samples is empty",
                parent.len()
            )));
        }
        Ok(Self { parent, part, ids })
    }

    pub(super) fn from_params(params: toml::Table, opener: &dyn Opener) -> Result<Self, SourceError> {
        let Params { of, indices, seed, from, to, by } = parameters("subset", params)?;
        let part = match (indices, from, to) {
            (Some(indices), None, None) => Part::Indices { indices },
            (None, Some(from), Some(to)) => Part::Share { seed: seed.unwrap_or(0), from, to, by },
            _ => {
                let text = "a subset has either indices, or from and to (and a seed)";
                return Err(SourceError::Parameter(text.to_owned()));
            }
        };
        Self::new(opener.open_source(of)?, part)
    }
}

/// A range of the circle from 0 to 1.
#[derive(Clone, Copy)]
struct CyclicRange {
    from: f64,
    to: f64,
}

impl CyclicRange {
    fn new(from: f64, to: f64) -> Result<Self, SourceError> {
        if [from, to].iter().all(|end| (0.0..=1.0).contains(end)) && from.total_cmp(&to).is_ne() {
            return Ok(Self { from, to });
        }
        Err(SourceError::Parameter(format!("a share from {from} to {to} is not a range inside 0 to 1")))
    }

    /// The range, or its two parts where it passes the end of the circle.
    fn parts(self) -> [(f64, f64); 2] {
        if self.from < self.to { [(self.from, self.to), (0.0, 0.0)] } else { [(0.0, self.to), (self.from, 1.0)] }
    }
}

/// The samples in `range` of one random order of all samples.
fn share(parent: &dyn Source, seed: Seed, range: CyclicRange) -> Vec<u64> {
    let len = parent.len();
    // Both neighbours of a boundary round it the same way, so shares that meet neither overlap nor leave a gap.
    let place = |fraction: f64| (fraction * len as f64).round() as u64;
    let order = Permutation::new(StreamKey::new(seed, Epoch(0), Purpose::Split), len);
    // A share is a range of positions in one random order. It depends on the seed only, so all parts of one split agree.
    let positions = range.parts().into_iter().flat_map(|(from, to)| place(from)..place(to));
    positions.map(|position| parent.id_at(Ordinal(order.at(position))).0).collect()
}

/// The same for each class, with its own random order.
///
/// Sample `j` of the `n` in a class lies at `(j + offset) / n` of the circle, with one random offset for each class. So every
/// part gets its fraction of the class, rounded up or down, and parts that divide the circle divide the class.
fn share_by_label(parent: &dyn Source, seed: Seed, range: CyclicRange) -> Result<Vec<u64>, SourceError> {
    let mut classes: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for id in (0..parent.len()).map(|ordinal| parent.id_at(Ordinal(ordinal))) {
        let Some(class) = parent.class_of(id) else {
            let text = format!(
                "a split by label needs a whole number or a class name for each sample, but sample {} has neither",
                id.0
            );
            return Err(SourceError::Parameter(text));
        };
        classes.entry(class).or_default().push(id.0);
    }
    let mut chosen = Vec::new();
    for (number, ids) in (1..).zip(classes.into_values()) {
        // The number of the class takes the place of the epoch, so that each class has draws of its own. Numbers start at 1: 0 is
        // the division without classes.
        let key = StreamKey::new(seed, Epoch(number), Purpose::Split);
        let len = ids.len() as u64;
        let order = Permutation::new(key, len);
        // `Permutation` draws its keys with number 0, so number 1 is free for the offset.
        let offset = unit(key.bits(len, 0, 1));
        for (from, to) in range.parts() {
            let is_inside = |at: f64| from <= at && at < to;
            let inside = (0..len).filter(|&place| is_inside((place as f64 + offset) / len as f64));
            chosen.extend(inside.map(|place| ids[order.at(place) as usize]));
        }
    }
    Ok(chosen)
}

#[deny(clippy::missing_trait_methods)]
impl Source for SubsetSource {
    delegate! {
        to self.ids {
            fn is_empty(&self) -> bool;
        }
        to self.parent {
            fn fields(&self) -> FieldTypes;
            fn origin(&self, id: SampleId, field: &str) -> Origin<'_>;
            fn is_remote(&self) -> bool;
            fn peer(&self) -> Option<Arc<dyn Peer>>;
            fn make(&self, id: SampleId, field: &str, target: &mut [u8]);
            fn make_each(&self, ids: &[SampleId], field: &str, target: &mut [u8]);
            fn made_shape(&self, id: SampleId, field: &str) -> Option<Vec<usize>>;
            fn key(&self, id: SampleId) -> Cow<'_, str>;
            fn address(&self, id: SampleId) -> Option<(String, Option<Range<u64>>)>;
            fn class_of(&self, id: SampleId) -> Option<i64>;
            fn classes(&self) -> &[String];
            fn skipped(&self) -> u64;
            fn version(&self) -> u128;
            fn ending(&self, id: SampleId, field: &str) -> Option<String>;
            fn seek_record(&self, id: SampleId, field: &str, record: &mut Vec<u8>) -> Result<bool, StoreError>;
        }
    }

    fn len(&self) -> u64 {
        self.ids.len() as u64
    }

    fn id_at(&self, ordinal: Ordinal) -> SampleId {
        SampleId(self.ids[ordinal.0 as usize])
    }

    fn ordinal_of(&self, id: SampleId) -> Option<Ordinal> {
        self.ids.binary_search(&id.0).ok().map(|ordinal| Ordinal(ordinal as u64))
    }

    fn blocks(&self) -> Option<Vec<Block>> {
        // For each block of the parent: how many of its samples are in the subset. Their bytes are estimated by proportion.
        let mut parent_end = 0;
        let place = |id: &u64| self.parent.ordinal_of(SampleId(*id)).map_or(u64::MAX, |ordinal| ordinal.0);
        let own = |Block { samples, bytes }: Block| {
            let start = self.ids.partition_point(|id| place(id) < parent_end);
            parent_end += samples;
            let own = (self.ids.partition_point(|id| place(id) < parent_end) - start) as u64;
            // In 128 bits, since bytes times samples can exceed 64 bits.
            Block { samples: own, bytes: (u128::from(bytes) * u128::from(own) / u128::from(samples.max(1))) as u64 }
        };
        Some(self.parent.blocks()?.into_iter().map(own).filter(|block| block.samples > 0).collect())
    }

    fn parent(&self) -> Option<&dyn Source> {
        Some(&*self.parent)
    }

    fn identity(&self) -> u128 {
        let mut hasher = Xxh3::new();
        hasher.update(&self.parent.identity().to_le_bytes());
        for id in &self.ids {
            hasher.update(&id.to_le_bytes());
        }
        hasher.digest128()
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        let mut table = toml::Table::try_from(&self.part).expect("a part is plain data");
        table.insert("kind".to_owned(), "subset".into());
        table.insert("of".to_owned(), toml::Value::Table(self.parent.spec()?));
        Ok(table)
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Self::new(self.parent.refreshed()?, self.part.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SyntheticSource;

    #[test]
    fn shares_of_one_seed_are_disjoint_cover_all_and_keep_the_parents_ids() {
        let parent: Arc<dyn Source> = Arc::new(SyntheticSource::new(101, vec![4]).unwrap());
        let part =
            |from, to| SubsetSource::new(Arc::clone(&parent), Part::Share { seed: 3, from, to, by: None }).unwrap();
        let (train, val) = (part(0.0, 0.9), part(0.9, 1.0));
        assert_eq!((train.len(), val.len()), (91, 10));
        let mut ids: Vec<u64> =
            (0..91).map(|n| train.id_at(Ordinal(n)).0).chain((0..10).map(|n| val.id_at(Ordinal(n)).0)).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..101));
        assert_eq!(train.ordinal_of(val.id_at(Ordinal(0))), None);
        assert_ne!(train.identity(), val.identity());
    }

    #[test]
    fn parts_by_label_divide_every_class_and_each_gets_its_fraction_rounded_up_or_down() {
        let names: Vec<String> = (0..103).map(|n| format!("class {}", n % 7)).collect();
        let paths = (0..103).map(|n| format!("{n}.jpg")).collect();
        let labels = Some(crate::source::Labels::of_names(&names));
        let parent: Arc<dyn Source> =
            Arc::new(crate::source::FilesSource::new(vec![("image".to_owned(), paths)], labels).unwrap());
        let part = |from, to| {
            let part = Part::Share { seed: 5, from, to, by: Some(Stratum::Label) };
            SubsetSource::new(Arc::clone(&parent), part).unwrap()
        };
        let parts = [part(0.0, 0.25), part(0.25, 0.5), part(0.5, 1.0)];
        let mut all: Vec<u64> = parts.iter().flat_map(|part| part.ids.clone()).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..103));
        for (part, fraction) in parts.iter().zip([0.25, 0.25, 0.5]) {
            for class in 0..7 {
                let count =
                    |ids: &[u64]| ids.iter().filter(|&&id| parent.class_of(SampleId(id)) == Some(class)).count();
                let whole = count(&(0..103).collect::<Vec<_>>()) as f64 * fraction;
                assert!((count(&part.ids) as f64 - whole).abs() < 1.0, "class {class}");
            }
        }
        let rest = part(0.5, 0.25);
        assert!(rest.ids.iter().all(|id| !parts[1].ids.contains(id)));
        assert_eq!(rest.len() + parts[1].len(), 103, "a share that passes the end takes all but what lies between");
    }
}
