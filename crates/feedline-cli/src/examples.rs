//! Tests the examples in the help texts: each must be a valid command line.

use clap::{CommandFactory as _, Parser as _};

use crate::arguments::Arguments;

/// The arguments of a command line, without quotes.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect()
}

#[test]
fn every_example_can_be_typed_as_it_stands() {
    let mut count = 0;
    let command = Arguments::command();
    for command in std::iter::once(&command).chain(command.get_subcommands()) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for example in help.lines().filter(|line| line.starts_with("  feedline ")) {
            // A comment follows after several spaces.
            let typed = example.trim_start().split("   ").next().unwrap_or_default();
            let (typed, rest) = typed.split_once(" | ").map_or((typed, None), |(typed, rest)| (typed, Some(rest)));
            assert!(!typed.contains("&&") && !typed.contains(';'), "what follows a server is never reached: {example}");
            assert!(rest.is_none() || typed.contains("--json"), "only a document is worth a pipe: {example}");
            Arguments::try_parse_from(words(typed)).unwrap_or_else(|error| panic!("{example}: {error}"));
            count += 1;
        }
    }
    assert!(count > 40, "{count} examples");
}
