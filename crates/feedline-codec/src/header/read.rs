//! Reads the header of a file of any format.
//!
//! In: the bytes of a whole file. Out: a [`Header`]. Formats are detected by their magic bytes, never by a name. Each reader skips
//! over markers or chunks by their lengths and reads no pixels, so a header takes well under a microsecond for files without large
//! metadata. Nothing is allocated.
//!
//! Always true: `width` and `height` are not zero.

use super::webp::WebP;
use super::{Header, Pnm, Tiff};
use crate::error::CodecError;
use crate::format::Format;
use crate::orientation::Orientation;

/// Reads format, size and orientation.
pub fn read_header(bytes: &[u8]) -> Result<Header, CodecError> {
    let format = sniff(bytes)?;
    let mut needs_whole = false;
    let found = match format {
        Format::Jpeg => jpeg(bytes)?.map(|(found, progressive)| {
            needs_whole = progressive;
            found
        }),
        Format::Png => {
            // Byte 28 is the interlace method in IHDR, which is always the first chunk.
            needs_whole = bytes.get(28) == Some(&1);
            png(bytes)
        }
        Format::WebP => WebP::read(bytes).map(|file| {
            needs_whole = file.is_lossless;
            (file.width, file.height, file.exif)
        }),
        Format::Bmp => bmp(bytes),
        Format::Pnm => Pnm::read(bytes).map(|pixels| (pixels.header().width, pixels.header().height, None)),
        // The file itself has the form of an EXIF block.
        Format::Tiff => Tiff::size(bytes).map(|(width, height)| Some((width, height, Some(bytes))))?,
        Format::Gif => Some((u16_le(bytes, 6), u16_le(bytes, 8), None)).and_then(all),
    };
    let (width, height, exif) =
        found.ok_or_else(|| CodecError::truncated(format, format!("no size in {} bytes", bytes.len())))?;
    if width == 0 || height == 0 {
        return Err(CodecError::damaged(format, format!("the size is {width} x {height}")));
    }
    let orientation = exif.map_or(Orientation::IDENTITY, Orientation::from_tiff);
    Ok(Header { format, width, height, orientation, needs_whole })
}

/// Width, height and the EXIF block.
type HeaderFields<'a> = (u32, u32, Option<&'a [u8]>);

fn all((width, height, exif): (Option<u32>, Option<u32>, Option<&[u8]>)) -> Option<HeaderFields<'_>> {
    Some((width?, height?, exif))
}

fn sniff(bytes: &[u8]) -> Result<Format, CodecError> {
    match bytes {
        [] => Err(CodecError::Empty),
        [0xff, 0xd8, 0xff, ..] => Ok(Format::Jpeg),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Format::Png),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Format::WebP),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Ok(Format::Gif),
        [b'B', b'M', ..] => Ok(Format::Bmp),
        _ if Tiff::is_magic(bytes) => Ok(Format::Tiff),
        _ if Pnm::is_magic(bytes) => Ok(Format::Pnm),
        _ => Err(CodecError::UnknownFormat { first_bytes: bytes[..bytes.len().min(8)].to_vec() }),
    }
}

/// Walks the segments up to the frame header, which also tells whether the file is progressive. EXIF comes before it in all files
/// seen, so nothing after it is read.
fn jpeg(bytes: &[u8]) -> Result<Option<(HeaderFields<'_>, bool)>, CodecError> {
    let mut at = 2;
    let mut exif = None;
    loop {
        // Bytes between segments are skipped, as libjpeg does.
        while bytes.get(at).is_some_and(|&byte| byte != 0xff) {
            at += 1;
        }
        while bytes.get(at) == Some(&0xff) {
            at += 1;
        }
        let Some(&marker) = bytes.get(at) else { return Ok(None) };
        at += 1;
        match marker {
            // Stuffed zero, TEM, restart markers and a second start have no length.
            0x00 | 0x01 | 0xd0..=0xd8 => continue,
            0xd9 | 0xda => {
                return Err(CodecError::damaged(Format::Jpeg, "no frame header before the first scan"));
            }
            _ => {}
        }
        let Some(length) = u16_be(bytes, at) else { return Ok(None) };
        let segment = bytes.get(at + 2..at + (length as usize).max(2)).unwrap_or_default();
        match marker {
            // SOF0 to SOF15. C4 is a Huffman table, C8 is reserved, CC sets up arithmetic coding. C2, C6, CA and CE are
            // progressive.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let is_progressive = marker & 0x03 == 0x02;
                return Ok(
                    all((u16_be(bytes, at + 5), u16_be(bytes, at + 3), exif)).map(|found| (found, is_progressive))
                );
            }
            0xe1 if exif.is_none() => exif = segment.strip_prefix(b"Exif\0\0"),
            _ => {}
        }
        at += (length as usize).max(2);
    }
}

fn png(bytes: &[u8]) -> Option<HeaderFields<'_>> {
    // IHDR: signature 8, length 4, type 4, then width and height.
    let (width, height) = (u32_be(bytes, 16)?, u32_be(bytes, 20)?);
    let mut at = 8_usize;
    while let (Some(length), Some(kind)) = (u32_be(bytes, at), bytes.get(at.checked_add(4)?..at.checked_add(8)?)) {
        let end = at.checked_add(8)?.checked_add(length as usize)?;
        if kind == b"eXIf" {
            return Some((width, height, bytes.get(at + 8..end)));
        }
        // Each chunk is followed by a checksum of 4 bytes.
        at = end.checked_add(4)?;
    }
    Some((width, height, None))
}

fn bmp(bytes: &[u8]) -> Option<HeaderFields<'_>> {
    match u32_le(bytes, 14)? {
        // An OS/2 header has sides of 16 bits.
        12 => Some((u16_le(bytes, 18)?, u16_le(bytes, 20)?, None)),
        // Rows of a negative height are stored from the top.
        _ => Some((u32_le(bytes, 18)?, u32_le(bytes, 22)?.cast_signed().unsigned_abs(), None)),
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_be(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(|bytes| u32::from(u16::from_be_bytes(bytes)))
}

fn u16_le(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(|bytes| u32::from(u16::from_le_bytes(bytes)))
}

fn u32_be(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

fn u32_le(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_and_unknown_bytes_are_told_apart() {
        assert!(matches!(read_header(&[]), Err(CodecError::Empty)));
        let error = read_header(b"hello, world").unwrap_err().to_string();
        assert_eq!(
            error,
            "not a JPEG, PNG, WebP, TIFF, BMP, GIF or PNM file: it begins with bytes [68, 65, 6c, 6c, 6f, 2c, 20, 77]"
        );
    }

    #[test]
    fn a_header_cut_anywhere_is_an_error_or_a_size() {
        let starts: [&[u8]; 6] = [
            b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x02\x00\x03",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x03\0\0\0\x02\x08\x02\0\0\0abcd\xff\xff\xff\xffeXIf",
            b"RIFF\xff\xff\xff\xffWEBPVP8X\xff\xff\xff\xff\0\0\0\0\x02\0\0\x01\0\0",
            b"BM\0\0\0\0\0\0\0\0\0\0\0\0\x28\0\0\0\x03\0\0\0\xfe\xff\xff\xff",
            b"GIF89a\x03\0\x02\0",
            b"MM\0\x2a\0\0\0\x08\0\x02\x01\0\0\x03\0\0\0\x01\0\x03\0\0\x01\x01\0\x04\0\0\0\x01\0\0\0\x02",
        ];
        for bytes in starts {
            let header = read_header(bytes).unwrap();
            assert_eq!((header.width, header.height), (3, 2), "{}", header.format);
            for cut in 0..bytes.len() {
                if let Ok(header) = read_header(&bytes[..cut]) {
                    assert_eq!((header.width, header.height), (3, 2));
                }
            }
        }
    }

    #[test]
    fn a_size_of_zero_is_damage() {
        assert!(matches!(read_header(b"GIF89a\0\0\x02\0"), Err(CodecError::Damaged { .. })));
    }
}
