//! The content of one field of one sample, to be hashed and compared: its bytes, element type and shape.

use std::borrow::Cow;

use feedline_data::batch::{FieldData, Unslotted, Value};
use feedline_data::dtype::Dtype;
use xxhash_rust::xxh3::Xxh3;

/// The first difference between two contents, with both sides as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sides {
    /// The first byte that differs. `None` if the forms differ.
    pub byte: Option<u64>,
    pub expected: String,
    pub found: String,
}

/// The bytes of a field and their form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content<'a> {
    /// Element type and shape, as text.
    pub form: String,
    pub bytes: Cow<'a, [u8]>,
}

impl<'a> Content<'a> {
    /// The content of one slot of a batch.
    pub(super) fn of_slot(data: &'a FieldData, slot: usize) -> Self {
        let part = |dtype: &Dtype, shape: &[usize], bytes: &'a [u8]| {
            // The first dimension is the batch. The slots lie one behind the other.
            let sides = shape.get(1..).unwrap_or_default();
            let each = sides.iter().product::<usize>() * dtype.bytes();
            Self::array(*dtype, sides, Cow::Borrowed(&bytes[slot * each..][..each]))
        };
        match data {
            FieldData::Region { span, dtype, shape } => part(dtype, shape, span.bytes()),
            FieldData::Stacked { dtype, shape, bytes } => part(dtype, shape, bytes),
            FieldData::List(values) => match &values[slot] {
                Unslotted::Array { dtype, shape, bytes } => Self::array(*dtype, shape, Cow::Borrowed(bytes)),
                Unslotted::Text(text) => Self::text(text),
            },
        }
    }

    /// The content of a field of a sample in preparation.
    pub(super) fn of_value(value: &'a Value<'_>) -> Self {
        match value {
            Value::Bytes(encoded) => Self::array(Dtype::U8, &[encoded.memory.len()], Cow::Borrowed(&encoded.memory)),
            Value::Text(text) => Self::text(text),
            Value::Volume(volume) => Self::array(volume.dtype, &volume.shape(), Cow::Borrowed(&volume.memory)),
            Value::Tensor(tensor) => Self::array(tensor.dtype, &tensor.shape, Cow::Borrowed(&tensor.memory)),
            Value::Pixels(pixels) => {
                let mut bytes = vec![0; pixels.packed_bytes()];
                // Rows of pixels may be padded in memory. The copy has none, as in a batch.
                pixels.copy_to(&mut bytes);
                Self::array(pixels.dtype(), &pixels.shape(), Cow::Owned(bytes))
            }
        }
    }

    fn array(dtype: Dtype, shape: &[usize], bytes: Cow<'a, [u8]>) -> Self {
        Self { form: format!("{} {shape:?}", dtype.name()), bytes }
    }

    fn text(text: &'a str) -> Self {
        Self { form: "text".to_owned(), bytes: Cow::Borrowed(text.as_bytes()) }
    }

    /// A copy that does not borrow from the batch.
    pub(super) fn into_owned(self) -> Content<'static> {
        Content { form: self.form, bytes: Cow::Owned(self.bytes.into_owned()) }
    }

    /// A hash of form and bytes.
    pub(super) fn digest(&self) -> u128 {
        let mut hasher = Xxh3::new();
        hasher.update(self.form.as_bytes());
        // Separates form and bytes, so that no two different pairs have the same input.
        hasher.update(&[0]);
        hasher.update(&self.bytes);
        hasher.digest128()
    }

    /// The first difference. `None` if both are equal.
    pub(super) fn first_difference(&self, other: &Content<'_>) -> Option<Sides> {
        if self.form != other.form {
            return Some(Sides { byte: None, expected: self.form.clone(), found: other.form.clone() });
        }
        let end = self.bytes.len().max(other.bytes.len());
        // `get` beyond the end is `None`, so a longer content differs at the end of the shorter one.
        let byte = (0..end).find(|&byte| self.bytes.get(byte) != other.bytes.get(byte))?;
        let word = |bytes: &[u8]| bytes.get(byte).map_or_else(|| "the end".to_owned(), ToString::to_string);
        Some(Sides { byte: Some(byte as u64), expected: word(&self.bytes), found: word(&other.bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[usize], bytes: &[u8]) -> Content<'static> {
        Content::array(Dtype::U8, shape, Cow::Owned(bytes.to_vec()))
    }

    #[test]
    fn a_difference_is_in_the_form_or_at_a_byte() {
        let one = array(&[2, 2], &[1, 2, 3, 4]);
        assert_eq!(one.first_difference(&one.clone()), None);
        let Sides { byte, expected, found } = one.first_difference(&array(&[2, 2], &[1, 2, 9, 9])).unwrap();
        assert_eq!((byte, &*expected, &*found), (Some(2), "3", "9"));
        let Sides { byte, expected, found } = one.first_difference(&array(&[4], &[1, 2, 3, 4])).unwrap();
        assert_eq!((byte, &*expected, &*found), (None, "uint8 [2, 2]", "uint8 [4]"));
        let text = |text| Content::text(text).first_difference(&Content::text("ab")).map(|sides| sides.byte);
        assert_eq!((text("ab"), text("a"), text("abc")), (None, Some(Some(1)), Some(Some(2))));
        assert_ne!(
            one.digest(),
            array(&[4], &[1, 2, 3, 4]).digest(),
            "equal bytes of another shape are another content"
        );
    }

    #[test]
    fn a_slot_of_a_batch_is_its_part_of_the_array() {
        let stacked = FieldData::Stacked { dtype: Dtype::U16, shape: vec![2, 1], bytes: vec![1, 2, 3, 4] };
        assert_eq!(*Content::of_slot(&stacked, 1).bytes, [3, 4]);
        let list = FieldData::List(vec![Unslotted::Text("a".to_owned()), Unslotted::Text("b".to_owned())]);
        assert_eq!(*Content::of_slot(&list, 1).bytes, *b"b");
    }
}
