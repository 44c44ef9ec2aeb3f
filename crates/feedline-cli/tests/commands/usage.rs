//! What all commands have in common.

use std::io::Read as _;
use std::process::Stdio;

use crate::support::{CROP, command, feedline, pictures, succeed, write_plan};

#[test]
fn wrong_usage_exits_with_2_and_points_to_the_help() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["run"][..], &["fly"], &["run", "a.toml", "--epochs", "0"], &["synth", "x"], &[]] {
        let ran = feedline(arguments, folder.path());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains("--help"), "{ran:?}");
    }
}

#[test]
fn the_help_of_each_command_has_an_example() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "run", "show", "pack", "index", "cost", "shuffle", "doctor", "offload", "verify", "cache", "storage", "node",
        "top", "synth", "demo",
    ] {
        let help = succeed(&[name, "--help"], folder.path()).stdout;
        assert!(help.contains("Examples:\n  feedline "), "{help}");
        assert!(
            help.matches(&format!("\n  feedline {name}")).count() + help.matches("\n  feedline --json").count() >= 2,
            "{help}"
        );
        assert!(help.contains("--json"), "{help}");
    }
    assert!(succeed(&["--help"], folder.path()).stdout.contains("feedline demo"));
    let version = succeed(&["--version"], folder.path()).stdout;
    assert_eq!(version, format!("feedline {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 4", CROP);
    for arguments in [&["run", "plan.toml", "--json"][..], &["--help"]] {
        let mut child =
            command(arguments, folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
