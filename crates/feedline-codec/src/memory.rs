//! Memory for pixels: a refused allocation is an error, and work memory is reused.

use std::cell::Cell;

use crate::error::CodecError;

/// Makes `memory` at least `bytes` long and returns its first `bytes`. Only new memory is zeroed.
pub(crate) fn grow(memory: &mut Vec<u8>, bytes: u64) -> Result<&mut [u8], CodecError> {
    let refused = CodecError::OutOfMemory { bytes };
    let Ok(len) = usize::try_from(bytes) else { return Err(refused) };
    if memory.len() < len {
        if memory.try_reserve_exact(len - memory.len()).is_err() {
            return Err(refused);
        }
        // Memory that was used before keeps its old bytes: decoders overwrite them.
        memory.resize(len, 0);
    }
    Ok(&mut memory[..len])
}

/// Upper limit of work memory that a thread keeps. More is freed after a large picture.
const MAX_SCRATCH: usize = 1 << 20;

/// Lends this thread's work memory, which keeps its size from picture to picture.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    thread_local! {
        static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    SCRATCH.with(|cell| {
        // Taken, not borrowed: a nested call finds an empty vector instead of panicking.
        let mut scratch = cell.take();
        let result = work(&mut scratch);
        if scratch.capacity() <= MAX_SCRATCH {
            cell.set(scratch);
        }
        result
    })
}
