//! Where the coefficients of a picture's MCUs come from.

/// Gives the MCUs of a picture, one after the other.
pub(crate) trait McuSource {
    /// Blocks in an MCU.
    fn blocks_in_each(&self) -> usize;

    /// Reads the next MCU into zeroed blocks. `None` if there is none, or if the data are invalid.
    fn next(&mut self, coefficients: &mut [[i16; 64]]) -> Option<()>;
}
