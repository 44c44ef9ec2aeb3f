//! Labels of any element type and shape, one per sample.

use feedline_order::SampleId;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::SourceError;
use crate::batch::Kind;
use crate::dtype::{Dtype, array_bytes};

/// One label per sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
    stride: usize,
}

/// Labels in the form of a plan: one integer per sample, int64 by default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PlainLabels {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_dtype: Option<Dtype>,
}

impl PlainLabels {
    /// The labels, if there are any.
    pub(super) fn open(self) -> Result<Option<Labels>, SourceError> {
        let Some(labels) = self.labels else { return Ok(None) };
        let dtype = self.label_dtype.unwrap_or(Dtype::I64);
        let bytes: Option<Vec<Vec<u8>>> = labels.iter().map(|&label| encode(dtype, label)).collect();
        let bytes = bytes.ok_or_else(|| SourceError::Parameter(format!("a label is not of {}", dtype.name())))?;
        Labels::new(dtype, Vec::new(), bytes.concat()).map(Some)
    }

    /// Adds the labels to the table of a source.
    pub(super) fn add_to(&self, table: &mut toml::Table) {
        table.extend(toml::Table::try_from(self).expect("labels are plain data"));
    }
}

fn encode(dtype: Dtype, label: i64) -> Option<Vec<u8>> {
    Some(match dtype {
        Dtype::Bool | Dtype::U8 => vec![u8::try_from(label).ok()?],
        Dtype::I8 => i8::try_from(label).ok()?.to_ne_bytes().to_vec(),
        Dtype::U16 => u16::try_from(label).ok()?.to_ne_bytes().to_vec(),
        Dtype::I16 => i16::try_from(label).ok()?.to_ne_bytes().to_vec(),
        Dtype::U32 => u32::try_from(label).ok()?.to_ne_bytes().to_vec(),
        Dtype::I32 => i32::try_from(label).ok()?.to_ne_bytes().to_vec(),
        Dtype::U64 => u64::try_from(label).ok()?.to_ne_bytes().to_vec(),
        Dtype::I64 => label.to_ne_bytes().to_vec(),
        Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64 => return None,
    })
}

impl Labels {
    /// Labels of `shape` each, in one array over all samples.
    pub fn new(dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self, SourceError> {
        let stride = array_bytes(dtype, &shape)
            .filter(|&stride| stride > 0 && bytes.len().is_multiple_of(stride))
            .ok_or_else(|| SourceError::Parameter(format!("labels of shape {shape:?} hold no elements")))?;
        Ok(Self { dtype, shape, bytes, stride })
    }

    /// Number of labels.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.stride
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Rejects a number of labels that differs from the number of samples.
    pub(crate) fn check_len(&self, samples: u64) -> Result<(), SourceError> {
        if self.len() as u64 == samples {
            return Ok(());
        }
        Err(SourceError::LabelCount { labels: self.len(), samples })
    }

    /// The kind of the label field.
    pub(crate) fn kind(&self) -> Kind {
        Kind::tensor(self.dtype, &self.shape)
    }

    /// The bytes of one label.
    pub(crate) fn get(&self, id: SampleId) -> &[u8] {
        &self.bytes[id.0 as usize * self.stride..][..self.stride]
    }

    /// The class of a sample, if labels are single integers.
    pub(crate) fn class_of(&self, id: SampleId) -> Option<i64> {
        let bytes = self.get(id);
        if !self.shape.is_empty() {
            return None;
        }
        match self.dtype {
            Dtype::Bool | Dtype::U8 => Some(i64::from(bytes[0])),
            Dtype::I8 => Some(i64::from(bytes[0] as i8)),
            Dtype::U16 => Some(i64::from(u16::from_ne_bytes(bytes.try_into().ok()?))),
            Dtype::I16 => Some(i64::from(i16::from_ne_bytes(bytes.try_into().ok()?))),
            Dtype::U32 => Some(i64::from(u32::from_ne_bytes(bytes.try_into().ok()?))),
            Dtype::I32 => Some(i64::from(i32::from_ne_bytes(bytes.try_into().ok()?))),
            Dtype::I64 => Some(i64::from_ne_bytes(bytes.try_into().ok()?)),
            Dtype::U64 => i64::try_from(u64::from_ne_bytes(bytes.try_into().ok()?)).ok(),
            Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64 => None,
        }
    }

    /// A hash of all labels.
    pub(crate) fn identity(&self) -> u128 {
        xxh3_128(format!("{} {:?}", self.dtype.name(), self.shape).as_bytes()) ^ xxh3_128(&self.bytes)
    }

    /// The labels in the form of a plan, if they are plain integers.
    pub(super) fn plain(&self) -> Result<PlainLabels, SourceError> {
        let labels: Option<Vec<i64>> = (0..self.len() as u64).map(|id| self.class_of(SampleId(id))).collect();
        let dtype = self.dtype.name();
        let labels = labels.ok_or_else(|| {
            SourceError::Unserialisable(format!("labels of {dtype} {:?} are not plain whole numbers", self.shape))
        })?;
        let label_dtype = (self.dtype != Dtype::I64).then_some(self.dtype);
        Ok(PlainLabels { labels: Some(labels), label_dtype })
    }
}
