//! Decodes the bytes of a file to pixels.
//!
//! In: a whole file, and options. Out: a [`Picture`], in memory that is reused from picture to picture. The limit on pixels is
//! checked on the header, before any memory is allocated. The magic bytes decide which decoder runs; the decoders are in `formats`.

use crate::error::CodecError;
use crate::format::Format;
use crate::formats;
use crate::header::read_header;
use crate::memory::{grow, with_scratch};
use crate::options::{DecodeOptions, Target};
use crate::orientation::Orientation;
use crate::rect::Rect;
use crate::view::View;

/// Decoded pixels: rows of pixels of channels, tightly packed.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Width, after the orientation was applied.
    pub width: u32,
    /// Height, after the orientation was applied.
    pub height: u32,
    /// Bytes per pixel.
    pub channels: u8,
    /// The first `len()` bytes are the picture. The rest is left over from larger ones.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// Bytes of the picture.
    pub fn len(&self) -> usize {
        self.width as usize * self.height as usize * usize::from(self.channels)
    }

    /// Whether it has no pixels.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Exactly the bytes of the picture.
    pub fn bytes(&self) -> &[u8] {
        &self.pixels[..self.len()]
    }

    /// The whole picture.
    pub fn view(&self) -> View<'_> {
        View::packed(self.bytes(), self.width, self.height, self.channels)
    }
}

/// Decodes with 8 bits a channel. See [`crate::decode_into`].
pub(crate) fn decode_into(bytes: &[u8], options: &DecodeOptions<'_>, picture: &mut Picture) -> Result<(), CodecError> {
    // The picture counts as empty until decoding has succeeded.
    (picture.width, picture.height, picture.channels) = (0, 0, 0);
    let header = read_header(bytes)?;
    options.check_header(&header)?;
    let (width, height) = header.size_at(options.scale());
    let mut target = Target { width, height, options, pixels: &mut picture.pixels };
    match header.format {
        Format::Jpeg => {
            formats::jpeg::decode_part(bytes, &header, Rect::whole(width, height), &mut target)?;
        }
        Format::Png => formats::png::decode(bytes, &mut target)?,
        Format::Pnm => formats::pnm::decode(bytes, &mut target)?,
        Format::WebP => formats::webp::decode(bytes, &mut target)?,
        Format::Tiff => formats::tiff::decode(bytes, &mut target)?,
        Format::Bmp | Format::Gif => formats::others::decode(bytes, header.format, &mut target)?,
    }

    picture.turn(options, options.orientation(&header), width, height)
}

impl Picture {
    /// Applies the orientation to the stored pixels.
    pub(crate) fn turn(
        &mut self,
        options: &DecodeOptions<'_>,
        orientation: Orientation,
        width: u32,
        height: u32,
    ) -> Result<(), CodecError> {
        // All that follows moves pixels and does not read them.
        let channels = options.mode.pixel_bytes();
        if orientation != Orientation::IDENTITY {
            options.check_cancel()?;
            with_scratch(|scratch| {
                // A transposition needs a second picture. Flips work in place.
                if orientation.swaps_sides() {
                    grow(scratch, u64::from(width) * u64::from(height) * u64::from(channels))?;
                }
                orientation.apply(&mut self.pixels, scratch, width, height, channels);
                Ok::<(), CodecError>(())
            })?;
        }
        (self.width, self.height) = orientation.seen_size(width, height);
        self.channels = channels;
        Ok(())
    }
}
