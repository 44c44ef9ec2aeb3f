//! Arguments of the commands that generate, pack, index or draw data.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use feedline_data::plan::ByteSize;
use feedline_data::store::escaped_path;

use super::{OUTPUT, RESOURCES, parse_bytes};

/// Arguments of `feedline show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  feedline show plan.toml samples.png
  feedline show plan.toml samples.png --samples 64 --epoch 3")]
pub(crate) struct ShowArguments {
    /// The plan, a TOML file. Relative paths in it start at the current folder.
    pub plan: PathBuf,
    /// The PNG file to write.
    pub out: PathBuf,
    /// Number of samples to draw.
    #[arg(long, help_heading = "What to draw", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub samples: u16,
    /// Epoch that the samples come from.
    #[arg(long, help_heading = "What to draw", default_value_t = 0)]
    pub epoch: u64,
}

/// Arguments of `feedline index`.
#[derive(Args, Debug)]
#[command(after_help = "\
A seek index lets the loader read and decode only the part of a JPEG that a crop needs. Without this command the loader
builds the indexes in the first epoch. They are kept in the cache folder (FEEDLINE_CACHE, else ~/.cache/feedline). The
pictures do not change.

Examples:
  feedline index data/train
  feedline index 'shards/*.tar'
  feedline index plan.toml --workers 8")]
pub(crate) struct IndexArguments {
    /// A folder of pictures, shards ('shards/*.tar'), or a plan with such a source.
    #[arg(value_parser = path_text())]
    pub src: String,
    /// Number of threads [default: one per core].
    #[arg(long, help_heading = RESOURCES, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

/// Arguments of `feedline synth`.
#[derive(Args, Debug)]
#[command(after_help = "\
The same arguments give the same files, on any machine and with any number of workers.

Examples:
  feedline synth pictures --images 1000
  feedline synth pictures --images 50000 --classes 100 --size 256-640 --seed 7
  feedline synth large --images 200 --size 2000-4000 --quality 92")]
pub(crate) struct SynthArguments {
    /// The folder to fill. Each class gets a sub-folder.
    pub dir: PathBuf,
    /// Number of pictures.
    #[arg(long, help_heading = "Pictures", value_parser = clap::value_parser!(u64).range(1..))]
    pub images: u64,
    /// Number of classes.
    #[arg(long, help_heading = "Pictures", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub classes: u32,
    /// Shortest and longest side, in pixels.
    #[arg(long, help_heading = "Pictures", default_value = "256-640", value_name = "MIN-MAX", value_parser = parse_sides)]
    pub size: (u32, u32),
    /// JPEG quality.
    #[arg(long, help_heading = "Pictures", default_value_t = 88, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub quality: u8,
    /// Seed of all randomness.
    #[arg(long, help_heading = "Pictures", default_value_t = 0)]
    pub seed: u64,
    /// Number of threads [default: one per core].
    #[arg(long, help_heading = RESOURCES, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Write into a folder that is not empty, and replace files of the same name.
    #[arg(long, help_heading = OUTPUT)]
    pub force: bool,
}

/// Arguments of `feedline pack`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shards are ordinary tar files in WebDataset's layout: the members of a sample share a key, which is the path below SRC
without its extension; the class is in KEY.cls. The index of each shard is stored beside it, so that fl.tar(\"DST/*.tar\")
opens at once. Dots inside a name become underscores in the key, because WebDataset splits names at dots. A second picture
of the same name gets a key of its own. The summary counts both cases.

A picture is damaged if it cannot be decoded. The command checks the structure of baseline JPEGs and decodes all other
pictures. Files of other kinds are not checked. A run that was stopped or killed continues after its last finished shard.

Examples:
  feedline pack data/train shards
  feedline pack data/train shards --shard-size 1GB --damaged skip
  feedline pack data/train small --max-side 512
  feedline pack data/train pixels --pixels --max-side 256
  feedline pack 'shards/*.tar' larger --shard-size 4GB
  feedline pack plan.toml shards --json | jq .mb_per_second")]
pub(crate) struct PackArguments {
    /// A folder of pictures, tar shards (a folder, a path or a pattern), or a plan whose source is packed.
    #[arg(value_parser = path_text())]
    pub src: String,
    /// The folder for the shards: new, empty, or one that this command began to fill.
    pub dst: PathBuf,
    /// Largest size of a shard.
    #[arg(long, help_heading = "Shards", default_value = "256MB", value_name = "BYTES", value_parser = parse_bytes)]
    pub shard_size: ByteSize,
    /// Store files byte for byte (the default).
    #[arg(long, help_heading = "Content", conflicts_with = "pixels")]
    pub as_is: bool,
    /// Store decoded, upright pixels: PPM, or PGM for masks and grey. Larger, but nothing is left to decode.
    #[arg(long, help_heading = "Content")]
    pub pixels: bool,
    /// Shrink pictures whose longer side exceeds N pixels. Without --pixels only these are encoded again: JPEG of quality 92,
    /// masks as PNG.
    #[arg(long, help_heading = "Content", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_500))]
    pub max_side: Option<u32>,
    /// What to do with pictures that cannot be decoded. They are reported in both cases.
    #[arg(long, help_heading = "Content", value_enum, default_value_t = DamagedArgument::Keep)]
    pub damaged: DamagedArgument,
    /// Number of threads [default: one per core].
    #[arg(long, help_heading = RESOURCES, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

/// Treatment of pictures that cannot be decoded.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DamagedArgument {
    /// Store the file as it is.
    Keep,
    /// Leave out its sample.
    Skip,
}

/// Arguments of `feedline demo`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  feedline demo
  feedline demo --images 2000 --keep demo-data")]
pub(crate) struct DemoArguments {
    /// Number of pictures.
    #[arg(long, help_heading = "Pictures", default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..))]
    pub images: u64,
    /// Keep pictures and plans in this folder, which must be empty or new.
    #[arg(long, help_heading = OUTPUT, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// Parses a path as text. Bytes that are not UTF-8 are escaped.
fn path_text() -> impl TypedValueParser<Value = String> {
    PathBufValueParser::new().map(|path| escaped_path(&path))
}

fn parse_sides(text: &str) -> Result<(u32, u32), String> {
    const ALLOWED: std::ops::RangeInclusive<u32> = 16..=16_384;
    // A single number means that all sides have this length.
    let (shortest, longest) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u32>().map_err(|error| format!("{error}; write e.g. 256-640"));
    let (shortest, longest) = (number(shortest)?, number(longest)?);
    if !ALLOWED.contains(&shortest) || !ALLOWED.contains(&longest) || shortest > longest {
        return Err(format!("sides must be between {} and {}, the shortest first", ALLOWED.start(), ALLOWED.end()));
    }
    Ok((shortest, longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_a_range_or_one_number() {
        assert_eq!(parse_sides("256-640"), Ok((256, 640)));
        assert_eq!(parse_sides("64"), Ok((64, 64)));
        for wrong in ["640-256", "0-10", "a-b", "1-", "-5"] {
            assert!(parse_sides(wrong).is_err(), "{wrong}");
        }
    }
}
