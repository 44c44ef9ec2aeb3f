//! Runs the command like a user, and creates its input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use feedline_codec::{DecodeOptions, Mode, Picture, decode_into};
use feedline_data::testing::write_pictures;
use serde_json::Value;
use tempfile::TempDir;

/// Ops that give pictures of different sizes, and of one size.
pub(crate) const DECODE: &str = "[[ops]]\nop = \"DecodeImage\"\n";
pub(crate) const CROP: &str = "[[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 24\n";

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub(crate) fn command(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedline"));
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache");
    command.args(arguments).current_dir(folder).env("FEEDLINE_CACHE", cache).stdin(Stdio::null());
    command
}

/// Runs `feedline` in a folder.
pub(crate) fn feedline(arguments: &[&str], folder: &Path) -> Ran {
    let output = command(arguments, folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs `feedline`, which must succeed.
#[track_caller]
pub(crate) fn succeed(arguments: &[&str], folder: &Path) -> Ran {
    let ran = feedline(arguments, folder);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

/// Runs `feedline`, which must fail with one line that contains all of `parts`.
#[track_caller]
pub(crate) fn fail(arguments: &[&str], folder: &Path, parts: &[&str]) {
    let ran = feedline(arguments, folder);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    if arguments.contains(&"--json") {
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(ran.stderr.trim_end(), format!("error: {}", document["error"].as_str().unwrap()));
    } else {
        assert_eq!(ran.stdout, "");
    }
    assert!(ran.stderr.starts_with("error: ") && ran.stderr.trim_end().lines().count() == 1, "{ran:?}");
    for part in parts {
        assert!(ran.stderr.contains(part), "{part:?} is not in {:?}", ran.stderr);
    }
}

/// Writes a plan over a folder of pictures.
pub(crate) fn write_plan(folder: &Path, name: &str, settings: &str, ops: &str) {
    let text = format!("{settings}\n[source]\nkind = \"folder\"\nroot = \"pictures\"\n{ops}");
    fs::write(folder.join(name), text).unwrap();
}

/// All files below a folder, by name.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A folder with 30 pictures of 3 classes.
pub(crate) fn pictures() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("pictures"), 30, 3).unwrap();
    folder
}

/// The single JSON document on the stdout of a command that must succeed.
#[track_caller]
pub(crate) fn json(arguments: &[&str], folder: &Path) -> Value {
    serde_json::from_str(&succeed(arguments, folder).stdout).unwrap()
}

/// Decodes a file, which must be complete.
#[track_caller]
pub(crate) fn decode(path: &Path) -> Picture {
    let options = DecodeOptions { mode: Mode::Rgb, exif: true, max_pixels: 1 << 26, fast: None, cancel: &|| false };
    let mut picture = Picture::default();
    decode_into(&fs::read(path).unwrap(), &options, &mut picture).unwrap();
    picture
}

/// Waits until a condition is true.
#[track_caller]
pub(crate) fn wait_until(is_there: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_there() {
        assert!(Instant::now() < deadline, "nothing within a minute");
        std::thread::yield_now();
    }
}

/// A command that runs until it is stopped, at the latest at the end of the test.
pub(crate) struct Running(Child);

impl Running {
    /// Starts a command and ignores its output.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Kills the process.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Sends Ctrl-C, and checks that it ends soon with the right exit code.
    #[track_caller]
    pub(crate) fn interrupt(mut self) {
        let asked = Instant::now();
        let sent = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(self.0.wait().unwrap().code(), Some(130));
        assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended before.
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}
