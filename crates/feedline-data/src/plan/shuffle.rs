//! The shuffle of a plan: none, full, or through a reservoir that is filled in sequence.

use std::fmt;
use std::sync::Arc;

use feedline_order::{Blocks, Rank, Reservoir, Seed, Sequence};
use serde::{Deserialize, Serialize};

use super::{ByteSize, PlanError};
use crate::source::Source;

/// The default size of the reservoir: a fraction of a rank's samples, limited in bytes.
const DEFAULT_SHARE: f64 = 0.1;
const DEFAULT_BYTES: u64 = 2_000_000_000;
/// The default number of readers.
const DEFAULT_READERS: u32 = 4;
const MAX_READERS: u32 = 4096;
/// The default block size. At 150 MB/s a disk loses 2 % of its time to a seek of 8 ms per block.
const DEFAULT_BLOCK: ByteSize = ByteSize(64_000_000);

/// How samples are shuffled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub enum Shuffle {
    /// No shuffle.
    #[default]
    Never,
    /// A permutation of all samples, different in each epoch.
    Full,
    /// Draws from a reservoir that readers fill in sequence, different in each epoch.
    Reservoir(ReservoirConfig),
}

/// The settings of a reservoir.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReservoirConfig {
    /// Its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<ReservoirSize>,
    /// Number of readers that fill it. Each reads a part of its own.
    pub readers: u32,
    /// The size of the blocks that are read in sequence.
    pub block: ByteSize,
}

impl Default for ReservoirConfig {
    fn default() -> Self {
        Self { size: None, readers: DEFAULT_READERS, block: DEFAULT_BLOCK }
    }
}

/// Samples in the reservoir of each rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "size is a number of samples, or a part of a rank's samples such as 0.1")]
pub enum ReservoirSize {
    /// A number of samples.
    Samples(u64),
    /// A fraction of the rank's samples in an epoch.
    Share(f64),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "shuffle is true, false or { kind = \"reservoir\", size = 0.1, readers = 4 }")]
enum Form {
    Truth(bool),
    Table(Table),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Table {
    Reservoir(ReservoirConfig),
}

impl From<Form> for Shuffle {
    fn from(form: Form) -> Self {
        match form {
            Form::Truth(false) => Self::Never,
            Form::Truth(true) => Self::Full,
            Form::Table(Table::Reservoir(config)) => Self::Reservoir(config),
        }
    }
}

impl From<Shuffle> for Form {
    fn from(shuffle: Shuffle) -> Self {
        match shuffle {
            Shuffle::Never => Self::Truth(false),
            Shuffle::Full => Self::Truth(true),
            Shuffle::Reservoir(config) => Self::Table(Table::Reservoir(config)),
        }
    }
}

impl fmt::Display for Shuffle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("false"),
            Self::Full => f.write_str("true"),
            Self::Reservoir(ReservoirConfig { size, readers, block }) => {
                write!(f, "reservoir of {size:?}, {readers} readers of blocks of {} bytes", block.0)
            }
        }
    }
}

impl Shuffle {
    /// The order of a source's samples for all ranks.
    pub(super) fn sequence(&self, seed: Seed, source: &dyn Source, rank: Rank) -> Result<Sequence, PlanError> {
        Ok(match self {
            Self::Never => Sequence::in_order(seed, source.len()),
            Self::Full => Sequence::shuffled(seed, source.len()),
            Self::Reservoir(config) => Sequence::through(seed, config.reservoir(source, rank.world)?),
        })
    }
}

impl ReservoirConfig {
    fn reservoir(&self, source: &dyn Source, world: u32) -> Result<Reservoir, PlanError> {
        let refuse = |setting, value: String, allowed| Err(PlanError::Setting { setting, value, allowed });
        if self.readers == 0 || self.readers > MAX_READERS {
            return refuse("readers", self.readers.to_string(), "a reservoir has 1 to 4096");
        }
        if self.block.0 == 0 {
            return refuse("block", "0".to_owned(), "it has to be at least a byte, e.g. \"64MB\"");
        }
        let Some(stored) = source.blocks() else { return Err(PlanError::NoBlocks) };
        let blocks = Blocks::cut(&stored, self.block.0);
        // The largest number of samples that a rank can get.
        let most = blocks.samples().div_ceil(u64::from(world));
        // `libm`, so that every machine rounds alike: the size decides the order.
        let share = |part: f64| libm::ceil(most as f64 * part) as u64;
        let size = match self.size {
            // A tenth of the samples, or as many as fit into 2 GB.
            None => share(DEFAULT_SHARE).min(DEFAULT_BYTES / blocks.sample_bytes()),
            Some(ReservoirSize::Samples(samples)) if samples > 0 => samples,
            Some(ReservoirSize::Share(part)) if part > 0.0 && part <= 1.0 => share(part),
            Some(ReservoirSize::Samples(samples)) => {
                return refuse("size", samples.to_string(), "a reservoir has at least one sample");
            }
            Some(ReservoirSize::Share(part)) => {
                return refuse(
                    "size",
                    part.to_string(),
                    "it is a number of samples, or a part above 0 and at most 1.0",
                );
            }
        };
        Ok(Reservoir { blocks: Arc::new(blocks), world, readers: self.readers, size: size.max(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Result<Shuffle, toml::de::Error> {
        #[derive(Deserialize)]
        struct Settings {
            shuffle: Shuffle,
        }
        toml::from_str::<Settings>(&format!("shuffle = {value}")).map(|settings| settings.shuffle)
    }

    #[test]
    fn a_plan_says_true_false_or_a_reservoir_and_is_written_as_it_was_read() {
        for value in ["true", "false", "{ kind = \"reservoir\", size = 7, readers = 2 }", "{ kind = \"reservoir\" }"] {
            let shuffle = parsed(value).unwrap();
            let written = toml::Value::try_from(shuffle.clone()).unwrap().to_string();
            assert_eq!(parsed(&written).unwrap(), shuffle, "{value}: {written}");
        }
        let share = parsed("{ kind = \"reservoir\", size = 0.25, block = \"1MB\" }").unwrap();
        let config = ReservoirConfig {
            size: Some(ReservoirSize::Share(0.25)),
            readers: DEFAULT_READERS,
            block: ByteSize(1_000_000),
        };
        assert_eq!(share, Shuffle::Reservoir(config));
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for value in ["1", "\"yes\"", "{ kind = \"pool\" }", "{ kind = \"reservoir\", sise = 3 }"] {
            assert!(parsed(value).is_err(), "{value}");
        }
    }
}
