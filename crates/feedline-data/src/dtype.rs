//! Element types, with the names that `NumPy` and torch use.

use serde::{Deserialize, Serialize};

macro_rules! dtypes {
    ($($variant:ident, $name:literal, $bytes:literal;)*) => {
        /// The type of one element of an array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "the variants are the types they name")]
        pub enum Dtype { $(#[serde(rename = $name)] $variant),* }

        impl Dtype {
            /// All element types.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name, as in `NumPy`: `"float32"`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Bytes of one element.
            pub fn bytes(self) -> usize {
                match self { $(Self::$variant => $bytes),* }
            }
        }
    };
}

dtypes! {
    Bool, "bool", 1;
    U8, "uint8", 1;
    I8, "int8", 1;
    U16, "uint16", 2;
    I16, "int16", 2;
    U32, "uint32", 4;
    I32, "int32", 4;
    U64, "uint64", 8;
    I64, "int64", 8;
    F16, "float16", 2;
    BF16, "bfloat16", 2;
    F32, "float32", 4;
    F64, "float64", 8;
}

impl Dtype {
    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }
}

/// Bytes of an array; `None` if that exceeds the address space.
pub fn array_bytes(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(dtype.bytes(), |bytes, &side| bytes.checked_mul(side))
}
