//! The places of the bits that are set in a word, found without a branch that depends on them.
//!
//! To refine a block, each symbol needs the place of the n-th zero coefficient from here. A loop over bits would end
//! after another number of steps each time, which processors cannot predict. This list costs eight look-ups per block.

#![expect(clippy::inline_always, reason = "only so is the list made where it is used, and not copied")]

/// The places in ascending order.
pub(super) struct ZeroPlaces {
    /// At least 15 places after the last one are [`NONE`].
    places: [u8; 96],
    len: u32,
}

const NONE: u8 = 0xff;

/// For each byte, the places of its bits that are set.
static IN_BYTE: [([u8; 8], u8); 256] = {
    let mut all = [([0; 8], 0); 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                all[byte].0[all[byte].1 as usize] = bit;
                all[byte].1 += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    all
};

impl Default for ZeroPlaces {
    #[inline(always)]
    fn default() -> Self {
        Self { places: [NONE; 96], len: 0 }
    }
}

impl ZeroPlaces {
    /// Finds the places of `word` below `count`, 1 to 64. Begins with no places.
    #[inline(always)]
    pub(super) fn find(&mut self, word: u64, count: u32) {
        let word = word & u64::MAX >> (64 - count);
        let mut len = 0;
        for byte in 0..count.div_ceil(8) {
            let (in_byte, found) = IN_BYTE[(word >> (8 * byte) & 0xff) as usize];
            let all = u64::from_le_bytes(in_byte) + 0x0808_0808_0808_0808 * u64::from(byte);
            // Bytes after the last place are overwritten next.
            self.places[len..len + 8].copy_from_slice(&all.to_le_bytes());
            len += usize::from(found);
        }
        self.places[len..len + 16].fill(NONE);
        self.len = len as u32;
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// A place. `None` if there are fewer.
    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> Option<u32> {
        let place = *self.places.get(number as usize)?;
        (place != NONE).then_some(place.into())
    }
}
