//! Counters: what each stage did, how long it took, and what the consumer waited for.
//!
//! In: measurements of each sample and op from the engine. Out: a [`Snapshot`]. Ops, sources and stores do not know that they are
//! measured.

mod cores;
mod costs;
mod counter;
mod loading;
mod meters;
mod ops;
mod snapshot;
mod stalls;
mod threads;
mod timeline;
mod traffic;

pub use cores::{CoreMeter, CoreTime, OnCores};
pub use costs::{CostMeter, CostSnapshot};
pub use counter::Counter;
pub(crate) use counter::counts;
#[cfg(feature = "switch-counting")]
pub use counter::switch;
pub use loading::{LoadingMeter, LoadingSnapshot};
pub use meters::{CacheMeter, Metrics, ReadMeter, SeekMeter, Substitute};
pub use ops::{OpMeasurement, OpMeter, OpTotals, Tally};
pub use snapshot::{
    CacheSnapshot, MemorySnapshot, OpSnapshot, QueueSnapshot, ReservoirSnapshot, SeekSnapshot, Snapshot, StoreSnapshot,
    SubstituteSnapshot,
};
pub use stalls::{Phase, StallMeter};
pub use threads::{ThreadMeter, ThreadTotals};
pub(crate) use timeline::DeliveredBatch;
pub use timeline::{BatchLife, Marks, Preparation, Recorder, SampleLife, TimeRange, Timeline};
pub use traffic::{TrafficMeter, TrafficSums};
