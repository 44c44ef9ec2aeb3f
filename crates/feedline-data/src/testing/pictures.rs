//! Small generated pictures, so that tests need no files from outside.

use std::fs;
use std::path::Path;

use feedline_codec::{CodecError, Subsampling, encode_jpeg};
use feedline_order::random::mix;

/// Pixels of a picture of soft colour waves with some noise, different for each number.
pub fn picture(number: u64, width: u32, height: u32) -> Vec<u8> {
    let seed = mix(number);
    let wave = |shift: u32| 3 + (seed >> shift) % 29;
    let mut pixels = Vec::with_capacity(width as usize * height as usize * 3);
    for y in 0..u64::from(height) {
        for x in 0..u64::from(width) {
            // Some noise, so that JPEG files have a realistic size.
            let noise = mix(seed ^ (y << 32 | x)) % 16;
            pixels.push((x * wave(0) + y + noise) as u8 / 2 + 40);
            pixels.push((y * wave(8) + noise) as u8 / 2 + 60);
            pixels.push(((x + y) * wave(16) / 2 + noise) as u8 / 2 + 20);
        }
    }
    pixels
}

/// Writes `count` JPEG files of varied size into `classes` sub-folders of `folder`.
pub fn write_pictures(folder: &Path, count: u64, classes: u64) -> Result<(), Box<dyn std::error::Error>> {
    for number in 0..count {
        let class = folder.join(format!("class-{}", number % classes));
        fs::create_dir_all(&class)?;
        fs::write(class.join(format!("{number:05}.jpg")), jpeg(number)?)?;
    }
    Ok(())
}

fn jpeg(number: u64) -> Result<Vec<u8>, CodecError> {
    let (width, height) = (40 + mix(number) % 60, 30 + mix(number + 1) % 70);
    let subsampling = if number.is_multiple_of(3) { Subsampling::S444 } else { Subsampling::S420 };
    encode_jpeg(&picture(number, width as u32, height as u32), width as u32, height as u32, 3, 85, subsampling)
}
