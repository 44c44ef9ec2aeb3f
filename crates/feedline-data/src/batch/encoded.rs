//! The encoded bytes of a field, and which part of their file they are.

use std::fmt::Debug;

use feedline_codec::{NotSeekable, SeekIndex};

use super::Memory;

/// The encoded bytes of a file, or of the part that a crop needs.
#[derive(Debug)]
pub struct Encoded<'s> {
    /// The bytes.
    pub memory: Memory<'s>,
    /// Which part of the file they are.
    pub content: EncodedContent,
}

/// Which part of a file encoded bytes are.
#[derive(Debug)]
pub enum EncodedContent {
    /// The whole file.
    Whole {
        /// Its seek index, if known.
        index: Option<SeekIndex>,
    },
    /// The whole file, whose seek index is wanted. The decoder builds it while it decodes a crop.
    Unindexed(Box<dyn IndexKeeper>),
    /// A range of the file.
    Part {
        /// The start of the range in the file.
        offset: u64,
        /// The seek index of the file.
        index: SeekIndex,
    },
    /// The part that a crop needs, cut out by the seek index.
    Trimmed,
}

/// Saves the seek index of a file for later epochs.
pub trait IndexKeeper: Send + Debug {
    /// Takes the index, or the reason why the file cannot have one.
    fn keep(&self, built: Result<&SeekIndex, NotSeekable>);
}

impl Encoded<'_> {
    /// Whether this is the whole file.
    pub fn is_whole(&self) -> bool {
        matches!(self.content, EncodedContent::Whole { .. } | EncodedContent::Unindexed(_))
    }

    /// Builds the seek index if it is wanted.
    pub fn build_index(&mut self) {
        if let EncodedContent::Unindexed(keeper) = &self.content {
            let built = SeekIndex::build(&self.memory);
            keeper.keep(built.as_ref().map_err(|reason| *reason));
            self.content = EncodedContent::Whole { index: built.ok() };
        }
    }
}

impl<'s> From<Memory<'s>> for Encoded<'s> {
    fn from(memory: Memory<'s>) -> Self {
        Self { memory, content: EncodedContent::Whole { index: None } }
    }
}
