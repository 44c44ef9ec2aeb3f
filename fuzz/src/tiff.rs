//! The TIFF decoder. Any bytes are a picture or an error, and a part of a picture has the pixels of the whole.

use crate::header;
use crate::pictures::tiffs;

/// Reads bytes as a TIFF: the first ones become its magic bytes.
pub fn run(data: &[u8]) {
    let mut bytes = data.to_vec();
    let Some(magic) = bytes.first_chunk_mut::<4>() else { return };
    *magic = if magic[0] == b'M' { *b"MM\0\x2a" } else { *b"II\x2a\0" };
    header::run(&bytes);
}

/// Files of every kind.
pub fn seeds() -> Vec<Vec<u8>> {
    tiffs()
}
