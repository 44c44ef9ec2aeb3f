//! Prepares one picture for a shard: checks it, resizes it or converts it to pixels if requested, and indexes it.
//!
//! A picture is damaged if a loader could not decode it. A baseline JPEG is walked to its end for its seek index, which proves that
//! it is complete. All other formats are decoded.

use feedline_codec::{
    CodecError, DecodeOptions, Filter, Mode, Picture, Resampler, SeekIndex, Subsampling, View, decode_into,
    encode_jpeg, encode_png, read_header,
};

use super::options::{Content, Options};
use crate::memory::Cancel;
use crate::op::DEFAULT_MOST_PIXELS;

/// The JPEG quality of resized pictures.
const QUALITY: u8 = 92;

/// A picture in its stored form.
#[derive(Debug)]
pub(super) struct StoredPicture {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Its new ending, if it changed.
    pub ending: Option<&'static str>,
    /// Stored width. 0 if unknown.
    pub width: u32,
    /// Stored height. 0 if unknown.
    pub height: u32,
    /// The seek index, if it has one.
    pub record: Vec<u8>,
    /// Why it cannot be decoded.
    pub problem: Option<String>,
    /// Whether it was made smaller.
    pub is_resized: bool,
}

/// Reused tools of one worker.
pub(super) struct PictureTools {
    resampler: Resampler,
    picture: Picture,
    cancel: Cancel,
}

/// Pixels to be stored.
struct Pixels<'a> {
    bytes: &'a [u8],
    width: u32,
    height: u32,
    channels: u8,
}

impl PictureTools {
    /// Tools of one worker.
    pub(super) fn new(cancel: Cancel) -> Self {
        Self { resampler: Resampler::new(), picture: Picture::default(), cancel }
    }

    /// Prepares a picture for storage. Fails only if the work is cancelled.
    pub(super) fn store(
        &mut self,
        bytes: Vec<u8>,
        is_mask: bool,
        options: &Options,
    ) -> Result<StoredPicture, CodecError> {
        let header = match read_header(&bytes) {
            Ok(header) => header,
            Err(problem) => return Ok(StoredPicture::as_is(bytes, 0, 0, Some(problem))),
        };
        let (width, height) = (header.width, header.height);
        let target = options.max_side.filter(|&side| side < width.max(height)).map(|side| fitted(width, height, side));
        // Decoding turns the picture upright, which may swap its sides.
        let target = target.map(|(width, height)| header.orientation.seen_size(width, height));
        let made = match (options.content, target) {
            // Building the index proves that the file is whole. Without one, decoding it is the check.
            (Content::AsIs, None) => match SeekIndex::build(&bytes) {
                Ok(index) => {
                    let record = index.to_bytes();
                    return Ok(StoredPicture { record, ..StoredPicture::as_is(bytes, width, height, None) });
                }
                Err(_) => self.decode(&bytes, is_mask).map(|()| None),
            },
            (Content::AsIs, Some(target)) => {
                self.decode(&bytes, is_mask).and_then(|()| self.encoded(target, is_mask)).map(Some)
            }
            (Content::Pixels, target) => {
                self.decode(&bytes, is_mask).and_then(|()| self.pixels(target, is_mask)).map(Some)
            }
        };
        match made {
            Ok(Some(made)) => Ok(made),
            // These errors do not mean that the picture is damaged.
            Ok(None)
            | Err(CodecError::TooManyPixels { .. } | CodecError::Unsupported { .. } | CodecError::OutOfMemory { .. }) => {
                Ok(StoredPicture::as_is(bytes, width, height, None))
            }
            Err(CodecError::Cancelled) => Err(CodecError::Cancelled),
            Err(problem) => Ok(StoredPicture::as_is(bytes, width, height, Some(problem))),
        }
    }

    fn decode(&mut self, bytes: &[u8], is_mask: bool) -> Result<(), CodecError> {
        let cancel = || self.cancel.is_cancelled();
        let mode = if is_mask { Mode::Mask } else { Mode::Rgb };
        let mut options =
            DecodeOptions { mode, exif: true, max_pixels: DEFAULT_MOST_PIXELS, fast: None, cancel: &cancel };
        match decode_into(bytes, &options, &mut self.picture) {
            // A mask in colour cannot be decoded as a mask, but its file is intact.
            Err(CodecError::NotAMask { .. }) => {
                options.mode = Mode::Rgb;
                decode_into(bytes, &options, &mut self.picture)
            }
            decoded => decoded,
        }
    }

    /// The decoded picture in another size: as JPEG, or as PNG for masks, whose values are numbers.
    fn encoded(&mut self, (width, height): (u32, u32), is_mask: bool) -> Result<StoredPicture, CodecError> {
        let mut resized = Vec::new();
        let Pixels { bytes, channels, .. } = self.resized(Some((width, height)), is_mask, &mut resized)?;
        let (bytes, ending) = if is_mask {
            (encode_png(bytes, width, height, channels)?, "png")
        } else {
            (encode_jpeg(bytes, width, height, channels, QUALITY, Subsampling::S420)?, "jpg")
        };
        Ok(StoredPicture::made(bytes, ending, width, height, true))
    }

    /// The pixels of the decoded picture.
    fn pixels(&mut self, target: Option<(u32, u32)>, is_mask: bool) -> Result<StoredPicture, CodecError> {
        let mut resized = Vec::new();
        let Pixels { bytes, width, height, channels } = self.resized(target, is_mask, &mut resized)?;
        let (magic, ending) = if channels == 1 { ("P5", "pgm") } else { ("P6", "ppm") };
        let mut file = format!("{magic}\n{width} {height}\n255\n").into_bytes();
        file.extend(bytes);
        Ok(StoredPicture::made(file, ending, width, height, target.is_some()))
    }

    /// The decoded picture in the requested size, with one channel if it is grey.
    fn resized<'a>(
        &'a mut self,
        target: Option<(u32, u32)>,
        is_mask: bool,
        resized: &'a mut Vec<u8>,
    ) -> Result<Pixels<'a>, CodecError> {
        let Picture { width, height, channels, .. } = self.picture;
        if channels == 3 && is_grey(self.picture.bytes()) {
            let area = width as usize * height as usize;
            for pixel in 0..area {
                // In place: the source index is never below the target index.
                self.picture.pixels[pixel] = self.picture.pixels[3 * pixel];
            }
            self.picture.channels = 1;
        }
        let channels = self.picture.channels;
        let Some((new_width, new_height)) = target else {
            return Ok(Pixels { bytes: self.picture.bytes(), width, height, channels });
        };
        resized.resize(new_width as usize * new_height as usize * usize::from(channels), 0);
        let filter = if is_mask { Filter::Nearest } else { Filter::Bilinear };
        let view = View::packed(self.picture.bytes(), width, height, channels);
        self.resampler.resize(view, resized, new_width, new_height, filter)?;
        Ok(Pixels { bytes: resized, width: new_width, height: new_height, channels })
    }
}

impl StoredPicture {
    fn as_is(bytes: Vec<u8>, width: u32, height: u32, problem: Option<CodecError>) -> Self {
        let problem = problem.map(|problem| problem.to_string());
        Self { bytes, ending: None, width, height, record: Vec::new(), problem, is_resized: false }
    }

    fn made(bytes: Vec<u8>, ending: &'static str, width: u32, height: u32, is_resized: bool) -> Self {
        // PNG files have no seek index: an empty record.
        let record = SeekIndex::build(&bytes).map(|index| index.to_bytes()).unwrap_or_default();
        Self { bytes, ending: Some(ending), width, height, record, problem: None, is_resized }
    }
}

/// The size whose longer side is `side`.
fn fitted(width: u32, height: u32, side: u32) -> (u32, u32) {
    let longer = u64::from(width.max(height));
    // other * side / longer, rounded half up, in 64 bits.
    let scaled = |other: u32| ((u64::from(other) * u64::from(side) + longer / 2) / longer).max(1) as u32;
    (scaled(width), scaled(height))
}

fn is_grey(pixels: &[u8]) -> bool {
    let (pixels, _) = pixels.as_chunks::<3>();
    pixels.iter().all(|[red, green, blue]| red == green && green == blue)
}
