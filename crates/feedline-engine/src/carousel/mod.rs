//! One production of samples for many jobs.
//!
//! The data is divided into segments with fixed members ([`feedline_order::Segments`]). Each segment is produced in rounds, in
//! memory that all jobs read. A job may join at any moment. In each of its epochs it gets every segment once, and never the same
//! round twice. No job waits for another.
//!
//! - `scheduler.rs` decides which segments are produced, which jobs get them and which are dropped; it runs nothing
//! - `content.rs` is the content of a segment, and the cause of a wait for it
//! - `pace.rs` measures how fast a job reads, and predicts when it will wait
//! - `run.rs` connects the scheduler with an engine

mod content;
mod pace;
mod run;
mod scheduler;

pub use content::{BadSlot, Provenance, SegmentContent};
pub use run::{Carousel, CarouselSnapshot, Memory};
pub use scheduler::{JobId, Leased};
