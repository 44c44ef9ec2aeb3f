//! Compresses samples for the network.
//!
//! In: bytes for a peer, or packed bytes from a peer that may be hostile. Always true: unpacking never produces more than was
//! announced, nor more than a sample may have.

use std::borrow::Cow;

use super::Packing;

/// Upper limit of an unpacked sample.
const MAX_BYTES: usize = 1 << 30;
/// LZ4 expands a byte to at most this many.
const LZ4_RATIO: usize = 255;
/// Zstandard expands four bytes to at most one block of 128 KB.
const ZSTD_RATIO: usize = 128 * 1024 / 4;
/// Lengths up to this are accepted without comparing them with the packed bytes.
const SHORT_BYTES: usize = 1 << 17;
/// A level of Zstandard that keeps up with a link.
const LEVEL: i32 = 1;

/// Why bytes cannot be unpacked.
#[derive(Debug, thiserror::Error)]
#[error("packed bytes cannot be unpacked: {0}")]
pub struct UnpackError(String);

impl Packing {
    /// Packs bytes, unless that makes them longer. Returns them and the packing used, which is also appended to them.
    pub fn pack(self, bytes: Vec<u8>) -> (Vec<u8>, Self) {
        // If there is no memory for packing, the bytes stay unpacked.
        let packed = match self {
            Self::Plain => None,
            Self::Lz4 => lz4(&bytes),
            Self::Zstd => compressed(zstd::zstd_safe::compress_bound(bytes.len()), |buffer| {
                zstd::bulk::compress_to_buffer(&bytes, buffer, LEVEL).ok()
            }),
        };
        let packed = packed.unwrap_or_default();
        // JPEG files hardly shrink. Then they are sent as they are.
        let is_packed = !packed.is_empty() && packed.len() < bytes.len();
        let (mut bytes, packing) = if is_packed { (packed, self) } else { (bytes, Self::Plain) };
        // The last byte tells the receiver the packing. It is at the end, so that nothing has to be moved.
        bytes.push(packing as u8);
        (bytes, packing)
    }

    /// The memory that unpacking needs, in bytes.
    pub fn unpacked_bytes(bytes: &[u8]) -> usize {
        match bytes.split_last() {
            Some((&packing, bytes)) if packing == Self::Lz4 as u8 => {
                bytes.first_chunk().map_or(0, |len| u32::from_le_bytes(*len) as usize).min(MAX_BYTES)
            }
            Some((&packing, bytes)) if packing == Self::Zstd as u8 => {
                zstd::bulk::Decompressor::upper_bound(bytes).unwrap_or(0).min(MAX_BYTES)
            }
            _ => 0,
        }
    }

    /// Unpacks bytes.
    pub fn unpack(bytes: &[u8]) -> Result<Cow<'_, [u8]>, UnpackError> {
        let failed = |error: &dyn std::fmt::Display| UnpackError(error.to_string());
        let (&packing, bytes) = bytes.split_last().ok_or_else(|| failed(&"they are cut short"))?;
        // A claimed length above the format's highest ratio is false. No memory is allocated for it.
        let check = |len: Option<usize>, ratio: usize| {
            let most = bytes.len().saturating_mul(ratio).saturating_add(SHORT_BYTES).min(MAX_BYTES);
            len.filter(|&len| len <= most)
                .ok_or_else(|| failed(&"the claimed length is impossible for so few packed bytes"))
        };
        match Self::ALL.into_iter().find(|known| *known as u8 == packing) {
            Some(Self::Plain) => Ok(Cow::Borrowed(bytes)),
            Some(Self::Lz4) => {
                let (len, packed) = bytes.split_first_chunk().ok_or_else(|| failed(&"they are cut short"))?;
                let len = check(Some(u32::from_le_bytes(*len) as usize), LZ4_RATIO)?;
                let mut unpacked = buffer(len).ok_or_else(|| failed(&"there is no memory for them"))?;
                let found = lz4_flex::block::decompress_into(packed, &mut unpacked).map_err(|error| failed(&error))?;
                // The buffer has the claimed length. Fewer bytes mean that the data ended early.
                if found == len { Ok(unpacked.into()) } else { Err(failed(&"they are cut short")) }
            }
            Some(Self::Zstd) => {
                let len = check(zstd::bulk::Decompressor::upper_bound(bytes), ZSTD_RATIO)?;
                let mut unpacked = buffer(len).ok_or_else(|| failed(&"there is no memory for them"))?;
                let found =
                    zstd::bulk::decompress_to_buffer(bytes, &mut unpacked[..]).map_err(|error| failed(&error))?;
                unpacked.truncate(found);
                Ok(unpacked.into())
            }
            None => Err(failed(&format!("packing {packing} is not known"))),
        }
    }
}

/// A buffer for this many bytes. `None` if the system has no memory.
fn buffer(len: usize) -> Option<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len).ok()?;
    buffer.resize(len, 0);
    Some(buffer)
}

/// Runs `pack` on a buffer for `most` bytes and one trailing mark.
fn compressed(most: usize, pack: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Vec<u8>> {
    // The extra byte is for the mark that `pack` appends, so that it does not move the data.
    let mut packed = buffer(most.checked_add(1)?)?;
    let len = pack(&mut packed[..most])?;
    packed.truncate(len);
    Some(packed)
}

/// The length of the bytes, then the bytes packed by LZ4.
fn lz4(bytes: &[u8]) -> Option<Vec<u8>> {
    let len = u32::try_from(bytes.len()).ok()?.to_le_bytes();
    compressed(len.len() + lz4_flex::block::get_maximum_output_size(bytes.len()), |buffer| {
        let (head, rest) = buffer.split_first_chunk_mut()?;
        *head = len;
        Some(head.len() + lz4_flex::block::compress_into(bytes, rest).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn false_lengths_are_refused_and_the_highest_ratio_is_accepted() {
        for len in [0_usize, 1, 100_000, 5_000_000] {
            for packing in Packing::ALL {
                assert_eq!(Packing::unpack(&packing.pack(vec![7; len]).0).unwrap().len(), len);
            }
        }
        let lie = [&(900_u32 << 20).to_le_bytes()[..], &[0; 8], &[Packing::Lz4 as u8]].concat();
        assert!(Packing::unpack(&lie).unwrap_err().to_string().contains("claimed length is impossible"));
    }

    proptest! {
        #[test]
        fn bytes_come_back_and_junk_is_an_error_within_limits(
            bytes in prop::collection::vec(0..4_u8, 0..3000), mut junk in prop::collection::vec(any::<u8>(), 0..99),
        ) {
            for packing in Packing::ALL {
                let (packed, how) = packing.pack(bytes.clone());
                prop_assert!(packed.len() <= bytes.len() + 1, "nothing gets longer");
                prop_assert_eq!(&*Packing::unpack(&packed).unwrap(), &*bytes);
                if how != Packing::Plain {
                    prop_assert!(Packing::unpack(&[&packed[..packed.len() / 2], &[how as u8]].concat()).is_err());
                }
                junk.push(packing as u8);
                prop_assert!(Packing::unpack(&junk).map_or(true, |bytes| bytes.len() <= MAX_BYTES));
            }
            prop_assert!(Packing::unpack(&[&*bytes, &[200]].concat()).is_err());
        }
    }
}
