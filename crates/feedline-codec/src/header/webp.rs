//! The chunks of a WebP file: its size, its EXIF block, and the place of its pixels.
//!
//! In: the bytes of a file. Out: a [`WebP`] header, or the bitstream of the first frame. Chunks are skipped by their lengths. No
//! length is trusted: a chunk ends at the end of the file at the latest.

use crate::error::CodecError;
use crate::format::Format;
use crate::rect::Rect;

/// The contents of the header.
pub(crate) struct WebP<'a> {
    pub width: u32,
    pub height: u32,
    pub exif: Option<&'a [u8]>,
    /// Whether pixels are stored without loss, or the file is an animation.
    pub is_lossless: bool,
}

impl<'a> WebP<'a> {
    /// Reads the header. `None` if the file ends before its size.
    pub(crate) fn read(file: &'a [u8]) -> Option<Self> {
        let first = Chunks::of_file(file).next()?;
        let is_lossless = |chunk: Chunk<'_>| &chunk.kind != b"VP8 ";
        if &first.kind != b"VP8X" {
            let (width, height) = first.bitstream_size()?;
            return Some(Self { width, height, exif: None, is_lossless: is_lossless(first) });
        }
        // 24 bits each of width and height, minus one.
        let (width, height) = (u24(first.content, 4)? + 1, u24(first.content, 7)? + 1);
        let exif = Chunks::of_file(file).find(|chunk| &chunk.kind == b"EXIF" && chunk.is_whole);
        let frame = Chunks::of_file(file).find(Chunk::has_pixels);
        let exif = exif.map(|chunk| chunk.content);
        Some(Self { width, height, exif, is_lossless: frame.is_some_and(is_lossless) })
    }
}

/// The first frame of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebPFrame<'a> {
    /// The bitstream, without the header of its chunk.
    pub data: &'a [u8],
    /// Where it lies in the picture. Smaller than the picture only in animations.
    pub place: Rect,
}

impl<'a> WebPFrame<'a> {
    /// Finds the first frame of a picture of the given size.
    pub(crate) fn first(file: &'a [u8], width: u32, height: u32) -> Result<Self, CodecError> {
        let none = || CodecError::truncated(Format::WebP, format!("no pixels in {} bytes", file.len()));
        let mut chunk = Chunks::of_file(file).find(Chunk::has_pixels).ok_or_else(none)?;
        let mut place = Rect::whole(width, height);
        if &chunk.kind == b"ANMF" {
            place = chunk.place().ok_or_else(none)?;
            if !place.is_inside(width, height) {
                let reason = format!("its first frame, {place:?}, is not inside {width} x {height}");
                return Err(CodecError::damaged(Format::WebP, reason));
            }
            let mut inner = Chunks { rest: chunk.content.get(FRAME_HEADER_BYTES..).unwrap_or_default() };
            chunk = inner.find(|chunk| chunk.bitstream_size().is_some()).ok_or_else(none)?;
        }
        let Some(size) = chunk.bitstream_size() else { return Err(none()) };
        if !chunk.is_whole {
            let reason = format!("the last of {} bytes is in the middle of the pixels", file.len());
            return Err(CodecError::truncated(Format::WebP, reason));
        }
        if size != (place.width, place.height) {
            let reason = format!("two sizes, {} x {} and {} x {}", place.width, place.height, size.0, size.1);
            return Err(CodecError::damaged(Format::WebP, reason));
        }
        Ok(Self { data: chunk.content, place })
    }
}

/// Bytes of a frame of an animation before its chunks.
const FRAME_HEADER_BYTES: usize = 16;

/// A chunk, or its part inside the file.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    kind: [u8; 4],
    content: &'a [u8],
    is_whole: bool,
}

impl Chunk<'_> {
    fn has_pixels(&self) -> bool {
        matches!(&self.kind, b"VP8 " | b"VP8L" | b"ANMF")
    }

    /// The size in a bitstream. `None` for other chunks.
    fn bitstream_size(&self) -> Option<(u32, u32)> {
        match &self.kind {
            // Key frame: three bytes of tag, three of start code, then 14 bits each.
            b"VP8 " => Some((u16(self.content, 6)? & 0x3fff, u16(self.content, 8)? & 0x3fff)),
            b"VP8L" => {
                // After a signature byte, 14 bits each of width and height, minus one.
                let bits = u32::from_le_bytes(*self.content.get(1..)?.first_chunk()?);
                Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
            }
            _ => None,
        }
    }

    /// The place of a frame of an animation: half its left and top, then its width and height minus one.
    fn place(&self) -> Option<Rect> {
        let at = |place| u24(self.content, place);
        Some(Rect { left: at(0)? * 2, top: at(3)? * 2, width: at(6)? + 1, height: at(9)? + 1 })
    }
}

/// Chunks that follow each other.
struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Chunks<'a> {
    fn of_file(file: &'a [u8]) -> Self {
        // The name RIFF, a length, the name WEBP.
        Self { rest: file.get(12..).unwrap_or_default() }
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        let (&kind, rest) = self.rest.split_first_chunk()?;
        let (&length, rest) = rest.split_first_chunk()?;
        let length = u32::from_le_bytes(length) as usize;
        let content = &rest[..length.min(rest.len())];
        // RIFF pads chunks to even length.
        self.rest = rest.get(length.saturating_add(length % 2)..).unwrap_or_default();
        Some(Chunk { kind, content, is_whole: content.len() == length })
    }
}

fn u16(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|&bytes| u32::from(u16::from_le_bytes(bytes)))
}

fn u24(bytes: &[u8], at: usize) -> Option<u32> {
    let [low, middle, high] = *bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes([low, middle, high, 0]))
}
