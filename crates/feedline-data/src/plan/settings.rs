//! The settings of a plan besides its source and ops. Every field has a default. Unknown keys are errors.

use feedline_order::{Rank, Sampler, Seed};
use serde::{Deserialize, Deserializer, Serialize};

use super::order::Order;
use super::{ByteSize, CacheConfig, Shuffle};
use crate::memory::MachineShare;
use crate::plan::Policy;

/// The settings that decide the stream of batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Samples per batch.
    #[serde(deserialize_with = "whole")]
    pub batch_size: usize,
    /// How samples are shuffled in each epoch.
    #[serde(default)]
    pub shuffle: Shuffle,
    /// A user-defined sequence of samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<Sampler>,
    /// The seed of all randomness.
    #[serde(default, deserialize_with = "seed")]
    pub seed: Seed,
    /// Whether to drop samples that do not fill a batch on every rank.
    #[serde(default)]
    pub drop_last: bool,
    /// The order of delivery.
    #[serde(default)]
    pub order: Order,
    /// How many places a sample may come later than in the sampler's order. Only in planned and arrival order.
    #[serde(default, deserialize_with = "some_whole", skip_serializing_if = "Option::is_none")]
    pub max_displacement: Option<u64>,
    /// A file of measured costs for a planned order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<String>,
    /// The log of a run in arrival order, to be replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// What to do with a bad sample.
    #[serde(default)]
    pub on_error: OnError,
    /// The fields to deliver, in order; all if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// Fields to deliver as lists of arrays, each with its own shape.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ragged: Vec<String>,
}

impl Settings {
    /// Default settings with this batch size.
    pub fn of_batches(batch_size: usize) -> Self {
        Self {
            batch_size,
            shuffle: Shuffle::Never,
            sampler: None,
            seed: Seed(0),
            drop_last: false,
            order: Order::Strict,
            max_displacement: None,
            costs: None,
            replay: None,
            on_error: OnError::Raise,
            fields: None,
            ragged: Vec::new(),
        }
    }
}

/// What to do with a sample that cannot be prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields, expecting = "on_error is \"raise\" or { max_fraction = 0.001 }")]
pub enum OnError {
    /// Raise an error that names it.
    #[default]
    Raise,
    /// Put another sample of the same share in its place, for at most a fraction of an epoch.
    #[serde(untagged)]
    Substitute {
        /// The fraction of a rank's samples that may be substituted in one epoch.
        max_fraction: f64,
    },
}

/// The settings of execution. They change no byte of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// Number of preparer threads.
    pub num_workers: Workers,
    /// Batches to prepare ahead of the consumer. By default as many as memory allows and the costs require.
    #[serde(deserialize_with = "some_whole", skip_serializing_if = "Option::is_none")]
    pub prefetch_batches: Option<usize>,
    /// Upper limit of bytes in flight. By default an eighth of the machine's memory, at most 2 GB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_budget: Option<ByteSize>,
    /// The cache of samples between epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheConfig>,
    /// Whether seek indexes are used, and built where they are missing.
    #[serde(skip_serializing_if = "is_default")]
    pub seek_index: SeekIndexUse,
    /// What a storage server prepares, if samples come from one.
    #[serde(skip_serializing_if = "is_default")]
    pub offload: Policy,
    /// Which sample is prepared next.
    #[serde(skip_serializing_if = "is_default")]
    pub start: Start,
    /// A file to log the samples of each batch in arrival order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival_log: Option<String>,
    /// Whether to use SIMD kernels.
    #[serde(skip_serializing_if = "is_true")]
    pub simd: bool,
    /// The rank of this process. Never written down: a plan describes what all ranks have in common.
    #[serde(skip)]
    pub rank: Rank,
}

/// Reads a whole number. The error names the expected kind of value in plain words.
fn whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<T, D::Error> {
    const EXPECTED: &str = "expected a whole number from 0 on";
    #[derive(Deserialize)]
    // An untagged enum replaces serde's own message ("invalid value: integer `-1`, expected usize") by ours.
    #[serde(untagged, expecting = "expected a whole number from 0 on")]
    enum Whole {
        Number(u64),
    }
    let Whole::Number(number) = Whole::deserialize(deserializer)?;
    T::try_from(number).map_err(|_| serde::de::Error::custom(EXPECTED))
}

fn some_whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<Option<T>, D::Error> {
    whole(deserializer).map(Some)
}

fn seed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Seed, D::Error> {
    whole(deserializer).map(Seed)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_true(value: &bool) -> bool {
    *value
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            num_workers: Workers::Auto,
            prefetch_batches: None,
            memory_budget: None,
            cache: None,
            seek_index: SeekIndexUse::Auto,
            offload: Policy::Auto,
            start: Start::LeastSlack,
            arrival_log: None,
            simd: true,
            rank: Rank::ALONE,
        }
    }
}

/// The use of seek indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeekIndexUse {
    /// Used if a crop follows a decoder. Missing ones are built in the first epoch.
    #[default]
    Auto,
    /// Neither used nor built.
    Never,
}

/// Which sample is prepared next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// The sample with the least slack. A slow sample starts early.
    #[default]
    LeastSlack,
    /// The sample that is needed first.
    FirstCome,
}

/// Number of preparer threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "num_workers is \"auto\" or a whole number")]
pub enum Workers {
    /// As many as needed, starting with one per core that the process may use.
    #[default]
    Auto,
    /// A fixed number.
    #[serde(untagged)]
    Count(usize),
}

impl Workers {
    /// The number of threads that a loader starts with. `share` is its share of the machine.
    pub fn resolve(self, share: &MachineShare) -> usize {
        match self {
            Self::Auto => share.cores(),
            Self::Count(count) => count,
        }
    }

    /// The number of threads. For `Auto`, all cores that the process may use.
    pub fn count(self) -> usize {
        match self {
            Self::Auto => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            Self::Count(count) => count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_expected_values() {
        let on_error = |text: &str| {
            let settings = toml::from_str::<Settings>(&format!("batch_size = 1\non_error = {text}"));
            settings.map(|settings| settings.on_error).map_err(|error| error.message().to_owned())
        };
        assert_eq!(on_error("\"raise\""), Ok(OnError::Raise));
        assert_eq!(on_error("{ max_fraction = 0.5 }"), Ok(OnError::Substitute { max_fraction: 0.5 }));
        for wrong in ["\"skip\"", "1", "{ max_fraction = 0.5, more = 1 }", "{}"] {
            assert_eq!(on_error(wrong).unwrap_err(), "on_error is \"raise\" or { max_fraction = 0.001 }", "{wrong}");
        }
        let workers = |text: &str| {
            let config = toml::from_str::<RunConfig>(&format!("num_workers = {text}"));
            config.map(|config| config.num_workers).map_err(|error| error.message().to_owned())
        };
        assert_eq!((workers("\"auto\""), workers("3")), (Ok(Workers::Auto), Ok(Workers::Count(3))));
        for wrong in ["\"many\"", "-1", "1.5", "{}"] {
            assert_eq!(workers(wrong).unwrap_err(), "num_workers is \"auto\" or a whole number", "{wrong}");
        }
    }
}
