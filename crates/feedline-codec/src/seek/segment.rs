//! Data between two markers, without stuffing, and where its bits lie in the file.

use super::walk::NotSeekable;

/// Data between two markers, without stuffing.
#[derive(Debug, Default)]
pub(super) struct EntropySegment {
    pub bytes: Vec<u8>,
    pub places: Places,
    /// The marker after it.
    pub marker: Option<u8>,
}

/// Where the bits of a segment lie in the scan.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The byte of the scan at which the segment starts.
    start: usize,
    /// For each stuffed zero, the number of bytes of the segment before it, not counting stuffed zeros.
    stuffed: Vec<usize>,
    /// Number of zeros before the last requested place.
    passed: usize,
}

impl EntropySegment {
    /// Reads from `at` on. Returns the place after the marker.
    pub(super) fn read(&mut self, file: &[u8], scan: usize, at: usize) -> Result<usize, NotSeekable> {
        self.bytes.clear();
        self.places.stuffed.clear();
        (self.places.start, self.places.passed) = (at - scan, 0);
        let mut rest = file.get(at..).unwrap_or_default();
        self.marker = loop {
            // A 0xff in the data is followed by a stuffed zero. Before any other byte it is a marker.
            let Some(marker) = memchr::memchr(0xff, rest) else {
                self.bytes.extend_from_slice(rest);
                rest = &[];
                break None;
            };
            match rest.get(marker + 1) {
                Some(0) => {
                    self.bytes.extend_from_slice(&rest[..=marker]);
                    self.places.stuffed.push(self.bytes.len());
                    rest = &rest[marker + 2..];
                }
                Some(0xff) | None => return Err(NotSeekable("there are fill bytes in its data")),
                Some(&kind) => {
                    self.bytes.extend_from_slice(&rest[..marker]);
                    rest = &rest[marker + 2..];
                    break Some(kind);
                }
            }
        };
        Ok(file.len() - rest.len())
    }
}

impl Places {
    /// The place in the scan of a bit of the segment. Must be called with ascending bits.
    pub(super) fn of(&mut self, bit: usize) -> u32 {
        let byte = bit / 8;
        // Each stuffed zero before this byte shifts its place in the file by one.
        while self.stuffed.get(self.passed).is_some_and(|&before| before <= byte) {
            self.passed += 1;
        }
        ((self.start + byte + self.passed) * 8 + bit % 8) as u32
    }
}
