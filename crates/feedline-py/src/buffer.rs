//! Resources of Python that the engine uses: the memory of a `NumPy` array, from which it copies single samples, sockets, and the
//! state of Python's random number generator.
//!
//! The unsafe code of this crate is here. It relies on:
//!
//! - **B1** `owner` keeps the array alive, and with it `len` readable bytes at `address`: the caller in `python/feedline`
//!   passes a C-contiguous array's own address and size, and `NumPy` refuses to resize an array that others refer to.
//! - **B2** A socket number that `python/feedline` passes was detached from its Python object (`socket.detach`), so that it
//!   is open and nobody else closes it.
//! - **B3** The state of a Mersenne twister that `python/feedline` passes is that of Python's own generator, which lives as long as
//!   the process: `seeding.py` has compared the memory with the state that the generator reports, and uses this only where the
//!   interpreter has a global lock. The lock is held, so nobody draws from it.

use std::os::fd::{FromRawFd as _, RawFd};
use std::os::unix::net::UnixStream;

use feedline_data::source::ArrayMemory;
use feedline_order::random::mix;
use pyo3::prelude::*;

/// The memory of an array that Python owns.
#[derive(Debug)]
pub(crate) struct BorrowedArray {
    #[expect(dead_code, reason = "held, not read: B1")]
    owner: Py<PyAny>,
    address: usize,
    len: usize,
}

impl BorrowedArray {
    /// The `len` bytes at `address`, which `owner` keeps alive.
    pub(crate) fn new(owner: Py<PyAny>, address: usize, len: usize) -> Self {
        Self { owner, address, len }
    }
}

impl ArrayMemory for BorrowedArray {
    fn copy_to(&self, offset: usize, target: &mut [u8]) {
        let end = offset.checked_add(target.len());
        assert!(end.is_some_and(|end| end <= self.len), "a sample lies inside its array");
        let source = (self.address + offset) as *const u8;
        // SAFETY: B1 and the assertion keep the bytes readable; `target` is Rust memory that Python cannot refer to yet.
        // A user who writes to the array at the same time gets a mixture of old and new bytes, as with any array.
        unsafe { feedline_memory::copy_streaming(source, target) }
    }
}

/// Takes over sockets that Python has detached.
pub(crate) fn adopt_sockets(sockets: Vec<RawFd>) -> Vec<UnixStream> {
    // SAFETY: B2 makes this the only owner.
    let adopt = |socket| unsafe { UnixStream::from_raw_fd(socket) };
    sockets.into_iter().map(adopt).collect()
}

/// Words of a Mersenne twister's state.
const TWISTER_WORDS: usize = 624;

/// A generator of Python's `random`, as `CPython` keeps it.
#[repr(C)]
struct Twister {
    position: i32,
    words: [u32; TWISTER_WORDS],
}

/// Seeds the Mersenne twister at `address`. All its words are drawn from the seed.
pub(crate) fn seed_twister(_attached: Python<'_>, address: usize, seed: u64) {
    let twister = address as *mut Twister;
    // SAFETY: B3; the layout is that of the memory that was compared.
    let twister = unsafe { &mut *twister };
    // The next number computes new words from these.
    twister.position = TWISTER_WORDS as i32;
    twister.words = twister_words(seed);
}

/// The state that a seed stands for: the numbers of `SplitMix64`, two words each.
pub(crate) fn twister_words(seed: u64) -> [u32; TWISTER_WORDS] {
    let mut words = [0; TWISTER_WORDS];
    for (number, pair) in words.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let bits = mix(seed.wrapping_add(number as u64));
        *pair = [bits as u32, (bits >> 32) as u32];
    }
    words
}
