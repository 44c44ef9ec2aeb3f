//! `feedline cache`: what is kept in the cache folder, and how to be rid of it.
//!
//! In: the cache folder. Out: a [`Kept`]. Everything in it can be made again, so nothing is asked before it is removed.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use feedline_core::Registry;
use serde::Serialize;

use crate::arguments::CacheCommand;

/// What the folders below the cache folder are.
const KINDS: [(&str, &str); 3] =
    [("seek", "seek indexes"), ("shards", "indexes of shards"), ("samples", "prepared samples")];

/// What is, or was, kept.
#[derive(Debug, Serialize)]
pub struct Kept {
    path: PathBuf,
    kinds: Vec<KeptKind>,
    is_removed: bool,
}

#[derive(Debug, Serialize)]
struct KeptKind {
    what: &'static str,
    files: u64,
    bytes: u64,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.is_removed { "removed from" } else { "in" };
        writeln!(f, "{verb} {}:", self.path.display())?;
        for KeptKind { what, files, bytes } in &self.kinds {
            writeln!(f, "  {what:20} {:10.1} MB in {files} files", *bytes as f64 / 1e6)?;
        }
        Ok(())
    }
}

/// Shows or removes what is kept.
pub fn cache(command: &CacheCommand, registry: &Registry) -> Result<Kept> {
    let folder = registry.cache_folder().context("there is no cache folder: set FEEDLINE_CACHE or HOME")?;
    let is_removed = matches!(command, CacheCommand::Clear);
    let mut kinds = Vec::new();
    for (name, what) in KINDS {
        let path = folder.join(name);
        let (files, bytes) = size(&path).with_context(|| format!("cannot look at {path:?}"))?;
        if is_removed && path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {path:?}"))?;
        }
        kinds.push(KeptKind { what, files, bytes });
    }
    Ok(Kept { path: folder.to_owned(), kinds, is_removed })
}

/// Files below a folder and their bytes on disk.
fn size(folder: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, 0)),
        entries => entries?,
    };
    let mut sum = (0, 0);
    for entry in entries {
        let entry = entry?;
        let meta = entry.metadata()?;
        let (files, bytes) = if meta.is_dir() { size(&entry.path())? } else { (1, meta.blocks() * 512) };
        sum = (sum.0 + files, sum.1 + bytes);
    }
    Ok(sum)
}
