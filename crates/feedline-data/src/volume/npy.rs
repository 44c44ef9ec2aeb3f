//! The header of a `.npy` file.
//!
//! In: the first bytes of a file. Out: element type, shape, and the start of the data. Every byte may be hostile.

use std::ops::Range;

use crate::dtype::Dtype;

/// The contents of a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NpyHeader {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Whether the first axis is the fastest.
    pub is_fortran: bool,
    pub data_offset: u64,
}

/// The first bytes of every `.npy` file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Bytes that hold the magic number, the version and the header's length.
pub(crate) const PREFIX_BYTES: usize = 12;
/// Upper limit of a header's text in bytes. `NumPy` writes shorter ones.
const MAX_HEADER_BYTES: usize = 1 << 16;

/// The range of the header's text, from the first [`PREFIX_BYTES`] of the file.
pub(crate) fn header_range(prefix: &[u8]) -> Result<Range<usize>, String> {
    if !prefix.starts_with(MAGIC) || prefix.len() < PREFIX_BYTES {
        return Err("it does not begin with NumPy's magic bytes".to_owned());
    }
    let (start, len) = match prefix[6] {
        // Byte 6 is the major version. Version 1 has a 2-byte length of the header, later ones a 4-byte length.
        1 => (10, usize::from(u16::from_le_bytes([prefix[8], prefix[9]]))),
        2 | 3 => (12, u32::from_le_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]) as usize),
        other => return Err(format!("format version {other} is unknown")),
    };
    if len > MAX_HEADER_BYTES {
        return Err(format!("its header claims to be {len} bytes long, but at most {MAX_HEADER_BYTES} are allowed"));
    }
    Ok(start..start + len)
}

/// Parses the header's text, a Python dict literal.
pub(crate) fn parse(text: &str, data_offset: u64) -> Result<NpyHeader, String> {
    let descr = text.split("'descr'").nth(1).ok_or("its header names no element type")?;
    let descr = quoted(descr.trim_start_matches([':', ' '])).ok_or("its elements are not of one plain type")?;
    let order = text.split("'fortran_order'").nth(1).ok_or("its header names no order")?;
    let is_fortran = order.trim_start_matches([':', ' ']).starts_with("True");
    let sides = text.split("'shape'").nth(1).and_then(|rest| rest.split_once('(')).and_then(|(_, r)| r.split_once(')'));
    let shape: Result<Vec<usize>, String> = sides
        .ok_or("its header names no shape")?
        .0
        .split(',')
        .map(str::trim)
        .filter(|side| !side.is_empty())
        .map(|side| side.parse().map_err(|_| format!("side {side:?} of its shape is not a number")))
        .collect();
    Ok(NpyHeader { dtype: dtype(descr)?, shape: shape?, is_fortran, data_offset })
}

/// The quoted text at the start of `text`.
fn quoted(text: &str) -> Option<&str> {
    Some(text.strip_prefix('\'')?.split_once('\'')?.0)
}

fn dtype(descr: &str) -> Result<Dtype, String> {
    // Types of one byte have no byte order.
    if descr.starts_with('>') && !descr.ends_with('1') {
        return Err(format!("its elements are big-endian ({descr}); save them with .astype('<...')"));
    }
    Ok(match descr.trim_start_matches(['<', '|', '=', '>']) {
        "b1" => Dtype::Bool,
        "u1" => Dtype::U8,
        "i1" => Dtype::I8,
        "u2" => Dtype::U16,
        "i2" => Dtype::I16,
        "u4" => Dtype::U32,
        "i4" => Dtype::I32,
        "u8" => Dtype::U64,
        "i8" => Dtype::I64,
        "f2" => Dtype::F16,
        "f4" => Dtype::F32,
        "f8" => Dtype::F64,
        _ => return Err(format!("elements of type {descr:?} are not supported")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_numpy_are_understood() {
        let check = |text: &str, dtype, shape: &[usize]| {
            let header = parse(text, 128).unwrap();
            assert_eq!((header.dtype, header.shape.as_slice()), (dtype, shape));
        };
        check("{'descr': '|u1', 'fortran_order': False, 'shape': (10, 224, 224, 3), }", Dtype::U8, &[10, 224, 224, 3]);
        check("{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }", Dtype::F32, &[7]);
        check("{'descr': '<i8', 'fortran_order': False, 'shape': (), }", Dtype::I64, &[]);
        assert!(parse("{'descr': '<f4', 'fortran_order': True, 'shape': (7,), }", 0).unwrap().is_fortran);
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        let check = |text: &str, words: &str| {
            let error = parse(text, 0).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        check("{'descr': '>f4', 'fortran_order': False, 'shape': (7,), }", "big-endian");
        check("{'descr': '|O', 'fortran_order': False, 'shape': (7,), }", "not supported");
        check("{'descr': [('f4', '<f8')], 'fortran_order': False, 'shape': (7,), }", "one plain type");
        check("{'descr': '<f4', 'fortran_order': False, 'shape': (-7,), }", "not a number");
        check("", "element type");
        assert!(header_range(b"\x93NUMPY\x01\x00").is_err());
        assert!(header_range(b"PK\x03\x04........").is_err());
        assert!(header_range(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").is_err());
    }
}
