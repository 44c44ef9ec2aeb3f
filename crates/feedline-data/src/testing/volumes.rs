//! Generated volumes: NIfTI files of an image and its label.

use std::fs;
use std::io;
use std::path::Path;

/// Writes `count` pairs `0/image.nii` and `0/label.nii`. The first side grows by one from pair to pair.
pub fn write_volumes(root: &Path, count: usize, [depth, height, width]: [usize; 3]) -> io::Result<()> {
    for number in 0..count {
        let sides = [depth + number, height, width];
        let elements = sides.iter().product::<usize>();
        let folder = root.join(number.to_string());
        fs::create_dir_all(&folder)?;
        let value = |element: usize| (element * 7919 % 1009 + number) as i16;
        let image: Vec<u8> = (0..elements).flat_map(|element| value(element).to_le_bytes()).collect();
        let label: Vec<u8> = (0..elements).map(|element| u8::from(value(element) % 5 == 0)).collect();
        fs::write(folder.join("image.nii"), [header(sides, 4), image].concat())?;
        fs::write(folder.join("label.nii"), [header(sides, 2), label].concat())?;
    }
    Ok(())
}

/// The header of a three-dimensional volume with 1 mm spacing, including the four bytes after it.
fn header(sides: [usize; 3], datatype: i16) -> Vec<u8> {
    let mut header = vec![0; 352];
    header[..4].copy_from_slice(&348i32.to_le_bytes());
    for (place, number) in [3, sides[0], sides[1], sides[2], 1, 1, 1, 1].into_iter().enumerate() {
        header[40 + 2 * place..][..2].copy_from_slice(&(number as i16).to_le_bytes());
        header[76 + 4 * place..][..4].copy_from_slice(&1f32.to_le_bytes());
    }
    header[70..72].copy_from_slice(&datatype.to_le_bytes());
    header[108..112].copy_from_slice(&352f32.to_le_bytes());
    header[344..348].copy_from_slice(b"n+1\0");
    header
}
