//! Batches as the trainer receives them.
//!
//! A batch owns its memory: nothing in it changes after delivery, whatever the engine does next (law 5).

use std::sync::Arc;

use feedline_memory::Span;
use feedline_order::Epoch;

use super::Unslotted;
use crate::dtype::Dtype;

/// A batch of prepared samples.
#[derive(Debug)]
pub struct Batch {
    /// The epoch it belongs to.
    pub epoch: Epoch,
    /// Its number in the epoch, from 0.
    pub number: u64,
    /// Number of samples.
    pub len: usize,
    /// Its fields in the order of the plan.
    pub fields: Vec<BatchField>,
}

/// One named field of a batch.
#[derive(Debug)]
pub struct BatchField {
    /// The name.
    pub name: Arc<str>,
    /// The data.
    pub data: FieldData,
}

/// The data of one field.
#[derive(Debug)]
pub enum FieldData {
    /// One array over all samples, in the memory of the batch.
    Region {
        /// Its memory. The span keeps it alive.
        span: Span,
        /// Element type.
        dtype: Dtype,
        /// Shape, samples first.
        shape: Vec<usize>,
    },
    /// One array over all samples, in memory of its own.
    Stacked {
        /// Element type.
        dtype: Dtype,
        /// Shape, samples first.
        shape: Vec<usize>,
        /// The elements.
        bytes: Vec<u8>,
    },
    /// One value per sample.
    List(Vec<Unslotted>),
}

impl FieldData {
    /// The bytes of the array. Empty for a list.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Region { span, .. } => span.bytes(),
            Self::Stacked { bytes, .. } => bytes,
            Self::List(_) => &[],
        }
    }
}

impl Batch {
    /// A field by name.
    pub fn field(&self, name: &str) -> Option<&FieldData> {
        self.fields.iter().find(|field| &*field.name == name).map(|field| &field.data)
    }

    /// The ids of its samples.
    pub fn ids(&self) -> Vec<i64> {
        // The index is always int64, in native byte order.
        let bytes = self.field("index").map(FieldData::bytes).unwrap_or_default();
        bytes.as_chunks::<8>().0.iter().map(|id| i64::from_ne_bytes(*id)).collect()
    }

    /// Size of the content in bytes.
    pub fn content_bytes(&self) -> usize {
        let bytes = |field: &BatchField| match &field.data {
            FieldData::List(values) => values.iter().map(Unslotted::content_bytes).sum(),
            other => other.bytes().len(),
        };
        self.fields.iter().map(bytes).sum()
    }
}

/// The samples of a batch have different shapes.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "field {field:?} has shape {first_shape:?} ({first_dtype}) in sample {first} of the batch, but {other_shape:?} \
     ({other_dtype}) in sample {other}; {advice}, or request a list of arrays with ragged=({field:?},)",
    advice = if first_dtype == other_dtype && first_shape.len() == 4 {
        "make all sizes equal, e.g. add ops.RandomBalancedCrop(128)"
    } else if first_dtype == other_dtype {
        "make all sizes equal, e.g. add ops.RandomResizedCrop(224) or ops.Resize((224, 224))"
    } else {
        "make all element types equal"
    }
)]
#[expect(missing_docs, reason = "the message names the fields")]
pub struct RaggedError {
    pub field: String,
    pub first: usize,
    pub first_shape: Vec<usize>,
    pub first_dtype: &'static str,
    pub other: usize,
    pub other_shape: Vec<usize>,
    pub other_dtype: &'static str,
}

/// Stacks values without a slot into one array.
pub fn stack(field: &str, values: Vec<Unslotted>) -> Result<FieldData, Box<RaggedError>> {
    let mut found: Option<(Dtype, Vec<usize>)> = None;
    for (number, value) in values.iter().enumerate() {
        // Text cannot be stacked, so the field stays a list.
        let Unslotted::Array { dtype, shape, .. } = value else { return Ok(FieldData::List(values)) };
        match &found {
            None => found = Some((*dtype, shape.clone())),
            Some((first_dtype, first_shape)) if first_dtype == dtype && first_shape == shape => {}
            Some((first_dtype, first_shape)) => {
                return Err(Box::new(RaggedError {
                    field: field.to_owned(),
                    first: 0,
                    first_shape: first_shape.clone(),
                    first_dtype: first_dtype.name(),
                    other: number,
                    other_shape: shape.clone(),
                    other_dtype: dtype.name(),
                }));
            }
        }
    }
    let Some((dtype, sample_shape)) = found else { return Ok(FieldData::List(values)) };
    let mut shape = vec![values.len()];
    shape.extend(&sample_shape);
    let mut stacked = Vec::with_capacity(values.iter().map(Unslotted::content_bytes).sum());
    for value in values {
        if let Unslotted::Array { bytes, .. } = value {
            stacked.extend_from_slice(&bytes);
        }
    }
    Ok(FieldData::Stacked { dtype, shape, bytes: stacked })
}
