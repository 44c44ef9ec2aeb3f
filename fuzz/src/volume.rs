//! The reader of volumes. Any bytes are an error, or a volume whose regions equal those of the whole volume.

use std::sync::Arc;

use feedline_data::dtype::Dtype;
use feedline_data::memory::{Cancel, Workspace};
use feedline_data::store::Object;
use feedline_data::testing::write_volumes;
use feedline_data::volume::{Foreground, Region, VolumeFile};

use crate::memory::MemoryObject;

/// Of larger volumes only a region is read.
const MAX_ELEMENTS: usize = 1 << 20;

/// Reads bytes as a volume of float32 and of uint8, and as the cached foreground of a label.
pub fn run(data: &[u8]) {
    drop(Foreground::from_bytes(data, [10, 12, 14]));
    let object = Arc::new(MemoryObject { name: "volume".to_owned(), bytes: data.to_vec(), modified_nanoseconds: None });
    let (all, mut workspace) = (0..object.len(), Workspace::new(Cancel::default(), 0));
    let Ok(file) = VolumeFile::open(object, all, &workspace) else { return };
    let (sides, channels) = (file.header().sides, file.header().channels);
    let whole = Region::whole(sides);
    let part = Region { start: sides.map(|side| side / 3), sides: sides.map(|side| (side - side / 3).min(5)) };
    for dtype in [Dtype::F32, Dtype::U8] {
        let mut read = |region: Region| {
            let mut elements = vec![0; channels.min(8) * region.elements() * dtype.bytes()];
            file.read(region, dtype, &mut elements, &mut workspace).ok().map(|_| elements)
        };
        let Some(cropped) = read(part) else { continue };
        if channels > 8 || channels * whole.elements() > MAX_ELEMENTS {
            continue;
        }
        if let Some(elements) = read(whole) {
            let mut expected = vec![0; cropped.len()];
            part.copy_from(&elements, channels, sides, dtype.bytes(), &mut expected);
            assert_eq!(cropped, expected, "a region is that of the whole");
        }
    }
}

/// An image, a label, a compressed image, and a NumPy array.
pub fn seeds() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    write_volumes(folder.path(), 1, [4, 5, 6]).expect("it can be written to");
    let read = |name: &str| std::fs::read(folder.path().join(name)).expect("it was written");
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }";
    let array = [b"\x93NUMPY\x01\x00\x76\x00".as_slice(), format!("{text:<117}\n").as_bytes(), &[7; 96]].concat();
    let (image, label) = (read("0/image.nii"), read("0/label.nii"));
    let compressed = compress(&image);
    vec![image, label, compressed, array]
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}
