//! The arguments as typed, with their help. Each command turns its own into what they mean.

mod data;
mod measure;
mod serve;

use clap::{Parser, Subcommand};
use feedline_data::plan::ByteSize;

pub(crate) use data::{DamagedArgument, DemoArguments, IndexArguments, PackArguments, ShowArguments, SynthArguments};
pub(crate) use measure::{
    CostArguments, DoctorArguments, OffloadArguments, RunArguments, ShuffleArguments, VerifyArguments,
};
pub(crate) use serve::{CacheCommand, NodeArguments, StorageArguments, TopArguments};

/// Loads data for training: try it, look at it, measure it.
#[derive(Debug, Parser)]
#[command(
    name = "feedline",
    version,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  feedline demo                                  make pictures, train on them, show the numbers
  feedline synth pictures --images 1000          make a picture set
  feedline pack pictures shards                  pack it into tar shards with an index
  feedline run plan.toml --json                  measure a plan
  feedline doctor plan.toml --step-ms 80         what bounds a job, and what would help
  feedline verify plan.toml                      check that the promises hold for it
  feedline show plan.toml samples.png            look at what a plan gives"
)]
pub(crate) struct Arguments {
    /// Write exactly one JSON document to stdout.
    #[arg(long, global = true)]
    pub json: bool,
    /// Run Python functions that plans name (ops.Map): only for plans that you trust.
    #[arg(long, global = true)]
    pub allow_functions: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a plan and measure it.
    Run(RunArguments),
    /// Draw the first samples of a plan as a grid.
    Show(ShowArguments),
    /// Pack pictures into tar shards with an index.
    Pack(PackArguments),
    /// Make the seek indexes of pictures ahead of the first epoch.
    Index(IndexArguments),
    /// Show what samples take, which are slow, and why.
    Cost(CostArguments),
    /// Show how good the shuffle of a plan is, against a full one.
    Shuffle(ShuffleArguments),
    /// Find out what bounds a job, why, and what would help.
    Doctor(DoctorArguments),
    /// Show what a storage server would do for a plan, why, and what that gains.
    Offload(OffloadArguments),
    /// Check on your own data and machine that the promises hold: same stream, exactly once, exact resume.
    Verify(VerifyArguments),
    /// Show or remove what is kept in the cache folder.
    Cache {
        /// What to do.
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Serve files to training machines, next to the data.
    Storage(StorageArguments),
    /// Prepare samples once for all jobs of this machine.
    Node(NodeArguments),
    /// Watch the node of this machine: runs, jobs, samples per second, memory, why jobs wait.
    Top(TopArguments),
    /// Make a set of pictures that look like photographs to a codec.
    Synth(SynthArguments),
    /// Make pictures, train a small classifier on them, show the numbers.
    Demo(DemoArguments),
}

/// Reads a number of bytes that is not zero.
fn parse_bytes(text: &str) -> Result<ByteSize, String> {
    ByteSize::parse(text).filter(|size| size.0 > 0).ok_or_else(|| "write bytes, or e.g. 256MB".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Arguments::command().debug_assert();
    }
}
