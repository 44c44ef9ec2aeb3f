//! A Python dataset as a source. Worker processes make its samples, so it has no bytes of its own.
//!
//! In: a number of samples, and a name for messages. Out: one field, [`DATASET_FIELD`], which holds the parts of a sample that have
//! no fixed shape. Arrays with a fixed shape are leaves of the batch layout. A plan with this source runs only with a supply that
//! makes samples.

use std::borrow::Cow;
use std::sync::Arc;

use feedline_order::SampleId;
use xxhash_rust::xxh3::xxh3_128;

use super::{Origin, Source, SourceError};
use crate::batch::{FieldTypes, Kind};

/// The field with the parts of a sample that have no fixed shape.
pub const DATASET_FIELD: &str = "sample";

/// The samples of a Python dataset.
#[derive(Debug)]
pub struct DatasetSource {
    len: u64,
    name: String,
}

impl DatasetSource {
    /// A dataset of `len` samples. `name` identifies it in messages and fingerprints.
    pub fn new(len: u64, name: String) -> Self {
        Self { len, name }
    }
}

impl Source for DatasetSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn fields(&self) -> FieldTypes {
        let mut types = FieldTypes::new();
        types.set(DATASET_FIELD, Kind::Bytes);
        types
    }

    fn origin(&self, _: SampleId, _: &str) -> Origin<'_> {
        Origin::Made
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        format!("{}[{}]", self.name, id.0).into()
    }

    fn identity(&self) -> u128 {
        xxh3_128(format!("dataset {} {}", self.len, self.name).as_bytes())
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        Err(SourceError::Unserialisable(format!("{} is a Python object", self.name)))
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Self::new(self.len, self.name.clone())))
    }
}
