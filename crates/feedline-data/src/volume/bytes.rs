//! Reads the bytes of a volume's file from front to back, decompressing them if necessary.

use std::io::{self, Read};
use std::ops::Range;

use flate2::bufread::GzDecoder;

use super::VolumeError;
use crate::memory::Cancel;
use crate::store::{Object, StoreError};

/// Compressed bytes to read at once.
const CHUNK_BYTES: usize = 1 << 18;
/// Upper limit of bytes to decompress between two checks for cancellation.
const TURN_BYTES: usize = 1 << 22;

/// The first bytes of gzip files.
pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A forward reader. It cannot go back.
pub(super) enum Bytes<'a> {
    Plain(Plain<'a>),
    Gzip(Box<Gzip<'a>>),
}

impl<'a> Bytes<'a> {
    pub(super) fn plain(object: &'a dyn Object, range: Range<u64>) -> Self {
        Self::Plain(Plain { object, range, read: 0 })
    }

    pub(super) fn open(object: &'a dyn Object, range: Range<u64>, is_gzip: bool, cancel: &'a Cancel) -> Self {
        if !is_gzip {
            return Self::plain(object, range);
        }
        Self::Gzip(Box::new(Gzip { decoder: GzDecoder::new(Chunks::new(object, range)), position: 0, cancel }))
    }

    /// Bytes read from the store so far.
    pub(super) fn bytes_read(&self) -> u64 {
        match self {
            Self::Plain(plain) => plain.read,
            Self::Gzip(gzip) => gzip.decoder.get_ref().read,
        }
    }

    /// Fills `target` from `offset` on. The offset must not be before the end of the last read: compressed data cannot be read
    /// backwards.
    pub(super) fn read_at(&mut self, offset: u64, target: &mut [u8]) -> Result<(), VolumeError> {
        match self {
            Self::Plain(plain) => {
                plain.read += target.len() as u64;
                Ok(plain.object.read_at(plain.range.start + offset, target)?)
            }
            Self::Gzip(gzip) => {
                gzip.skip_to(offset)?;
                gzip.fill(target)
            }
        }
    }

    /// Reads the first bytes, up to the length of `target`. Returns how many there are.
    pub(super) fn read_head(&mut self, target: &mut [u8]) -> Result<usize, VolumeError> {
        match self {
            Self::Plain(Plain { object, range, read }) => {
                let len = target.len().min((range.end - range.start) as usize);
                object.read_at(range.start, &mut target[..len])?;
                *read += len as u64;
                Ok(len)
            }
            Self::Gzip(gzip) => gzip.fill_some(target),
        }
    }

    /// Decompresses the rest, so that its checksum is verified.
    pub(super) fn finish(&mut self) -> Result<(), VolumeError> {
        let Self::Gzip(gzip) = self else { return Ok(()) };
        let mut rest = vec![0; CHUNK_BYTES];
        while gzip.fill_some(&mut rest)? > 0 {}
        Ok(())
    }
}

pub(super) struct Plain<'a> {
    object: &'a dyn Object,
    range: Range<u64>,
    read: u64,
}

pub(super) struct Gzip<'a> {
    decoder: GzDecoder<Chunks<'a>>,
    /// Decompressed bytes so far.
    position: u64,
    cancel: &'a Cancel,
}

impl Gzip<'_> {
    fn skip_to(&mut self, offset: u64) -> Result<(), VolumeError> {
        // A compressed stream has no seek: bytes before the offset are decompressed and thrown away.
        let mut scratch = vec![0; CHUNK_BYTES.min((offset - self.position) as usize)];
        while self.position < offset {
            let len = scratch.len().min((offset - self.position) as usize);
            self.fill(&mut scratch[..len])?;
        }
        Ok(())
    }

    fn fill(&mut self, target: &mut [u8]) -> Result<(), VolumeError> {
        let (start, needed) = (self.position, target.len());
        let has = self.fill_some(target)?;
        if has == needed {
            return Ok(());
        }
        let path = self.decoder.get_ref().object.address();
        Err(VolumeError::CutShort { path, unpacked: self.position, expected: start + needed as u64 })
    }

    /// Decompresses until `target` is full or the data ends.
    fn fill_some(&mut self, target: &mut [u8]) -> Result<usize, VolumeError> {
        let mut filled = 0;
        while filled < target.len() {
            // Decompressing a volume takes seconds, so cancellation is checked every few megabytes.
            self.cancel.check().map_err(crate::memory::NoMemory::from)?;
            let end = target.len().min(filled + TURN_BYTES);
            match self.decoder.read(&mut target[filled..end]) {
                Ok(0) if self.next_member().map_err(|error| self.failure(error, filled as u64))? => {}
                Ok(0) => break,
                Ok(len) => filled += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.failure(source, filled as u64)),
            }
        }
        self.position += filled as u64;
        Ok(filled)
    }

    /// Starts the next member of a gzip file. Returns whether there is one.
    fn next_member(&mut self) -> io::Result<bool> {
        let chunks = self.decoder.get_mut();
        loop {
            let bytes = io::BufRead::fill_buf(chunks)?;
            if bytes.is_empty() {
                return Ok(false);
            }
            // A gzip file may have several members, one after the other. Zeros after a member are padding, which tape tools write.
            let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
            let has_member = zeros < bytes.len();
            io::BufRead::consume(chunks, zeros);
            if has_member {
                break;
            }
        }
        // The decoder has to be taken out by value to get its reader back. An empty one stands in for it meanwhile.
        let nothing = Chunks::new(chunks.object, 0..0);
        let ended = std::mem::replace(&mut self.decoder, GzDecoder::new(nothing));
        self.decoder = GzDecoder::new(ended.into_inner());
        Ok(true)
    }

    fn failure(&mut self, source: io::Error, filled: u64) -> VolumeError {
        let unpacked = self.position + filled;
        let chunks = self.decoder.get_mut();
        let path = chunks.object.address();
        // If the store failed, its error is the cause. The decoder's error is only a consequence.
        match chunks.failure.take() {
            Some(store) => store.into(),
            None if source.kind() == io::ErrorKind::UnexpectedEof => {
                VolumeError::GzipCutShort { path, bytes: chunks.range.end - chunks.range.start, unpacked }
            }
            None => VolumeError::Damaged { path, unpacked, source },
        }
    }
}

/// The compressed bytes, chunk by chunk.
struct Chunks<'a> {
    object: &'a dyn Object,
    range: Range<u64>,
    chunk: Vec<u8>,
    /// Bytes of `chunk` that the decoder has consumed.
    used: usize,
    /// Bytes of `range` read so far, including `chunk`.
    read: u64,
    /// The store's error. Decoders would lose it.
    failure: Option<StoreError>,
}

impl<'a> Chunks<'a> {
    fn new(object: &'a dyn Object, range: Range<u64>) -> Self {
        Self { object, range, chunk: Vec::new(), used: 0, read: 0, failure: None }
    }
}

impl Read for Chunks<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let available = io::BufRead::fill_buf(self)?;
        let len = available.len().min(target.len());
        target[..len].copy_from_slice(&available[..len]);
        io::BufRead::consume(self, len);
        Ok(len)
    }
}

impl io::BufRead for Chunks<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.chunk.len() {
            let left = self.range.end - self.range.start - self.read;
            self.chunk.resize(CHUNK_BYTES.min(left as usize), 0);
            if let Err(error) = self.object.read_at(self.range.start + self.read, &mut self.chunk) {
                // `io::Error` cannot carry a `StoreError` through the decoder and back, so it is stored on the side.
                self.failure = Some(error);
                return Err(io::ErrorKind::Other.into());
            }
            self.read += self.chunk.len() as u64;
            self.used = 0;
        }
        Ok(&self.chunk[self.used..])
    }

    fn consume(&mut self, len: usize) {
        self.used += len;
    }
}
