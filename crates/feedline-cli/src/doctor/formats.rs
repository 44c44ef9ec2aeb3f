//! Measures the time to decode pictures on this machine, by format, size and content.

use std::time::Instant;

use anyhow::{Context as _, Result};
use feedline_codec::{
    DecodeOptions, Mode, Picture, Subsampling, WebPCoding, decode_into, encode_jpeg, encode_png, encode_webp,
};
use serde::Serialize;

use crate::synth::{Numbers, Style};

/// Number of runs of each. The fastest one counts.
const RUNS: usize = 5;
const SIDES: [u32; 2] = [224, 768];
const JPEG_QUALITY: u8 = 90;

/// The cost of one picture.
#[derive(Clone, Debug, Serialize)]
pub struct FormatCost {
    /// The format: `tensor`, `jpeg`, `png` or `webp`.
    pub format: &'static str,
    /// Its sides in pixels.
    pub side: u32,
    /// The content: `flat`, `natural` or `noise`.
    pub content: &'static str,
    /// Bytes stored.
    pub bytes: usize,
    /// Milliseconds to decode it. A tensor is only copied.
    pub ms: f64,
}

/// Measures all combinations of format, size and content.
pub fn formats() -> Result<Vec<FormatCost>> {
    let mut found = Vec::new();
    for side in SIDES {
        for content in ["flat", "natural", "noise"] {
            let pixels = pixels(content, side);
            let files = [
                ("tensor", pixels.clone()),
                (
                    "jpeg",
                    encode_jpeg(&pixels, side, side, 3, JPEG_QUALITY, Subsampling::S420)
                        .context("cannot encode a JPEG")?,
                ),
                ("png", encode_png(&pixels, side, side, 3).context("cannot encode a PNG")?),
                ("webp", encode_webp(&pixels, side, side, WebPCoding::Lossless).context("cannot encode a WebP")?),
            ];
            for (format, file) in files {
                let ms = fastest_ms(&file, format == "tensor")?;
                found.push(FormatCost { format, side, content, bytes: file.len(), ms });
            }
        }
    }
    Ok(found)
}

/// A picture of three channels.
fn pixels(content: &str, side: u32) -> Vec<u8> {
    let bytes = (side * side * 3) as usize;
    match content {
        "flat" => vec![120; bytes],
        "noise" => {
            let mut numbers = Numbers::new(1, 1);
            (0..bytes).map(|_| numbers.bits() as u8).collect()
        }
        _ => Style { seed: 1, classes: 10, sides: (side, side), quality: JPEG_QUALITY }.square(0, side),
    }
}

/// Milliseconds to decode a file, or to copy a tensor. The minimum of several runs.
fn fastest_ms(file: &[u8], is_tensor: bool) -> Result<f64> {
    let options = DecodeOptions { mode: Mode::Rgb, exif: true, max_pixels: u64::MAX, fast: None, cancel: &|| false };
    // Buffers are reused between runs, as in the engine.
    let (mut picture, mut copy, mut fastest) = (Picture::default(), Vec::new(), f64::MAX);
    for _ in 0..RUNS {
        let start = Instant::now();
        if is_tensor {
            copy.clear();
            copy.extend_from_slice(file);
            // Otherwise the compiler could remove a copy that nobody reads.
            std::hint::black_box(&copy);
        } else {
            decode_into(file, &options, &mut picture).context("cannot decode the encoded picture")?;
        }
        fastest = fastest.min(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(fastest)
}
