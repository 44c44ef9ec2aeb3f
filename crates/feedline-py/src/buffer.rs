//! Memory of a `NumPy` array from which the engine copies single samples. The array as a whole is not copied.
//!
//! The unsafe code of this crate is here. It relies on:
//!
//! - **B1** `owner` keeps the array alive, and with it `len` readable bytes at `address`: the caller in `python/feedline`
//!   passes a C-contiguous array's own address and size, and `NumPy` refuses to resize an array that others refer to.

use feedline_data::source::ArrayMemory;
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
