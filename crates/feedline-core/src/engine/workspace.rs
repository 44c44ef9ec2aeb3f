//! The tools of one preparer thread: memory used again, the resampler, the kernels, the cancel token.
//!
//! Nothing here outlives a sample but spare memory, so it cannot carry anything from one sample to the next (law 1).

use std::time::Duration;

use feedline_codec::{Resampler, Simd};

use super::{Cancel, Cancelled, Working};
use crate::batch::Buffer;

/// Buffers kept per thread.
const SPARE_BUFFERS: usize = 6;
/// Larger buffers go back to the system, so that one giant picture does not stay in memory.
const SPARE_BYTES_EACH: usize = 16 << 20;

/// What an op works with besides its sample.
pub struct Workspace {
    /// Resizes pictures.
    pub resampler: Resampler,
    /// The kernels to use.
    pub simd: Simd,
    cancel: Cancel,
    spare: Vec<Vec<u8>>,
    working: Option<Working>,
    memory_wait: Duration,
}

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").field("spare", &self.spare.len()).finish_non_exhaustive()
    }
}

impl Workspace {
    /// Tools of the fastest kind that this machine has.
    pub fn new(cancel: Cancel) -> Self {
        Self {
            resampler: Resampler::new(),
            simd: Simd::detect(),
            cancel,
            spare: Vec::new(),
            working: None,
            memory_wait: Duration::ZERO,
        }
    }

    /// The same results from plain code.
    pub fn without_simd(cancel: Cancel) -> Self {
        Self { resampler: Resampler::without_simd(), simd: Simd::none(), ..Self::new(cancel) }
    }

    /// The token to poll in long work.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Books what is taken from now on to one sample, until [`Workspace::end`].
    pub fn begin(&mut self, working: Working) {
        self.working = Some(working);
        self.memory_wait = Duration::ZERO;
    }

    /// Returns what the sample had booked; says how long it waited for memory.
    pub fn end(&mut self) -> Duration {
        self.working = None;
        self.memory_wait
    }

    /// Waits until the budget has room for `bytes`, of which the caller takes the memory itself.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Cancelled> {
        match &self.working {
            Some(working) => {
                self.memory_wait += working.reserve(bytes as u64, &self.cancel)?;
                Ok(())
            }
            None => self.cancel.check(),
        }
    }

    /// `len` bytes of unspecified content; waits until the budget has room for them.
    pub fn buffer(&mut self, len: usize) -> Result<Buffer, Cancelled> {
        self.reserve(len)?;
        Ok(Buffer::reusing(self.spare_memory(len), len))
    }

    /// Memory to grow into: the smallest spare piece that holds `len`, else the largest, else a new one.
    pub fn spare_memory(&mut self, len: usize) -> Vec<u8> {
        let rank = |bytes: &Vec<u8>| (bytes.len() < len, bytes.len().abs_diff(len));
        let best = (0..self.spare.len()).min_by_key(|&number| rank(&self.spare[number]));
        best.map(|number| self.spare.swap_remove(number)).unwrap_or_default()
    }

    /// Takes memory back for later use.
    pub fn recycle(&mut self, buffer: Buffer) {
        let bytes = buffer.into_inner();
        if bytes.capacity() > 0 && bytes.capacity() <= SPARE_BYTES_EACH && self.spare.len() < SPARE_BUFFERS {
            self.spare.push(bytes);
        }
    }
}
