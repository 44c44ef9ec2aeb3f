//! Labels, one per sample: arrays of any element type and shape, which may differ between samples, or the names of classes.

use std::collections::BTreeSet;

use feedline_order::{Ordinal, SampleId};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::{Origin, Source, SourceError};
use crate::batch::{Axes, Kind};
use crate::dtype::{Dtype, array_bytes};

/// One label per sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    dtype: Dtype,
    shapes: Shapes,
    /// The labels one after the other.
    bytes: Vec<u8>,
    /// The names of the classes, sorted, where the user gave names.
    classes: Vec<String>,
}

/// The shapes of labels.
#[derive(Clone, Debug, PartialEq)]
enum Shapes {
    /// All labels have this shape. Each takes `stride` bytes, and `stride` is at least 1.
    Same { shape: Vec<usize>, stride: usize },
    /// Each label has a shape of its own. `ends` are the ends of the labels in the bytes.
    Ragged { shapes: Vec<Vec<usize>>, ends: Vec<usize> },
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
        Ok(Self { dtype, shapes: Shapes::Same { shape, stride }, bytes, classes: Vec::new() })
    }

    /// Labels with a shape each, such as the boxes of a picture. All have the same number of axes.
    pub fn ragged(dtype: Dtype, shapes: Vec<Vec<usize>>, bytes: Vec<u8>) -> Result<Self, SourceError> {
        let problem = |text: String| Err(SourceError::Parameter(text));
        let sides = shapes.first().map_or(0, Vec::len);
        if let Some(other) = shapes.iter().find(|shape| shape.len() != sides || shape.is_empty()) {
            let first = shapes.first().unwrap_or(other);
            return problem(format!("labels of shapes {first:?} and {other:?} differ in their number of axes"));
        }
        let mut ends = Vec::with_capacity(shapes.len());
        let mut end = 0_usize;
        for shape in &shapes {
            // `None` if a size or the sum overflows. Such labels cannot fill the bytes.
            end = array_bytes(dtype, shape).and_then(|bytes| end.checked_add(bytes)).unwrap_or(usize::MAX);
            ends.push(end);
        }
        if end != bytes.len() {
            return problem(format!("labels take {end} bytes by their shapes, but {} are there", bytes.len()));
        }
        Ok(Self { dtype, shapes: Shapes::Ragged { shapes, ends }, bytes, classes: Vec::new() })
    }

    /// Labels from the name of each sample's class. The label is the place of the name among the sorted names.
    pub fn of_names(names: &[String]) -> Self {
        let classes: Vec<String> = names.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let class = |name: &String| classes.binary_search(name).expect("it is one of them") as i64;
        let bytes = names.iter().flat_map(|name| class(name).to_ne_bytes()).collect();
        let shapes = Shapes::Same { shape: Vec::new(), stride: Dtype::I64.bytes() };
        Self { dtype: Dtype::I64, shapes, bytes, classes }
    }

    /// The labels of a source, in its order. `None` if it has none, or if they are stored data that must be read, such as label
    /// volumes.
    pub fn of(source: &dyn Source) -> Option<Self> {
        let fields = source.fields();
        let kind = fields.get("label")?;
        let Some((dtype, shape)) = kind.fixed() else { return Self::ragged_of(source, kind) };
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
        Some(Self { dtype, shapes: Shapes::Same { shape, stride }, bytes, classes: source.classes().to_vec() })
    }

    fn ragged_of(source: &dyn Source, kind: &Kind) -> Option<Self> {
        let Kind::Tensor { dtype, .. } = *kind else { return None };
        let (mut shapes, mut bytes) = (Vec::new(), Vec::new());
        for ordinal in 0..source.len() {
            let id = source.id_at(Ordinal(ordinal));
            let shape = source.made_shape(id, "label")?;
            let start = bytes.len();
            bytes.resize(start + array_bytes(dtype, &shape)?, 0);
            source.make(id, "label", &mut bytes[start..]);
            shapes.push(shape);
        }
        Self::ragged(dtype, shapes, bytes).ok()
    }

    /// The element type of all labels.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The shape of every label, if all have the same, and the bytes of all.
    pub fn uniform(&self) -> Option<(&[usize], &[u8])> {
        match &self.shapes {
            Shapes::Same { shape, .. } => Some((shape, &self.bytes)),
            Shapes::Ragged { .. } => None,
        }
    }

    /// The shape and the bytes of each label, in source order.
    pub fn each(&self) -> impl Iterator<Item = (&[usize], &[u8])> {
        (0..self.len()).map(|place| (self.shape_at(place), self.bytes_at(place)))
    }

    fn shape_at(&self, place: usize) -> &[usize] {
        match &self.shapes {
            Shapes::Same { shape, .. } => shape,
            Shapes::Ragged { shapes, .. } => &shapes[place],
        }
    }

    fn bytes_at(&self, place: usize) -> &[u8] {
        match &self.shapes {
            Shapes::Same { stride, .. } => &self.bytes[place * stride..][..*stride],
            Shapes::Ragged { ends, .. } => {
                let start = if place == 0 { 0 } else { ends[place - 1] };
                &self.bytes[start..ends[place]]
            }
        }
    }

    /// The shape of a sample's label, if shapes differ between samples.
    pub(crate) fn made_shape(&self, id: SampleId) -> Option<Vec<usize>> {
        match &self.shapes {
            Shapes::Same { .. } => None,
            Shapes::Ragged { shapes, .. } => shapes.get(id.0 as usize).cloned(),
        }
    }

    /// The names of the classes; none where labels are numbers.
    pub(crate) fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Number of labels.
    pub(crate) fn len(&self) -> usize {
        match &self.shapes {
            Shapes::Same { stride, .. } => self.bytes.len() / stride,
            Shapes::Ragged { shapes, .. } => shapes.len(),
        }
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        match &self.shapes {
            Shapes::Same { shape, .. } => Kind::tensor(self.dtype, shape),
            Shapes::Ragged { shapes, .. } => {
                let first = shapes.first().map_or(&[][..], Vec::as_slice);
                let same = |side: usize| shapes.iter().all(|shape| shape[side] == first[side]);
                // The first axis counts things, such as boxes. Its length is unknown even if all samples happen to agree.
                let side = |(side, &len): (usize, &usize)| (side > 0 && same(side)).then_some(len);
                let shape = first.iter().enumerate().map(side).collect();
                Kind::Tensor { dtype: self.dtype, shape, axes: Axes::Unknown }
            }
        }
    }

    /// The bytes of one label.
    pub(crate) fn get(&self, id: SampleId) -> &[u8] {
        self.bytes_at(id.0 as usize)
    }

    /// The class of a sample, if labels are single integers.
    pub(crate) fn class_of(&self, id: SampleId) -> Option<i64> {
        let bytes = self.get(id);
        if !self.shape_at(id.0 as usize).is_empty() {
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
        let shapes = match &self.shapes {
            Shapes::Same { shape, .. } => format!("{} {shape:?}", self.dtype.name()),
            Shapes::Ragged { shapes, .. } => format!("{} {shapes:?}", self.dtype.name()),
        };
        xxh3_128(shapes.as_bytes()) ^ xxh3_128(&self.bytes) ^ names
    }

    /// The labels in the form of a plan, if they are plain integers.
    pub(super) fn plain(&self) -> Result<PlainLabels, SourceError> {
        let labels: Option<Vec<i64>> = (0..self.len() as u64).map(|id| self.class_of(SampleId(id))).collect();
        if let (Some(labels), false) = (&labels, self.classes.is_empty()) {
            let names = labels.iter().map(|&class| self.classes[class as usize].clone()).collect();
            return Ok(PlainLabels { labels: Some(PlainList::Names(names)), label_dtype: None });
        }
        let labels = labels.ok_or_else(|| {
            SourceError::Unserialisable(format!("labels are {}, not whole numbers or names of classes", self.kind()))
        })?;
        let label_dtype = (self.dtype != Dtype::I64).then_some(self.dtype);
        Ok(PlainLabels { labels: Some(PlainList::Numbers(labels)), label_dtype })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ragged_labels_have_a_shape_each_and_their_bytes_add_up() {
        let shapes = vec![vec![2, 4], vec![0, 4], vec![1, 4]];
        let bytes: Vec<u8> = (0..12).collect();
        let labels = Labels::ragged(Dtype::U8, shapes.clone(), bytes.clone()).unwrap();
        assert_eq!(labels.kind().to_string(), "a uint8 tensor [?, 4]");
        let each: Vec<_> = labels.each().map(|(shape, bytes)| (shape.to_vec(), bytes.to_vec())).collect();
        assert_eq!(each[0], (vec![2, 4], (0..8).collect()));
        assert_eq!(each[1], (vec![0, 4], Vec::new()));
        assert_eq!(each[2], (vec![1, 4], (8..12).collect()));
        assert_eq!((labels.len(), labels.class_of(SampleId(1))), (3, None));
        let swapped = vec![vec![2, 4], vec![1, 4], vec![0, 4]];
        let other = Labels::ragged(Dtype::U8, swapped, bytes.clone()).unwrap();
        assert_ne!(other.identity(), labels.identity(), "the same bytes in other shapes are other labels");
        for wrong in [vec![vec![3, 4]; 2], vec![vec![usize::MAX, 4], vec![1]], vec![vec![usize::MAX]; 2]] {
            Labels::ragged(Dtype::U8, wrong, bytes.clone()).unwrap_err();
        }
    }

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
