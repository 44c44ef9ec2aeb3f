//! Casts elements to another type.
//!
//! Fractions are truncated towards 0. Values outside the new type's range become the nearest value in it, and NaN becomes 0. Where
//! `NumPy`'s `astype` is defined, the result is the same.

use feedline_order::Draw;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::volumes::{PIECE, change_kinds, image_and_label, volume};
use super::{On, Op, OpError};
use crate::batch::{FieldTypes, Sample, Value, Volume};
use crate::dtype::Dtype;
use crate::memory::Workspace;
use crate::op::CheckError;

/// Casts volumes to another element type.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cast {
    #[serde_inline_default(Dtype::F32)]
    dtype: Dtype,
    /// The element type of labels.
    #[serde_inline_default(Dtype::U8)]
    label_dtype: Dtype,
    #[serde(default = "image_and_label")]
    on: On,
}

impl Cast {
    fn dtype_of(&self, is_label: bool) -> Dtype {
        if is_label { self.label_dtype } else { self.dtype }
    }
}

impl Op for Cast {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        change_kinds(&self.on, types, |_, mut kind| {
            kind.dtype = self.dtype_of(kind.is_label);
            Ok(kind)
        })
    }

    fn keeps_places(&self) -> bool {
        true
    }

    fn keeps_labels(&self) -> bool {
        self.label_dtype == Dtype::U8
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        for name in self.on.names() {
            let Volume { dtype, is_label, .. } = *volume(sample, name)?;
            let new_dtype = self.dtype_of(is_label);
            if new_dtype == dtype {
                // Without a change the volume keeps its memory, which may be its slot.
                continue;
            }
            let old = sample.take_volume(name)?;
            let sides = old.excerpt.map_or(old.sides, |excerpt| excerpt.sides);
            let shape = crate::batch::volume_shape(old.channels, sides);
            let mut memory = sample.output(name, new_dtype, &shape, workspace)?;
            let (from, to) = (PIECE * dtype.bytes(), PIECE * new_dtype.bytes());
            for (source, target) in old.memory.chunks(from).zip(memory.chunks_mut(to)) {
                workspace.cancel().check()?;
                cast(source, dtype, target, new_dtype);
            }
            let new = old.with_memory(memory, new_dtype);
            sample.give_back(name, old.memory, workspace);
            sample.put(name, Value::Volume(new));
        }
        Ok(())
    }
}

/// Runs a body with two concrete element types.
macro_rules! with_number {
    ($dtype:expr, $name:ident, $body:expr) => {
        with_number!($dtype, $name, $body; Bool Truth, U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64,
            F16 f16, BF16 bf16, F32 f32, F64 f64)
    };
    ($dtype:expr, $name:ident, $body:expr; $($variant:ident $type:ty),*) => {
        match $dtype {$(
            Dtype::$variant => {
                type $name = $type;
                $body
            }
        )*}
    };
}

fn cast(source: &[u8], from: Dtype, target: &mut [u8], to: Dtype) {
    // One instance for each pair of types: inside the loop both are fixed, so the compiler can vectorise it.
    with_number!(from, From, with_number!(to, To, cast_all::<From, To>(source, target)));
}

fn cast_all<A: CastNumber, B: CastNumber>(source: &[u8], target: &mut [u8]) {
    let (from, to) = (size_of::<A>(), size_of::<B>());
    for (source, target) in source.chunks_exact(from).zip(target.chunks_exact_mut(to)) {
        let number = A::read(source);
        // Integers up to 32 bits are exact in float64. Between integers the conversion is exact and saturates.
        let is_exact = A::IS_WHOLE && (B::IS_WHOLE || size_of::<A>() > 4);
        let cast = if is_exact { B::of_whole(number.whole()) } else { B::of_float(number.float()) };
        cast.write(target);
    }
}

/// A number of some element type. Integers are converted through 128 bits if necessary, other numbers through float64. Both
/// represent all values exactly, so a value is rounded once.
trait CastNumber: Copy {
    const IS_WHOLE: bool;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    fn whole(self) -> i128;
    fn float(self) -> f64;
    fn of_whole(number: i128) -> Self;
    fn of_float(number: f64) -> Self;
}

macro_rules! numbers {
    ($($type:ty, $is_whole:literal, $whole:expr, $float:expr, $of_whole:expr, $of_float:expr;)*) => {$(
        #[allow(clippy::cast_lossless, reason = "one macro for all types")]
        impl CastNumber for $type {
            const IS_WHOLE: bool = $is_whole;
            #[inline]
            fn read(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(*bytes.first_chunk().expect("a chunk is one element"))
            }
            #[inline]
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
            #[inline]
            fn whole(self) -> i128 {
                ($whole)(self)
            }
            #[inline]
            fn float(self) -> f64 {
                ($float)(self)
            }
            #[inline]
            fn of_whole(number: i128) -> Self {
                ($of_whole)(number)
            }
            #[inline]
            fn of_float(number: f64) -> Self {
                ($of_float)(number)
            }
        }
    )*};
}

macro_rules! whole_numbers {
    ($($type:ty),*) => { numbers! {$(
        $type, true, i128::from, |number| number as f64,
        |number: i128| number.clamp(i128::from(Self::MIN), i128::from(Self::MAX)) as Self, |number| number as Self;
    )*} };
}

whole_numbers!(u8, i8, u16, i16, u32, i32, u64, i64);
numbers! {
    f16, false, |number: Self| number.to_f64() as i128, Self::to_f64, |number| Self::from_f64(number as f64), Self::from_f64;
    bf16, false, |number: Self| number.to_f64() as i128, Self::to_f64, |number| Self::from_f64(number as f64), Self::from_f64;
    f32, false, |number| number as i128, f64::from, |number| number as Self, |number| number as Self;
    f64, false, |number| number as i128, |number| number, |number| number as Self, |number| number;
}

/// An element of type bool. Every byte except 0 is true.
#[derive(Clone, Copy)]
struct Truth(u8);

impl Truth {
    fn from_ne_bytes([byte]: [u8; 1]) -> Self {
        Self(u8::from(byte != 0))
    }

    fn to_ne_bytes(self) -> [u8; 1] {
        [self.0]
    }
}

numbers! {
    Truth, true, |truth: Self| i128::from(truth.0), |truth: Self| f64::from(truth.0),
    |number| Self(u8::from(number != 0)), |number| Self(u8::from(number != 0.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<A: CastNumber, B: CastNumber + PartialEq + std::fmt::Debug>(
        from: Dtype,
        values: &[A],
        to: Dtype,
        expected: &[B],
    ) {
        let mut source = vec![0; size_of_val(values)];
        values.iter().zip(source.chunks_exact_mut(size_of::<A>())).for_each(|(value, bytes)| value.write(bytes));
        let mut target = vec![0; size_of_val(expected)];
        cast(&source, from, &mut target, to);
        let found: Vec<B> = target.chunks_exact(size_of::<B>()).map(B::read).collect();
        assert_eq!(found, expected, "{from:?} to {to:?}");
    }

    #[test]
    fn numbers_are_cut_off_towards_0_and_kept_in_range() {
        check(Dtype::F32, &[-1.9f32, 1.9, 300.0, f32::NAN], Dtype::U8, &[0u8, 1, 255, 0]);
        check(Dtype::F32, &[-1.9f32, -300.0], Dtype::I8, &[-1i8, -128]);
        check(Dtype::I64, &[-1i64, i64::MAX], Dtype::U64, &[0u64, i64::MAX as u64]);
        check(Dtype::U8, &[0u8, 7], Dtype::Bool, &[0u8, 1]);
        check(Dtype::F32, &[1.5f32, 65504.0], Dtype::F16, &[f16::from_f32(1.5), f16::MAX]);
        check(Dtype::U8, &[3u8], Dtype::F64, &[3f64]);
    }

    #[test]
    fn large_whole_numbers_are_rounded_once() {
        // Just above the midpoint of two neighbours in float32. In float64 it would be the midpoint itself and round down.
        let above_the_middle = (1i64 << 60) + (1 << 36) + 1;
        let expected = 2f32.powi(60) + 2f32.powi(37);
        check(Dtype::I64, &[above_the_middle, -above_the_middle], Dtype::F32, &[expected, -expected]);
        check(Dtype::U64, &[above_the_middle as u64], Dtype::F32, &[expected]);
    }
}
