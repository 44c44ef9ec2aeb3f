//! The workspace of a preparer thread: reused memory, the resampler, the kernels, the cancel token.
//!
//! Only spare memory outlives a sample, so nothing can leak from one sample into the next (law 1).

use std::time::Duration;

use feedline_codec::{Resampler, Simd};

use super::{Buffer, Cancel, NoMemory, Working};

/// Spare buffers per thread.
const SPARE_BUFFERS: usize = 6;
/// Upper limit of spare memory per thread, however large the budget. A single giant picture does not stay.
const MAX_SPARE_BYTES: usize = 32 << 20;

/// Everything an op works with besides its sample.
pub struct Workspace {
    /// Resizes pictures.
    pub resampler: Resampler,
    /// The kernels to use.
    pub simd: Simd,
    cancel: Cancel,
    spare: Vec<Vec<u8>>,
    spare_limit: usize,
    working: Option<Working>,
    memory_wait: Duration,
}

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").field("spare", &self.spare.len()).finish_non_exhaustive()
    }
}

impl Workspace {
    /// A workspace with the fastest kernels of this machine. It keeps at most `spare_limit` bytes for reuse.
    pub fn new(cancel: Cancel, spare_limit: usize) -> Self {
        Self {
            resampler: Resampler::new(),
            simd: Simd::detect(),
            cancel,
            spare: Vec::new(),
            spare_limit: spare_limit.min(MAX_SPARE_BYTES),
            working: None,
            memory_wait: Duration::ZERO,
        }
    }

    /// A workspace with plain code and the same results.
    pub fn without_simd(cancel: Cancel, spare_limit: usize) -> Self {
        Self { resampler: Resampler::without_simd(), simd: Simd::none(), ..Self::new(cancel, spare_limit) }
    }

    /// The token that long work must poll.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Books memory for one sample from now on, until [`Workspace::end_keeping`]. Waits for `allotment` bytes first.
    pub fn begin(&mut self, mut working: Working, allotment: u64) -> Result<(), NoMemory> {
        self.memory_wait = working.grant(allotment, &self.cancel)?;
        self.working = Some(working);
        Ok(())
    }

    /// Returns the memory of the sample, except for `kept` bytes that now belong to its batch. Returns how long the sample waited
    /// for memory.
    pub fn end_keeping(&mut self, kept: usize) -> Duration {
        if let Some(working) = self.working.take() {
            working.end_keeping(kept as u64);
        }
        self.memory_wait
    }

    /// Waits until the budget has room for `bytes`. The caller allocates the memory itself.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), NoMemory> {
        match &mut self.working {
            Some(working) => {
                self.memory_wait += working.reserve(bytes as u64, &self.cancel)?;
                Ok(())
            }
            // Without a budget, as in tests and tools, every request is granted.
            None => Ok(self.cancel.check()?),
        }
    }

    /// `len` bytes of unspecified content. Waits until the budget has room for them.
    pub fn buffer(&mut self, len: usize) -> Result<Buffer, NoMemory> {
        self.reserve(len)?;
        Buffer::reusing(self.spare_memory(len), len).ok_or(NoMemory::Exhausted { bytes: len as u64 })
    }

    /// Memory to grow into: the smallest spare buffer that holds `len`, else the largest, else a new one.
    pub(crate) fn spare_memory(&mut self, len: usize) -> Vec<u8> {
        // `false` sorts before `true`: buffers that are large enough come first, the tightest fit before all.
        let rank = |bytes: &Vec<u8>| (bytes.len() < len, bytes.len().abs_diff(len));
        let best = (0..self.spare.len()).min_by_key(|&number| rank(&self.spare[number]));
        best.map(|number| self.spare.swap_remove(number)).unwrap_or_default()
    }

    /// Takes memory back for reuse.
    pub fn recycle(&mut self, buffer: Buffer) {
        let bytes = buffer.into_inner();
        let kept: usize = self.spare.iter().map(Vec::capacity).sum();
        let has_room = self.spare.len() < SPARE_BUFFERS && kept + bytes.capacity() <= self.spare_limit;
        if bytes.capacity() > 0 && has_room {
            self.spare.push(bytes);
        }
    }
}
