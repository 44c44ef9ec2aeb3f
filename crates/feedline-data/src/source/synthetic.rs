//! Samples generated from their number, without store and decoding. For tests, and to measure everything except the data.

use std::borrow::Cow;
use std::sync::Arc;

use feedline_order::random::{Purpose, StreamKey, mix};
use feedline_order::{Epoch, SampleId, Seed};
use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_128;

use super::{Origin, Source, SourceError, parameters};
use crate::batch::{FieldTypes, Kind};
use crate::dtype::{Dtype, array_bytes};

/// `n` samples of random bytes.
#[derive(Debug)]
pub struct SyntheticSource {
    samples: u64,
    shape: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    n: u64,
    shape: Vec<usize>,
}

impl SyntheticSource {
    /// `n` samples of `shape` bytes.
    pub fn new(samples: u64, shape: Vec<usize>) -> Result<Self, SourceError> {
        let is_possible = array_bytes(Dtype::U8, &shape).is_some_and(|bytes| bytes > 0);
        if samples == 0 || !is_possible {
            let text = format!("synthetic({samples}, {shape:?}): there have to be samples, and bytes in each");
            return Err(SourceError::Parameter(text));
        }
        Ok(Self { samples, shape })
    }

    pub(super) fn from_params(params: toml::Table) -> Result<Self, SourceError> {
        let Params { n, shape } = parameters("synthetic", params)?;
        Self::new(n, shape)
    }
}

impl Source for SyntheticSource {
    fn len(&self) -> u64 {
        self.samples
    }

    fn fields(&self) -> FieldTypes {
        let mut types = FieldTypes::new();
        types.set("data", Kind::of_array(Dtype::U8, &self.shape));
        types
    }

    fn origin(&self, _id: SampleId, _field: &str) -> Origin<'_> {
        Origin::Made
    }

    fn make(&self, id: SampleId, _field: &str, target: &mut [u8]) {
        // One random start per sample, then a counter through `mix`, eight bytes at a time. The last piece may be shorter.
        let first = StreamKey::new(Seed(0), Epoch(0), Purpose::Content).bits(id.0, 0, 0);
        for (number, bytes) in target.chunks_mut(8).enumerate() {
            bytes.copy_from_slice(&mix(first.wrapping_add(number as u64)).to_le_bytes()[..bytes.len()]);
        }
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        format!("synthetic-{:08}", id.0).into()
    }

    fn identity(&self) -> u128 {
        xxh3_128(format!("synthetic {} {:?}", self.samples, self.shape).as_bytes())
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        let mut table = toml::Table::new();
        table.insert("kind".to_owned(), "synthetic".into());
        table.insert("n".to_owned(), (self.samples as i64).into());
        table.insert("shape".to_owned(), self.shape.iter().map(|&side| side as i64).collect::<Vec<_>>().into());
        Ok(table)
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Self::new(self.samples, self.shape.clone())?))
    }
}
