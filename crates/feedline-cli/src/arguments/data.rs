//! Arguments of the commands that make, pack, index or draw data.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use feedline_data::plan::ByteSize;
use feedline_data::store::escaped_path;

use super::parse_bytes;

/// Arguments of `feedline show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  feedline show plan.toml samples.png
  feedline show plan.toml samples.png --samples 64 --epoch 3")]
pub(crate) struct ShowArguments {
    /// The plan; relative paths in it are relative to the current folder.
    pub plan: PathBuf,
    /// The PNG file to write.
    pub out: PathBuf,
    /// Samples to draw.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub samples: u16,
    /// The epoch to take them from.
    #[arg(long, default_value_t = 0)]
    pub epoch: u64,
}

/// Arguments of `feedline index`.
#[derive(Args, Debug)]
#[command(after_help = "\
With its index, only the part of a JPEG that a crop needs is read and decoded. Without this command the indexes are made in
the first epoch. They are kept in the cache folder (FEEDLINE_CACHE, else ~/.cache/feedline); the files stay as they are.

Examples:
  feedline index data/train
  feedline index 'shards/*.tar'
  feedline index plan.toml --workers 8")]
pub(crate) struct IndexArguments {
    /// A folder of pictures, shards ('shards/*.tar'), or a plan, whose source is taken.
    #[arg(value_parser = path_text())]
    pub src: String,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
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
    /// The folder to fill; each class is a sub-folder.
    pub dir: PathBuf,
    /// Pictures to make.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub images: u64,
    /// Classes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub classes: u32,
    /// Shortest and longest side in pixels.
    #[arg(long, default_value = "256-640", value_name = "MIN-MAX", value_parser = parse_sides)]
    pub size: (u32, u32),
    /// JPEG quality.
    #[arg(long, default_value_t = 88, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub quality: u8,
    /// The seed of all randomness.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Write into a folder that is not empty; files of the same name are replaced.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `feedline pack`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shards are ordinary tar files in WebDataset's layout: the members of a sample share a key, which is the path below SRC
without its ending; the class is in KEY.cls. Beside each shard lies its index, so that fl.tar(\"DST/*.tar\") opens at once.
Dots inside a name become underscores in the key, because WebDataset cuts there; a second picture of one name gets a key of
its own. Both are counted in the summary.

A picture is damaged if it cannot be decoded. Baseline JPEGs are walked to their end, all others are decoded; what is not a
picture is not looked at. A run that was stopped or killed goes on behind the last finished shard when started again.

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
    /// A shard ends before the sample that would make it larger.
    #[arg(long, default_value = "256MB", value_name = "BYTES", value_parser = parse_bytes)]
    pub shard_size: ByteSize,
    /// Store files byte for byte (the default).
    #[arg(long, conflicts_with = "pixels")]
    pub as_is: bool,
    /// Store decoded pixels, upright, as PPM, or PGM for masks and grey: larger, but nothing to decode.
    #[arg(long)]
    pub pixels: bool,
    /// Make pictures smaller whose longer side exceeds N (bilinear, antialiased; masks by nearest neighbour). Without --pixels
    /// these, and only these, are encoded anew: JPEG of quality 92, masks as PNG.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_500))]
    pub max_side: Option<u32>,
    /// What becomes of pictures that cannot be decoded; both are reported.
    #[arg(long, value_enum, default_value_t = DamagedArgument::Keep)]
    pub damaged: DamagedArgument,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

/// What becomes of a picture that cannot be decoded.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DamagedArgument {
    /// Stored as it is.
    Keep,
    /// Its sample is left out.
    Skip,
}

/// Arguments of `feedline demo`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  feedline demo
  feedline demo --images 2000 --keep demo-data")]
pub(crate) struct DemoArguments {
    /// Pictures to make.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..))]
    pub images: u64,
    /// Keep pictures and plans in this folder, which has to be empty or new.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// Reads a path as text, in which names that are not UTF-8 are escaped.
fn path_text() -> impl TypedValueParser<Value = String> {
    PathBufValueParser::new().map(|path| escaped_path(&path))
}

fn parse_sides(text: &str) -> Result<(u32, u32), String> {
    const ALLOWED: std::ops::RangeInclusive<u32> = 16..=16_384;
    let (shortest, longest) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u32>().map_err(|error| format!("{error}; write e.g. 256-640"));
    let (shortest, longest) = (number(shortest)?, number(longest)?);
    if !ALLOWED.contains(&shortest) || !ALLOWED.contains(&longest) || shortest > longest {
        return Err(format!("sides lie between {} and {}, the shortest first", ALLOWED.start(), ALLOWED.end()));
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
