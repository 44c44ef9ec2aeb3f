//! What can be wrong with a picture.
//!
//! Every variant carries the facts. Nothing here knows the sample or file of the bytes: the caller adds that.

use crate::format::Format;

/// Why bytes did not become pixels, or pixels did not become bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// There are no bytes.
    #[error("the file is empty")]
    Empty,
    /// The first bytes belong to no known format.
    #[error("not a JPEG, PNG, WebP, TIFF, BMP, GIF or PNM file: it begins with bytes {first_bytes:02x?}")]
    UnknownFormat {
        /// At most eight of them.
        first_bytes: Vec<u8>,
    },
    /// The header claims more pixels than the caller allows. Detected before memory is allocated.
    #[error("{width} x {height} pixels are more than the limit of {limit}; raise max_pixels if you trust the file")]
    TooManyPixels {
        /// As stored in the header.
        width: u32,
        /// As stored in the header.
        height: u32,
        /// The caller's `max_pixels`.
        limit: u64,
    },
    /// The data end too early.
    #[error("{format} data end too early: {reason}")]
    Truncated {
        /// What the first bytes say.
        format: Format,
        /// In the words of the decoder.
        reason: String,
    },
    /// The data contradict the format.
    #[error("{format} data are damaged: {reason}")]
    Damaged {
        /// What the first bytes say.
        format: Format,
        /// In the words of the decoder.
        reason: String,
    },
    /// The data may be valid, but this crate does not read them.
    #[error("{format} of this kind is not supported: {reason}")]
    Unsupported {
        /// What the first bytes say.
        format: Format,
        /// What is not supported.
        reason: String,
    },
    /// A mask was requested, but the picture has more than one channel.
    #[error("a mask needs one channel, but this {format} contains {found}; store masks as grey or palette PNG")]
    NotAMask {
        /// What the first bytes say.
        format: Format,
        /// What the picture holds instead.
        found: &'static str,
    },
    /// The caller's `cancel` returned true.
    #[error("cancelled")]
    Cancelled,
    /// The index of a file is damaged, or belongs to another file. The file itself can be decoded without it.
    #[error(transparent)]
    Index(#[from] BadIndex),
    /// A trimmed picture is damaged, or does not contain the requested part. Its original file may be intact.
    #[error(transparent)]
    Trimmed(#[from] BadTrimmed),
    /// The allocator refused.
    #[error("no memory for {bytes} bytes of pixels")]
    OutOfMemory {
        /// The size of the refused allocation.
        bytes: u64,
    },
    /// Sizes given by the caller contradict each other, or cannot be encoded.
    #[error("cannot use {width} x {height} pixels of {channels} channels: {reason}")]
    Shape {
        /// As given.
        width: u32,
        /// As given.
        height: u32,
        /// As given.
        channels: u8,
        /// Which rule is broken.
        reason: &'static str,
    },
}

impl CodecError {
    /// Whether it is about the bytes, not about the request.
    pub fn is_about_data(&self) -> bool {
        matches!(
            self,
            Self::Index(_)
                | Self::Trimmed(_)
                | Self::Truncated { .. }
                | Self::Damaged { .. }
                | Self::Unsupported { .. }
        )
    }

    pub(crate) fn damaged(format: Format, reason: impl Into<String>) -> Self {
        Self::Damaged { format, reason: reason.into() }
    }

    pub(crate) fn truncated(format: Format, reason: impl Into<String>) -> Self {
        Self::Truncated { format, reason: reason.into() }
    }

    pub(crate) fn unsupported(format: Format, reason: impl Into<String>) -> Self {
        Self::Unsupported { format, reason: reason.into() }
    }
}

/// Why an index cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the seek index is not valid: {0}")]
pub struct BadIndex(pub(crate) &'static str);

impl BadIndex {
    /// The index belongs to another version of the file.
    pub fn of_part() -> Self {
        Self("it does not match the file any more")
    }

    /// The index belongs to another picture than the crop.
    pub(crate) fn of_crop() -> Self {
        Self("the crop is not inside the picture")
    }
}

/// Why a trimmed picture cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trimmed picture is not valid: {0}")]
pub struct BadTrimmed(pub(crate) &'static str);
