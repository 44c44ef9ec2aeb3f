//! One production for many jobs.
//!
//! The data is divided into segments of fixed membership ([`feedline_order::Segments`]), each produced in rounds, in memory that
//! all jobs read. A job boards at any moment, gets each segment once in an epoch of its own, and never the same round of one
//! twice; no job waits for another.
//!
//! - `ring.rs` decides which segments are produced, who gets them and which give way; nothing runs there
//! - `content.rs` is what is in a segment, and what a job waits for that waits for it
//! - `pace.rs` is how fast a job reads, and so when it will wait
//! - `run.rs` is the ring with an engine that produces

mod content;
mod pace;
mod ring;
mod run;

pub use content::{BadSlot, Provenance, SegmentContent};
pub use ring::{JobId, Leased};
pub use run::{Carousel, CarouselSnapshot, Memory};
