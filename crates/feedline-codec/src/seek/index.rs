//! The seek index of any supported file.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::frame::JpegFrame;
use super::jpeg::JpegIndex;
use super::packed::PackedReader;
use super::scan::{Mcus, Scan};
use super::walk::NotSeekable;
use crate::error::BadIndex;
use crate::header::{Header, Pnm};
use crate::rect::Rect;

/// The version of the format.
const VERSION: u8 = 1;
const JPEG: u8 = 0;
const PIXELS: u8 = 1;

/// Where the parts of a picture lie in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeekIndex(pub(super) IndexKind);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexKind {
    Jpeg(Box<JpegIndex>),
    Pixels(Pnm),
}

/// The data of a file that a crop needs.
pub(crate) enum Piece<'a> {
    /// MCUs around it.
    Jpeg(JpegPiece<'a>),
    /// Rows of pixels as they are.
    Pixels(&'a Pnm),
}

/// A part of a JPEG, as a picture of its own.
pub(crate) struct JpegPiece<'a> {
    /// Its place in the whole picture.
    pub rect: Rect,
    pub(super) frame: &'a JpegFrame,
    pub(super) scan: Scan<'a>,
}

impl JpegPiece<'_> {
    /// A header for it as a picture of its own, without codes.
    pub(crate) fn header(&self) -> Vec<u8> {
        self.frame.header_of(self.rect)
    }

    /// Its coefficients.
    pub(crate) fn mcus(&self) -> Mcus<'_> {
        Mcus::new(self.frame, &self.scan)
    }
}

impl SeekIndex {
    /// Builds the index of a file: baseline and extended sequential JPEG with one scan, PPM and PGM.
    pub fn build(file: &[u8]) -> Result<Self, NotSeekable> {
        match Pnm::read(file) {
            Some(pixels) => Ok(Self(IndexKind::Pixels(pixels))),
            None => Ok(Self(IndexKind::Jpeg(JpegIndex::build(file)?.into()))),
        }
    }

    /// Whether a file of this length with these first bytes may have an index.
    pub fn may_have(first_bytes: &[u8], len: u64) -> bool {
        // A cheap test on the first bytes. `build` reads the rest.
        let has_magic = matches!(first_bytes, [0xff, 0xd8, 0xff, ..] | [b'P', b'5' | b'6', ..]);
        has_magic && len <= super::walk::MAX_BYTES as u64
    }

    /// The header of the picture.
    pub fn header(&self) -> Header {
        match &self.0 {
            IndexKind::Jpeg(jpeg) => jpeg.header(),
            IndexKind::Pixels(pixels) => pixels.header(),
        }
    }

    /// Whether the header of the file is that of the indexed one. It cannot detect changes of the picture's data.
    pub fn fits(&self, file: &[u8]) -> bool {
        match &self.0 {
            IndexKind::Jpeg(jpeg) => jpeg.fits(file),
            IndexKind::Pixels(pixels) => Pnm::read(file).as_ref() == Some(pixels),
        }
    }

    /// The bytes of the file that contain a crop of the stored picture.
    pub(crate) fn bytes_around(&self, crop: Rect) -> Result<Range<u64>, BadIndex> {
        match &self.0 {
            IndexKind::Jpeg(jpeg) => Ok(jpeg.cut_around(crop)?.bytes),
            IndexKind::Pixels(pixels) => pixels.rows(crop).ok_or_else(BadIndex::of_crop),
        }
    }

    /// The piece that contains a crop of the stored picture, from bytes that begin at `offset` of the file.
    pub(crate) fn piece<'a>(
        &'a self,
        crop: Rect,
        bytes: &[u8],
        offset: u64,
        memory: &'a mut Vec<u8>,
    ) -> Result<Piece<'a>, BadIndex> {
        match &self.0 {
            IndexKind::Jpeg(jpeg) => {
                let cut = jpeg.cut_around(crop)?;
                let scan = Scan::gather(jpeg, &cut, bytes, offset, memory)?;
                Ok(Piece::Jpeg(JpegPiece { rect: cut.rect, frame: &jpeg.frame, scan }))
            }
            IndexKind::Pixels(pixels) => Ok(Piece::Pixels(pixels)),
        }
    }

    /// The index as bytes, with a checksum.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match &self.0 {
            IndexKind::Jpeg(jpeg) => {
                out.push(JPEG);
                jpeg.pack(&mut out);
            }
            IndexKind::Pixels(pixels) => {
                out.push(PIXELS);
                pixels.pack(&mut out);
            }
        }
        out.extend(xxh3_64(&out).to_le_bytes());
        out
    }

    /// Reads an index. The checksum detects damage.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadIndex> {
        let (content, checksum) = bytes.split_last_chunk().ok_or(BadIndex("it is truncated"))?;
        if xxh3_64(content) != u64::from_le_bytes(*checksum) {
            return Err(BadIndex("its checksum differs"));
        }
        let mut reader = PackedReader::new(content);
        let kind = match reader.array() {
            Some([VERSION, JPEG]) => JpegIndex::unpack(reader).map(|jpeg| IndexKind::Jpeg(jpeg.into())),
            Some([VERSION, PIXELS]) => Pnm::unpack(reader.rest()).map(IndexKind::Pixels),
            Some(_) => return Err(BadIndex("it was made by another version")),
            None => None,
        };
        kind.map(Self).ok_or(BadIndex("its content contradicts itself"))
    }

    /// The bytes of a forged content with a valid checksum, as an attacker would write them.
    #[doc(hidden)]
    pub fn forged(content: &[u8]) -> Vec<u8> {
        [content, &xxh3_64(content).to_le_bytes()].concat()
    }
}
