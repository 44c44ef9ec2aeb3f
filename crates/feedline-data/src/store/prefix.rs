//! The first ops of a plan, as another machine gets them.

use xxhash_rust::xxh3::xxh3_128;

use super::Form;

/// The first ops of a plan, for another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The document.
    pub text: String,
    /// A hash of it and of the listing, by which it is asked for.
    pub number: u128,
    /// The hash of the samples' names, and of shards, that both machines have to agree on.
    pub listing: u128,
    /// The forms that samples can be had in.
    pub forms: Vec<Form>,
}

impl Prefix {
    /// The number of a document over samples that are known by `listing`.
    pub fn number_of(text: &str, listing: u128) -> u128 {
        xxh3_128(&[text.as_bytes(), &listing.to_le_bytes()].concat())
    }
}
