//! Samples and batches: what ops work on, and what the trainer receives.
//!
//! In: fields of a source, slots of a slab. Out: a [`Batch`]. A [`Kind`] describes a field before there is data, and a [`Value`]
//! holds its data while a [`Sample`] is prepared.

mod delivered;
mod encoded;
pub mod kind;
mod layout;
mod sample;
mod value;
mod volume;

pub use delivered::{Batch, BatchField, FieldData, RaggedError, stack};
pub use encoded::{Encoded, EncodedContent, IndexKeeper};
pub use kind::{Axes, FieldTypes, Kind, PixelKind, VolumeKind};
pub use layout::{BatchLayout, FieldForm, Leaf};
pub use sample::{FieldError, OutputError, Sample, Slot, Unslotted};
pub(crate) use value::shrink;
pub use value::{Excerpt, Memory, Pixels, Tensor, Value};
pub use volume::{Volume, VolumeShape, volume_shape};
