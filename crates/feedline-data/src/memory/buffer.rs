//! Reused heap memory.

/// Reused heap memory. Its allocation may be longer than its content, so growing it does not clear bytes that will be overwritten.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// `len` bytes of unspecified (old) content in the memory of `bytes`. `None` if it must grow and cannot.
    pub(crate) fn reusing(mut bytes: Vec<u8>, len: usize) -> Option<Self> {
        if bytes.len() < len {
            bytes.try_reserve_exact(len - bytes.len()).ok()?;
            // Only bytes beyond the old length are cleared.
            bytes.resize(len, 0);
        }
        Some(Self { bytes, len })
    }

    /// The content.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The content, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// The memory, for reuse.
    pub(crate) fn into_inner(self) -> Vec<u8> {
        self.bytes
    }

    /// Exactly its content.
    pub(crate) fn into_exact(mut self) -> Vec<u8> {
        self.bytes.truncate(self.len);
        self.bytes
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { len: bytes.len(), bytes }
    }
}
