//! Indexes of files that were changed or truncated afterwards. Decoding with such an index gives pixels or an error. So does
//! trimming and decoding the trimmed picture.

use std::sync::LazyLock;

use feedline_codec::{SeekIndex, Trimmed};

use crate::pictures::{CropRequest, SEEKABLE};

static INDEXES: LazyLock<Vec<SeekIndex>> =
    LazyLock::new(|| SEEKABLE.iter().map(|file| SeekIndex::build(file).expect("the files have an index")).collect());

/// Input: a request, the number of a file, how much of it to cut off (in 256ths), and changes of three bytes: a big-endian offset,
/// and a value to xor.
pub fn run(data: &[u8]) {
    let (request, rest) = data.split_at(data.len().min(CropRequest::BYTES));
    let Some((&[number, cut_off], changes)) = rest.split_first_chunk() else { return };
    let number = usize::from(number) % SEEKABLE.len();
    let mut file = SEEKABLE[number].clone();
    for &[high, low, value] in changes.as_chunks().0 {
        let offset = usize::from(u16::from_be_bytes([high, low])) % file.len();
        file[offset] ^= value;
    }
    file.truncate(file.len() * (256 - usize::from(cut_off)) / 256);
    let index = &INDEXES[number];
    index.fits(&file);
    CropRequest::of(request).rows(&file, Some(index), &index.header());
    if let Some(trimmed) = CropRequest::of(request).trim(&file, index) {
        Trimmed::read(&trimmed).expect("a trimmed picture can be read");
        CropRequest::of(request).trimmed_rows(&trimmed);
    }
}

/// Each file with a few changes.
pub fn seeds() -> Vec<Vec<u8>> {
    let request = [40, 220, 10, 200, 0];
    let seed = |number: usize| {
        let middle = (SEEKABLE[number].len() as u16 * 3 / 4).to_be_bytes();
        [request.as_slice(), &[number as u8, 0], &middle, &[1, middle[0], middle[1] ^ 3, 0x80]].concat()
    };
    (0..SEEKABLE.len()).map(seed).collect()
}
