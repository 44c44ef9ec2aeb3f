//! Samples and batches: what ops work on and what the trainer receives.
//!
//! In: fields of a source, slots of a slab. Out: a [`Batch`]. [`Kind`] says what a field is before there is data,
//! [`Value`] holds it while a [`Sample`] is prepared.

mod delivered;
pub mod kind;
mod layout;
mod sample;
mod value;
mod volume;

pub use delivered::{Batch, BatchField, FieldData, RaggedError, stack};
pub use kind::{Axes, FieldTypes, Kind, PixelKind, VolumeKind};
pub use layout::{BatchLayout, FieldForm};
pub use sample::{FieldError, OutputError, Sample, Slot, Unslotted};
pub(crate) use value::shrink;
pub use value::{Encoded, EncodedContent, Excerpt, Memory, Pixels, Tensor, Value};
pub use volume::{Volume, VolumeShape, volume_shape};
