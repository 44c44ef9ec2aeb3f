//! Labels, one per sample: numbers of any element type and shape, or the names of classes.

use std::collections::BTreeSet;

use feedline_order::{Ordinal, SampleId};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::{Origin, Source, SourceError};
use crate::batch::Kind;
use crate::dtype::{Dtype, array_bytes};

/// One label per sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
    stride: usize,
    /// The names of the classes, sorted, where the user gave names.
    classes: Vec<String>,
}

/// Labels in the form of a plan: one integer per sample (int64 by default), or one class name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PlainLabels {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<PlainList>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_dtype: Option<Dtype>,
}

/// One label per sample, as a plan spells it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "labels are whole numbers, or names of classes")]
pub(super) enum PlainList {
    Numbers(Vec<i64>),
    Names(Vec<String>),
}

impl PlainLabels {
    /// The labels, if there are any.
    pub(super) fn open(self) -> Result<Option<Labels>, SourceError> {
        let labels = match self.labels {
            None => return Ok(None),
            Some(PlainList::Names(names)) => return Ok(Some(Labels::of_names(&names))),
            Some(PlainList::Numbers(labels)) => labels,
        };
        let dtype = self.label_dtype.unwrap_or(Dtype::I64);
        let bytes: Option<Vec<Vec<u8>>> = labels.iter().map(|&label| encode(dtype, label)).collect();
        let bytes =
            bytes.ok_or_else(|| SourceError::Parameter(format!("a label does not fit into {}", dtype.name())))?;
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
        // A plan stores labels as integers only.
        Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64 => return None,
    })
}

impl Labels {
    /// Labels of `shape` each, in one array over all samples.
    pub fn new(dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self, SourceError> {
        let stride = array_bytes(dtype, &shape)
            .filter(|&stride| stride > 0 && bytes.len().is_multiple_of(stride))
            .ok_or_else(|| {
                SourceError::Parameter(format!(
                    "labels of shape {shape:?} have no elements or do not fill {} bytes",
                    bytes.len()
                ))
            })?;
        Ok(Self { dtype, shape, bytes, stride, classes: Vec::new() })
    }

    /// Labels from the name of each sample's class. The label is the place of the name among the sorted names.
    pub fn of_names(names: &[String]) -> Self {
        let classes: Vec<String> = names.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let class = |name: &String| classes.binary_search(name).expect("it is one of them") as i64;
        let bytes = names.iter().flat_map(|name| class(name).to_ne_bytes()).collect();
        Self { dtype: Dtype::I64, shape: Vec::new(), bytes, stride: Dtype::I64.bytes(), classes }
    }

    /// The labels of a source, in its order; `None` if it has none, or if they are stored like volumes.
    pub fn of(source: &dyn Source) -> Option<Self> {
        let (dtype, shape) = source.fields().get("label")?.fixed()?;
        let stride = array_bytes(dtype, &shape)?;
        let mut bytes = vec![0; stride * usize::try_from(source.len()).ok()?];
        for (ordinal, target) in bytes.chunks_mut(stride).enumerate() {
            let id = source.id_at(Ordinal(ordinal as u64));
            match source.class_of(id) {
                // The class is known without reading the data. This is the case for folders and indexed shards.
                Some(class) if dtype == Dtype::I64 && shape.is_empty() => target.copy_from_slice(&class.to_ne_bytes()),
                _ if matches!(source.origin(id, "label"), Origin::Made) => source.make(id, "label", target),
                // The label is stored like a volume. Reading all of them would take as long as an epoch.
                _ => return None,
            }
        }
        Some(Self { dtype, shape, bytes, stride, classes: source.classes().to_vec() })
    }

    /// Element type, shape of one label, and the bytes of all.
    pub fn into_parts(self) -> (Dtype, Vec<usize>, Vec<u8>) {
        (self.dtype, self.shape, self.bytes)
    }

    /// The names of the classes; none where labels are numbers.
    pub(crate) fn classes(&self) -> &[String] {
        &self.classes
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
        // Without names the hash covers type, shape and values only.
        let names = if self.classes.is_empty() { 0 } else { xxh3_128(self.classes.join("\u{0}").as_bytes()) };
        xxh3_128(format!("{} {:?}", self.dtype.name(), self.shape).as_bytes()) ^ xxh3_128(&self.bytes) ^ names
    }

    /// The labels in the form of a plan, if they are plain integers.
    pub(super) fn plain(&self) -> Result<PlainLabels, SourceError> {
        let labels: Option<Vec<i64>> = (0..self.len() as u64).map(|id| self.class_of(SampleId(id))).collect();
        let dtype = self.dtype.name();
        if let (Some(labels), false) = (&labels, self.classes.is_empty()) {
            let names = labels.iter().map(|&class| self.classes[class as usize].clone()).collect();
            return Ok(PlainLabels { labels: Some(PlainList::Names(names)), label_dtype: None });
        }
        let labels = labels.ok_or_else(|| {
            SourceError::Unserialisable(format!("labels of {dtype} {:?} are not plain whole numbers", self.shape))
        })?;
        let label_dtype = (self.dtype != Dtype::I64).then_some(self.dtype);
        Ok(PlainLabels { labels: Some(PlainList::Numbers(labels)), label_dtype })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_classes_in_sorted_order_and_are_written_as_names() {
        let names = ["dog", "cat", "dog", "ant"].map(str::to_owned);
        let labels = Labels::of_names(&names);
        assert_eq!(labels.classes(), ["ant", "cat", "dog"]);
        let classes: Vec<_> = (0..4).map(|id| labels.class_of(SampleId(id)).unwrap()).collect();
        assert_eq!(classes, [2, 1, 2, 0]);
        let again = labels.plain().unwrap().open().unwrap().unwrap();
        assert_eq!((again.identity(), again), (labels.identity(), labels.clone()));
        let other = Labels::of_names(&["dog", "cow", "dog", "ant"].map(str::to_owned));
        assert_ne!(other.identity(), labels.identity(), "another name is another source");
    }
}
