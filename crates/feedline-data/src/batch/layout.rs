//! How each field of a batch is delivered: as a region of the slab, or as separate values.

use std::sync::Arc;

use feedline_memory::SlabLayout;

use super::{FieldTypes, Kind};
use crate::dtype::{Dtype, array_bytes};

/// How one field is delivered.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldForm {
    /// In a region of the slab, one slot per sample, written in place.
    Region {
        /// Number of the region.
        region: usize,
        /// Element type.
        dtype: Dtype,
        /// Shape of one sample.
        shape: Vec<usize>,
    },
    /// As values of equal shape that are stacked when the batch is complete.
    Stacked,
    /// As a list of values, each with its own shape.
    List,
}

/// The fields of a batch, in the order of the plan.
#[derive(Clone, Debug)]
pub struct BatchLayout {
    fields: Vec<(Arc<str>, FieldForm)>,
    slab: SlabLayout,
}

/// A batch that does not fit into memory.
#[derive(Debug, thiserror::Error)]
#[error("a batch of {batch_size} samples of {types} does not fit into the address space")]
pub(crate) struct BatchTooLarge {
    batch_size: usize,
    types: String,
}

impl BatchLayout {
    /// Lays out the fields of `types`. Fields in `ragged` become lists.
    pub(crate) fn new(types: &FieldTypes, ragged: &[String], batch_size: usize) -> Result<Self, BatchTooLarge> {
        let too_large = || BatchTooLarge { batch_size, types: types.names() };
        let mut slot_bytes = Vec::new();
        let mut fields = Vec::new();
        for (name, kind) in types.iter() {
            let is_list = ragged.iter().any(|field| **field == **name) || *kind == Kind::Text;
            let form = match kind.fixed() {
                _ if is_list => FieldForm::List,
                Some((dtype, shape)) => {
                    // Regions are numbered in the order of the fields.
                    let bytes = array_bytes(dtype, &shape).ok_or_else(too_large)?;
                    slot_bytes.push(bytes);
                    FieldForm::Region { region: slot_bytes.len() - 1, dtype, shape }
                }
                // Shapes are known only at run time. `stack` checks that they are equal.
                None => FieldForm::Stacked,
            };
            fields.push((Arc::clone(name), form));
        }
        let slab = SlabLayout::new(batch_size, &slot_bytes).ok_or_else(too_large)?;
        Ok(Self { fields, slab })
    }

    /// Names and forms in order.
    pub fn fields(&self) -> &[(Arc<str>, FieldForm)] {
        &self.fields
    }

    /// The layout of the slab.
    pub fn slab(&self) -> &SlabLayout {
        &self.slab
    }
}
