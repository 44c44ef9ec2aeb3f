//! The rows of a strip or tile of a TIFF, decompressed one by one.
//!
//! In: compressed bytes. Out: rows, in order. What follows the last row that was asked for is not decompressed. Memory does not
//! depend on stated lengths.

use flate2::{Decompress, FlushDecompress};
use weezl::BitOrder;

use crate::error::CodecError;
use crate::format::Format;
use crate::header::TiffCompression;

/// Reads the rows of one strip or tile.
pub(super) struct Rows<'a> {
    rest: &'a [u8],
    kind: Kind,
}

enum Kind {
    None,
    Deflate(Box<Decompress>),
    Lzw(Box<weezl::decode::Decoder>),
    /// How often the next byte comes, or how many bytes follow as they are.
    PackBits {
        repeated: usize,
        literal: usize,
    },
}

fn truncated() -> CodecError {
    CodecError::truncated(Format::Tiff, "a strip or tile has too few rows")
}

impl<'a> Rows<'a> {
    pub(super) fn new(compression: TiffCompression, bytes: &'a [u8]) -> Result<Self, CodecError> {
        let kind = match compression {
            TiffCompression::None => Kind::None,
            TiffCompression::Deflate => Kind::Deflate(Box::new(Decompress::new(true))),
            TiffCompression::Lzw => {
                // Files of the first years begin with another bit order. libtiff tells them apart in the same way.
                if matches!(bytes, [0, second, ..] if second & 1 == 1) {
                    return Err(CodecError::unsupported(Format::Tiff, "LZW of before TIFF 5"));
                }
                Kind::Lzw(Box::new(weezl::decode::Decoder::with_tiff_size_switch(BitOrder::Msb, 8)))
            }
            TiffCompression::PackBits => Kind::PackBits { repeated: 0, literal: 0 },
        };
        Ok(Self { rest: bytes, kind })
    }

    /// Reads the next row. A row that is skipped need not be written.
    pub(super) fn next_row(&mut self, row: &mut [u8], is_skipped: bool) -> Result<(), CodecError> {
        match &mut self.kind {
            Kind::None => {
                let (stored, rest) = self.rest.split_at_checked(row.len()).ok_or_else(truncated)?;
                if !is_skipped {
                    row.copy_from_slice(stored);
                }
                self.rest = rest;
                Ok(())
            }
            Kind::Deflate(decoder) => inflate(decoder, &mut self.rest, row),
            Kind::Lzw(decoder) => unpack_lzw(decoder, &mut self.rest, row),
            Kind::PackBits { repeated, literal } => unpack_bits(repeated, literal, &mut self.rest, row),
        }
    }
}

fn inflate(decoder: &mut Decompress, rest: &mut &[u8], row: &mut [u8]) -> Result<(), CodecError> {
    let mut filled = 0;
    while filled < row.len() {
        let (read, written) = (decoder.total_in(), decoder.total_out());
        let status = decoder.decompress(rest, &mut row[filled..], FlushDecompress::None);
        status.map_err(|error| CodecError::damaged(Format::Tiff, error.to_string()))?;
        let (read, written) = ((decoder.total_in() - read) as usize, (decoder.total_out() - written) as usize);
        *rest = &rest[read..];
        filled += written;
        if read == 0 && written == 0 {
            return Err(truncated());
        }
    }
    Ok(())
}

fn unpack_lzw(decoder: &mut weezl::decode::Decoder, rest: &mut &[u8], row: &mut [u8]) -> Result<(), CodecError> {
    let mut filled = 0;
    while filled < row.len() {
        let found = decoder.decode_bytes(rest, &mut row[filled..]);
        *rest = &rest[found.consumed_in..];
        filled += found.consumed_out;
        match found.status {
            Err(error) => return Err(CodecError::damaged(Format::Tiff, error.to_string())),
            Ok(weezl::LzwStatus::Ok) if found.consumed_in + found.consumed_out > 0 => {}
            Ok(_) if filled < row.len() => return Err(truncated()),
            Ok(_) => {}
        }
    }
    Ok(())
}

fn unpack_bits(
    repeated: &mut usize,
    literal: &mut usize,
    rest: &mut &[u8],
    mut row: &mut [u8],
) -> Result<(), CodecError> {
    while !row.is_empty() {
        if *repeated > 0 {
            let count = row.len().min(*repeated);
            let (run, after) = row.split_at_mut(count);
            run.fill(*rest.first().ok_or_else(truncated)?);
            (row, *repeated) = (after, *repeated - count);
            if *repeated == 0 {
                *rest = &rest[1..];
            }
        } else if *literal > 0 {
            let count = row.len().min(*literal);
            let (run, after) = row.split_at_mut(count);
            let (stored, later) = rest.split_at_checked(count).ok_or_else(truncated)?;
            run.copy_from_slice(stored);
            (row, *rest, *literal) = (after, later, *literal - count);
        } else {
            let (&code, later) = rest.split_first().ok_or_else(truncated)?;
            *rest = later;
            match code.cast_signed() {
                // Nothing.
                -128 => {}
                code @ ..0 => *repeated = 1 + usize::from(code.unsigned_abs()),
                code => *literal = 1 + usize::from(code.unsigned_abs()),
            }
        }
    }
    Ok(())
}
