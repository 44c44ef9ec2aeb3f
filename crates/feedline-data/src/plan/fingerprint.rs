//! Hashes of a plan: of its values, its order and its execution.

use std::fmt;

use feedline_order::Sequence;
use xxhash_rust::xxh3::xxh3_128;

use super::{RunConfig, Settings};
use crate::op::PlannedOp;

/// A hash of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);

impl Fingerprint {
    fn of(parts: &[String]) -> Self {
        // Joined by zero bytes, which no part contains: otherwise different parts could give the same text.
        Self(xxh3_128(parts.join("\u{0}").as_bytes()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The fingerprints of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprints {
    /// A hash of the names of the source's samples.
    pub listing: Fingerprint,
    /// A hash of listing, ops and codec: everything a sample's bytes depend on besides seed, epoch, id and occurrence.
    pub values: Fingerprint,
    /// A hash of values, seed, shuffle and sampler. If it is equal, a cursor means the same samples.
    pub order: Fingerprint,
    /// A hash of the settings that decide how delivery differs from strict order, and of the file of costs or arrivals.
    pub delivery: Fingerprint,
    /// A hash of `order`, all settings and all options of execution.
    pub run: Fingerprint,
}

impl Fingerprints {
    pub(super) fn new(
        listing: u128,
        ops: &[PlannedOp],
        settings: &Settings,
        config: &RunConfig,
        sequence: &Sequence,
        file: Option<u128>,
    ) -> Self {
        let listing = Fingerprint(listing);
        let mut parts = vec![listing.to_string(), feedline_codec::VERSION.to_owned()];
        parts.extend(ops.iter().map(PlannedOp::fingerprint_text));
        let values = Fingerprint::of(&parts);
        let sampler = serde_json::to_string(&settings.sampler).expect("a sampler is plain data");
        // The listing does not contain the division into shards, which decides a reservoir's order.
        let blocks = sequence.reservoir().map(|rule| format!(" {:032x}", rule.blocks.hash())).unwrap_or_default();
        let shuffle = format!("{}{blocks}", settings.shuffle);
        let order = Fingerprint::of(&[values.to_string(), settings.seed.0.to_string(), shuffle, sampler]);
        // The hash of the costs or of the replayed log is part of it, because they decide the order.
        let delivery = Fingerprint::of(&[format!("{:?} {:?} {file:?}", settings.order, settings.max_displacement)]);
        let run = Fingerprint::of(&[order.to_string(), format!("{settings:?}"), format!("{config:?}")]);
        Self { listing, values, order, delivery, run }
    }
}
