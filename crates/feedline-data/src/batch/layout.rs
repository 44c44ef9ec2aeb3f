//! How each field of a batch is delivered: as a region of the slab, or as separate values.
//!
//! A plan has one layout. Batches of a Python dataset have more: the arrays of its samples are known only once the first sample was
//! made. Their regions, the *leaves*, follow those of the plan's fields.

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

/// An array of each sample that a worker process writes straight into the slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Element type.
    pub dtype: Dtype,
    /// Shape of one sample.
    pub shape: Vec<usize>,
}

/// The fields of a batch, in the order of the plan, and its leaves.
#[derive(Clone, Debug)]
pub struct BatchLayout {
    fields: Vec<(Arc<str>, FieldForm)>,
    leaves: Vec<Leaf>,
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
        Ok(Self { fields, leaves: Vec::new(), slab })
    }

    /// The same fields for `slots` samples, with leaves. `None` if that exceeds the address space.
    #[must_use]
    pub fn with_leaves(&self, leaves: Vec<Leaf>, slots: usize) -> Option<Self> {
        let fields = (0..self.leaf_region(0)).map(|region| Some(self.slab.slot_bytes(region)));
        let own = leaves.iter().map(|leaf| array_bytes(leaf.dtype, &leaf.shape));
        let slot_bytes = fields.chain(own).collect::<Option<Vec<usize>>>()?;
        let slab = SlabLayout::new(slots, &slot_bytes)?;
        Some(Self { fields: self.fields.clone(), leaves, slab })
    }

    /// The leaves, in order.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// The region of leaf `number`.
    pub fn leaf_region(&self, number: usize) -> usize {
        self.slab.regions() - self.leaves.len() + number
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
