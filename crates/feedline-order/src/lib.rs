//! Decides which sample comes next.
//!
//! In: a seed, an epoch, a position. Out: a [`SampleId`] and its [`Occurrence`]. Nothing here reads data or the clock, so any
//! position can be computed on any machine. To resume means to call again with a later position.
//!
//! Always true: within one epoch, all ranks together visit each sample exactly once (law 2). With a sampler they visit its
//! sequence, repeats included.
#![forbid(unsafe_code)]

mod blocks;
mod epoch_path;
mod ids;
mod interleave;
mod missing;
mod permutation;
mod planned;
mod quality;
pub mod random;
mod reservoir;
mod sampler;
mod segments;
mod sequence;
mod share;
mod tally;

pub use blocks::{Block, Blocks};
pub use epoch_path::{EpochPath, Remaining};
pub use ids::{
    Epoch, Occurrence, Ordinal, Position, Rank, ReservoirTurn, SampleId, SampleRequest, Seed, ShareIndex, Turn,
    WalkStep,
};
pub use missing::Missing;
pub use permutation::Permutation;
pub use planned::planned_order;
pub use quality::{Distances, Division, Labels, Quality, neighbour_curve};
pub use random::Draw;
pub use reservoir::{Reservoir, ReservoirEpoch};
pub use sampler::Sampler;
pub use segments::Segments;
pub use sequence::{EpochSequence, SamplerError, Sequence, Visit};
pub use share::{Place, Share};
pub use tally::{OrderReport, SLOW, Tally};
