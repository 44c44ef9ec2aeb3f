//! The arguments as typed, with their help texts. Each command converts its own arguments into settings.

mod data;
mod measure;
mod serve;

use clap::{ArgAction, CommandFactory as _, Parser, Subcommand};
use feedline_data::plan::ByteSize;

pub(crate) use data::{DamagedArgument, DemoArguments, IndexArguments, PackArguments, ShowArguments, SynthArguments};
pub(crate) use measure::{
    CostArguments, DoctorArguments, OffloadArguments, RunArguments, ShuffleArguments, VerifyArguments,
};
pub(crate) use serve::{CacheCommand, NodeArguments, StorageArguments, TopArguments};

/// Loads training data: prepares batches in a reproducible order and measures what slows a job down.
#[derive(Debug, Parser)]
#[command(
    name = "feedline",
    version,
    disable_help_subcommand = true,
    disable_help_flag = true,
    after_help = "\
Examples:
  feedline demo                                  train a small classifier on generated pictures
  feedline pack pictures shards                  pack a folder into tar shards
  feedline run plan.toml --json                  measure the throughput of a plan
  feedline doctor plan.toml --step-ms 80         find the bottleneck of a job

`feedline COMMAND --help` shows the options and examples of a command."
)]
pub(crate) struct Arguments {
    /// Write exactly one JSON document to stdout.
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// Run the Python functions that a plan names (ops.Map). Only for plans that you trust.
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub allow_functions: bool,
    /// Print help.
    #[arg(long, short, global = true, action = ArgAction::Help, help_heading = GLOBAL)]
    help: Option<bool>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Headings of options that several commands have.
const GLOBAL: &str = "Global options";
const OUTPUT: &str = "Output";
const RESOURCES: &str = "Resources";

/// The commands by purpose, in the order of the help text.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Try it", &["demo", "synth"]),
    ("Prepare data", &["pack", "index", "cache"]),
    ("Look at a plan", &["show", "shuffle", "verify"]),
    ("Measure a plan", &["run", "doctor", "cost", "offload"]),
    ("Serve samples", &["node", "top", "storage"]),
];

impl Arguments {
    /// The command line with its commands grouped by purpose. Clap has no headings for commands, so the list is part of the
    /// template.
    pub(crate) fn grouped() -> clap::Command {
        let command = Self::command();
        // The descriptions come from the doc comments of `Command`, so they exist only once.
        let about = |name: &str| {
            let found = command.find_subcommand(name).and_then(clap::Command::get_about);
            found.map(ToString::to_string).unwrap_or_default()
        };
        let line = |name: &&str| format!("  {name:8} {}\n", about(name));
        let group =
            |(title, names): (&str, &[&str])| format!("{title}:\n{}\n", names.iter().map(line).collect::<String>());
        let listed: String = GROUPS.into_iter().map(group).collect();
        let template =
            format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{listed}{GLOBAL}:\n{{options}}{{after-help}}");
        // `{options}` and the like are placeholders of clap.
        command.help_template(template)
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a plan and report its throughput.
    Run(RunArguments),
    /// Draw the first samples of a plan as a grid of pictures.
    Show(ShowArguments),
    /// Pack pictures into tar shards with an index.
    Pack(PackArguments),
    /// Build the seek indexes of pictures before the first epoch.
    Index(IndexArguments),
    /// Measure how long each sample takes, and name the slow ones.
    Cost(CostArguments),
    /// Compare the shuffle of a plan with a full shuffle.
    Shuffle(ShuffleArguments),
    /// Find the bottleneck of a job, and predict what would help.
    Doctor(DoctorArguments),
    /// Measure what a storage server saves by preparing samples near the data.
    Offload(OffloadArguments),
    /// Check on your data that the stream is reproducible, complete and resumable.
    Verify(VerifyArguments),
    /// Show or empty the cache folder.
    #[command(after_help = "\
The folder is FEEDLINE_CACHE, else ~/.cache/feedline. It holds indexes, costs and prepared samples.

Examples:
  feedline cache show
  feedline cache clear")]
    Cache {
        /// What to do.
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Serve samples to training machines from the machine that holds the data.
    Storage(StorageArguments),
    /// Prepare samples once for all training jobs on this machine.
    Node(NodeArguments),
    /// Watch the node of this machine: its jobs, their speed and why they wait.
    Top(TopArguments),
    /// Generate a set of JPEG pictures for experiments.
    Synth(SynthArguments),
    /// Generate pictures, train a small classifier on them and report the throughput.
    Demo(DemoArguments),
}

/// Parses a number of bytes above zero.
fn parse_bytes(text: &str) -> Result<ByteSize, String> {
    ByteSize::parse(text).filter(|size| size.0 > 0).ok_or_else(|| "write bytes, or e.g. 256MB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_listed_once_under_its_purpose() {
        let mut listed: Vec<&str> = GROUPS.into_iter().flat_map(|(_, names)| names).copied().collect();
        let command = Arguments::command();
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn every_command_says_what_it_does_in_one_sentence_with_two_examples_and_options_under_headings() {
        for command in Arguments::command().get_subcommands() {
            let name = command.get_name();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.split_whitespace().count() >= 5 && !about.contains(". "), "{name}: {about}");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = after.lines().filter(|line| line.starts_with(&format!("  feedline {name}"))).count();
            assert!(examples >= 2, "{name} has {examples} examples");
            let options = command.get_arguments().filter(|argument| !argument.is_positional());
            for option in options {
                let heading = option.get_help_heading();
                assert!(heading.is_some(), "--{} of {name} has no heading", option.get_id());
            }
        }
    }

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Arguments::command().debug_assert();
    }
}
