//! The first ops of a plan, as a storage server receives them.

use xxhash_rust::xxh3::xxh3_128;

use super::Form;

/// The first ops of a plan, for a storage server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The document.
    pub text: String,
    /// A hash of the document and the listing, by which requests refer to it.
    pub number: u128,
    /// A hash of the samples' names and of shards. Both machines must agree on it.
    pub listing: u128,
    /// The forms in which samples can be requested.
    pub forms: Vec<Form>,
}

impl Prefix {
    /// The number of a document over the samples of `listing`.
    pub fn number_of(text: &str, listing: u128) -> u128 {
        xxh3_128(&[text.as_bytes(), &listing.to_le_bytes()].concat())
    }
}
