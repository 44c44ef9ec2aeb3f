//! Encodes TIFF. Feedline writes none; tests, fuzzing and benchmarks need files of every kind.
//!
//! In: packed pixels. Out: a file with one picture, in strips or tiles.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::error::CodecError;

/// How bytes of a TIFF are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TiffPacking {
    /// As they are.
    #[default]
    None,
    /// The algorithm of GIF, with longer codes.
    Lzw,
    /// The algorithm of PNG.
    Deflate,
    /// Runs of equal bytes.
    PackBits,
}

/// The kind of a TIFF file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the format has as many switches, in any combination")]
pub struct TiffCoding {
    /// The compression.
    pub packing: TiffPacking,
    /// Width and height of tiles. None for strips of 7 rows.
    pub tile: Option<(u32, u32)>,
    /// Whether samples have 16 bits: the given byte twice.
    pub is_deep: bool,
    /// Whether samples are stored as differences from the pixel to the left.
    pub has_differences: bool,
    /// Whether each channel has tiles of its own.
    pub is_planar: bool,
    /// Whether numbers begin with their high byte.
    pub is_big_endian: bool,
}

const STRIP_ROWS: u32 = 7;

/// Encodes packed pixels of 1 to 4 channels.
pub fn encode_tiff(
    pixels: &[u8],
    width: u32,
    height: u32,
    channels: u8,
    coding: TiffCoding,
) -> Result<Vec<u8>, CodecError> {
    let samples = usize::from(channels);
    let is_right = pixels.len() == width as usize * height as usize * samples;
    if !is_right || pixels.is_empty() || !(1..=4).contains(&channels) {
        let reason = "TIFF needs 1 to 4 channels, and as many bytes as pixels";
        return Err(CodecError::Shape { width, height, channels, reason });
    }
    let (tile_width, tile_height) = coding.tile.unwrap_or((width, STRIP_ROWS));
    let planes = if coding.is_planar { samples } else { 1 };
    let mut file = vec![0; 8];
    let mut places = Vec::new();
    for plane in 0..planes {
        let channels = if coding.is_planar { plane..plane + 1 } else { 0..samples };
        for top in (0..height).step_by(tile_height as usize) {
            for left in (0..width).step_by(tile_width as usize) {
                // A strip ends with the picture, a tile is padded.
                let rows = if coding.tile.is_some() { tile_height } else { tile_height.min(height - top) };
                let mut bytes = Vec::new();
                for y in top..top + rows {
                    let mut before = vec![0; channels.len()];
                    for x in left..left + tile_width {
                        for (channel, before) in channels.clone().zip(&mut before) {
                            let at =
                                (y.min(height - 1) as usize * width as usize + x.min(width - 1) as usize) * samples;
                            let value = u16::from_be_bytes([pixels[at + channel]; 2]);
                            let stored = if coding.has_differences { value.wrapping_sub(*before) } else { value };
                            *before = value;
                            coding.put(stored, &mut bytes);
                        }
                    }
                }
                let packed = coding.pack(&bytes)?;
                places.push((file.len() as u32, packed.len() as u32));
                file.extend(packed);
            }
        }
    }
    Ok(coding.finish(file, (width, height, channels), &places))
}

impl TiffCoding {
    fn put(self, stored: u16, bytes: &mut Vec<u8>) {
        match (self.is_deep, self.is_big_endian) {
            // The difference of doubled bytes is not that of bytes, but its low byte is.
            (false, _) => bytes.push(stored as u8),
            (true, true) => bytes.extend(stored.to_be_bytes()),
            (true, false) => bytes.extend(stored.to_le_bytes()),
        }
    }

    fn pack(self, bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
        let refused = |_| CodecError::OutOfMemory { bytes: bytes.len() as u64 };
        match self.packing {
            TiffPacking::None => Ok(bytes.to_vec()),
            TiffPacking::Lzw => {
                let mut encoder = weezl::encode::Encoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
                encoder.encode(bytes).map_err(|_| CodecError::OutOfMemory { bytes: bytes.len() as u64 })
            }
            TiffPacking::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(refused)
            }
            TiffPacking::PackBits => {
                let mut packed = Vec::new();
                for run in bytes.chunk_by(|a, b| a == b).flat_map(|run| run.chunks(128)) {
                    // A run of one byte is a literal of one byte.
                    packed.extend([1_u8.wrapping_sub(run.len() as u8), run[0]]);
                }
                Ok(packed)
            }
        }
    }

    /// Adds the directory behind the pixels.
    fn finish(self, mut file: Vec<u8>, (width, height, channels): (u32, u32, u8), places: &[(u32, u32)]) -> Vec<u8> {
        let bits = if self.is_deep { 16 } else { 8 };
        let compression = match self.packing {
            TiffPacking::None => 1,
            TiffPacking::Lzw => 5,
            TiffPacking::Deflate => 8,
            TiffPacking::PackBits => 32773,
        };
        let (offsets, lengths) = places.iter().copied().unzip();
        let one = |number: u32| vec![number];
        let mut fields = vec![
            (256, one(width)),
            (257, one(height)),
            (258, vec![bits; usize::from(channels)]),
            (259, one(compression)),
            (262, one(if channels >= 3 { 2 } else { 1 })),
            (277, one(channels.into())),
            (284, one(if self.is_planar { 2 } else { 1 })),
            (317, one(if self.has_differences { 2 } else { 1 })),
        ];
        match self.tile {
            None => fields.extend([(273, offsets), (278, one(STRIP_ROWS)), (279, lengths)]),
            Some((width, height)) => {
                fields.extend([(322, one(width)), (323, one(height)), (324, offsets), (325, lengths)]);
            }
        }
        fields.sort_by_key(|(tag, _)| *tag);
        let number = |value: u32| if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let short = |value: u16| if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut directory = short(fields.len() as u16).to_vec();
        for (tag, values) in fields {
            directory.extend(short(tag));
            // All numbers have 32 bits.
            directory.extend(short(4));
            directory.extend(number(values.len() as u32));
            if let [value] = values[..] {
                directory.extend(number(value));
            } else {
                directory.extend(number(file.len() as u32));
                file.extend(values.into_iter().flat_map(number));
            }
        }
        directory.extend(number(0));
        let start = number(file.len() as u32);
        file[..4].copy_from_slice(if self.is_big_endian { b"MM\0\x2a" } else { b"II\x2a\0" });
        file[4..8].copy_from_slice(&start);
        file.extend(directory);
        file
    }
}
