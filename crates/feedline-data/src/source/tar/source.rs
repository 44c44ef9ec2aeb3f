//! The samples of tar shards.
//!
//! In: patterns or paths. Out: the byte ranges of each sample's members. Always true: ids follow the addresses of the shards and
//! the places in them. A field exists only if every sample has it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use feedline_order::{Block, SampleId};
use serde::Deserialize;

use super::super::{Opener, Origin, Source, SourceError, parameters};
use super::identity::Identity;
use super::index::{IndexEntry, IndexError, forged};
use super::memory::MemoryObject;
use super::names::{CLASS, IMAGE, LABEL, is_text};
use super::pattern::Patterns;
use super::shard::{IndexCache, OpenShard};
use super::shards::{Location, Shards};
use crate::batch::{FieldTypes, Kind};
use crate::dtype::Dtype;
use crate::store::{Object, Peer, StoreError};

/// Samples in tar shards.
#[derive(Debug)]
pub struct TarSource {
    patterns: Arc<Patterns>,
    cache: Option<IndexCache>,
    shards: Shards,
    fields: FieldTypes,
    classes: Vec<String>,
    identity: u128,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    shards: OneOrMany,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "shards is a pattern, a path or a folder, or a list of them")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl TarSource {
    /// Opens shards from patterns such as `train/*.tar`, paths, or folders.
    pub fn open(patterns: Vec<String>, opener: &dyn Opener) -> Result<Self, SourceError> {
        let patterns = Arc::new(Patterns::new(patterns, opener)?);
        Self::find(patterns, opener.cache_folder().map(IndexCache::new))
    }

    pub(in super::super) fn from_params(params: toml::Table, opener: &dyn Opener) -> Result<Self, SourceError> {
        let patterns = match parameters::<Params>("tar", params)?.shards {
            OneOrMany::One(pattern) => vec![pattern],
            OneOrMany::Many(patterns) => patterns,
        };
        Self::open(patterns, opener)
    }

    /// Lists the shards and opens them.
    fn find(patterns: Arc<Patterns>, cache: Option<IndexCache>) -> Result<Self, SourceError> {
        let shards = Shards::open(&patterns.find()?, cache.clone())?;
        if shards.samples() == 0 {
            return Err(SourceError::NoSamples { shards: shards.len(), first: shards.address(0) });
        }
        let fields = fields(&shards)?;
        let classes = classes(&shards)?;
        let mut identity = Identity::default();
        for head in shards.heads() {
            identity.join(&head.identity);
        }
        Ok(Self { patterns, cache, shards, fields, classes, identity: identity.digest() })
    }

    /// The stored width and height of a picture, if the index knows them.
    pub fn dimensions(&self, id: SampleId, field: &str) -> Result<Option<(u32, u32)>, StoreError> {
        let size = |open: &OpenShard, entry: &IndexEntry| {
            let field = entry.field(number_of(open, field)?)?;
            (field.width > 0 && field.height > 0).then_some((field.width, field.height))
        };
        self.read(id, |open, entry, _| Ok(size(open, entry)))
    }

    /// The bytes of an index with recomputed checksums, as an attacker would write them. For tests.
    #[doc(hidden)]
    pub fn forged_index(bytes: &[u8]) -> Vec<u8> {
        forged(bytes)
    }

    /// Reads from the index of a sample's shard. `read` gets the open shard, the sample's entry, and its number in the shard.
    fn read<T>(
        &self,
        id: SampleId,
        read: impl Fn(&OpenShard, &IndexEntry, u64) -> Result<T, IndexError>,
    ) -> Result<T, StoreError> {
        let Location { shard, sample } = self.shards.locate(id.0);
        self.shards.read(shard, |open| {
            let entry = open.index.entry(sample)?;
            read(open, &entry, sample)
        })
    }

    fn label(&self, id: SampleId) -> Result<i64, StoreError> {
        self.read(id, |_, entry, _| entry.label.ok_or(IndexError::Damaged))
    }

    fn part(&self, id: SampleId, field: &str) -> Result<Origin<'static>, StoreError> {
        if field == LABEL {
            let (label, address) = (self.label(id)?, self.shards.address(self.shards.locate(id.0).shard));
            let object = Arc::new(MemoryObject::new(address, label.to_ne_bytes().to_vec()));
            // The label is in the index. An object in memory lets the caller read it like any other field.
            return Ok(Origin::Part { range: 0..object.len(), object });
        }
        self.read(id, |open, entry, _| {
            let place = number_of(open, field).and_then(|number| entry.field(number)).ok_or(IndexError::Damaged)?;
            Ok(Origin::Part { object: Arc::clone(&open.object), range: place.data.clone() })
        })
    }
}

/// The number of a field in the index of a shard.
fn number_of(open: &OpenShard, field: &str) -> Option<usize> {
    open.index.head.fields.iter().position(|(name, _)| name == field)
}

/// The fields that every sample has. A warning names the others.
fn fields(shards: &Shards) -> Result<FieldTypes, SourceError> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut labels = 0;
    for head in shards.heads() {
        labels += head.labels;
        for (field, samples) in &head.fields {
            *counts.entry(field.clone()).or_default() += samples;
        }
    }
    let samples = shards.samples();
    let has_labels = labels == samples;
    // If every sample has an integer class, the class is offered as `label`, and the text field `cls` is not.
    let is_offered = |field: &str, count: u64| count == samples && !(has_labels && field == CLASS);
    let mut types = FieldTypes::new();
    // The picture comes first in a batch, then the other fields in alphabetical order, then the label.
    if counts.get(IMAGE) == Some(&samples) {
        types.set(IMAGE, Kind::Bytes);
    }
    for (field, &count) in &counts {
        if is_offered(field, count) {
            types.set(field, if is_text(field) { Kind::Text } else { Kind::Bytes });
        }
    }
    if has_labels {
        types.set(LABEL, Kind::tensor(Dtype::I64, &[]));
    }
    let mut left_out = String::new();
    for (field, count) in counts.iter().filter(|(_, count)| **count < samples) {
        let comma = if left_out.is_empty() { "" } else { ", " };
        write!(left_out, "{comma}{field:?} (in {count})").expect("writing to a string cannot fail");
    }
    if types.iter().next().is_none() {
        return Err(SourceError::NoCommonField { samples, fields: left_out });
    }
    if !left_out.is_empty() {
        tracing::warn!(samples, fields = left_out, "fields that not every sample has were left out");
    }
    Ok(types)
}

/// The names of the classes. Empty if there are none, if shards disagree, or if they are damaged in all shards.
fn classes(shards: &Shards) -> Result<Vec<String>, StoreError> {
    let named: Vec<(usize, u64)> =
        shards.heads().enumerate().filter_map(|(shard, head)| Some((shard, head.classes_hash?))).collect();
    if named.iter().any(|(_, hash)| *hash != named[0].1) {
        tracing::warn!("shards disagree on the names of the classes, so classes have no names");
        return Ok(Vec::new());
    }
    for (shard, _) in &named {
        if let Some(classes) = shards.read(*shard, |open| Ok(open.index.classes()?))? {
            return Ok(classes);
        }
    }
    if !named.is_empty() {
        tracing::warn!("the class names are damaged in all shards, so classes have no names");
    }
    Ok(Vec::new())
}

impl Source for TarSource {
    fn len(&self) -> u64 {
        self.shards.samples()
    }

    fn fields(&self) -> FieldTypes {
        self.fields.clone()
    }

    fn origin(&self, id: SampleId, field: &str) -> Origin<'_> {
        self.part(id, field).unwrap_or_else(|error| {
            // An origin cannot fail. Reading the sample returns the error, as the failure of that sample (law 6).
            let address = self.shards.address(self.shards.locate(id.0).shard);
            Origin::Part { object: Arc::new(Unreadable { address, error: Arc::new(error) }), range: 0..0 }
        })
    }

    fn is_remote(&self) -> bool {
        self.shards.is_remote()
    }

    fn blocks(&self) -> Option<Vec<Block>> {
        Some(self.shards.blocks())
    }

    fn version(&self) -> u128 {
        self.shards.version()
    }

    fn peer(&self) -> Option<Arc<dyn Peer>> {
        self.shards.peer()
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        let names = self.read(id, |open, entry, sample| open.index.names(sample, entry));
        names.map_or_else(
            |_| {
                let Location { shard, sample } = self.shards.locate(id.0);
                format!("{}#{sample}", self.shards.address(shard)).into()
            },
            |names| names.key.into(),
        )
    }

    fn class_of(&self, id: SampleId) -> Option<i64> {
        // A sample without a class is no damage, so `label` would rebuild a good index.
        self.read(id, |_, entry, _| Ok(entry.label)).ok().flatten()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn identity(&self) -> u128 {
        self.identity
    }

    fn ending(&self, id: SampleId, field: &str) -> Option<String> {
        let extension = |open: &OpenShard, entry: &IndexEntry, sample| {
            let number = number_of(open, field).ok_or(IndexError::Damaged)?;
            let place = entry.fields.iter().position(|(other, _)| *other == number).ok_or(IndexError::Damaged)?;
            Ok(open.index.names(sample, entry)?.extensions.swap_remove(place))
        };
        let extension = self.read(id, extension).ok()?;
        Some(extension.rsplit_once('.').map_or(extension.as_str(), |(_, last)| last).to_owned())
    }

    fn seek_record(&self, id: SampleId, field: &str, record: &mut Vec<u8>) -> Result<bool, StoreError> {
        let place = self.read(id, |open, entry, sample| {
            let place = number_of(open, field).and_then(|number| entry.field(number));
            let place = place.map(|place| place.record.clone()).filter(|place| !place.is_empty());
            Ok(place.map(|place| (open.index.clone(), sample, place)))
        })?;
        let Some((index, sample, place)) = place else { return Ok(false) };
        // Without the seek index the whole picture is read, so damage costs time but no data.
        let is_intact = index.part(sample, &place, record).is_ok();
        if !is_intact {
            tracing::debug!(sample = id.0, field, "ignored a damaged seek index of a picture");
        }
        Ok(is_intact)
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        let mut table = toml::Table::new();
        table.insert("kind".to_owned(), "tar".into());
        let shards = match self.patterns.input.as_slice() {
            [one] => one.clone().into(),
            many => many.to_vec().into(),
        };
        table.insert("shards".to_owned(), shards);
        Ok(table)
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Self::find(Arc::clone(&self.patterns), self.cache.clone())?))
    }
}

/// A field whose place is not known, because of an error. Reading it returns the error.
#[derive(Debug)]
struct Unreadable {
    address: String,
    error: Arc<StoreError>,
}

impl Object for Unreadable {
    fn len(&self) -> u64 {
        0
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn read_at(&self, _offset: u64, _target: &mut [u8]) -> Result<(), StoreError> {
        Err(Arc::clone(&self.error).into())
    }
}
