//! `feedline cache`: what is kept in the cache folder, and how to be rid of it.
//!
//! In: the cache folder. Out: a [`CacheListing`]. Everything in it can be made again, so nothing is asked before it is removed.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use anyhow::{Context as _, Result};
use feedline_data::plan::Registry;
use feedline_data::source::Opener;
use serde::Serialize;

use crate::arguments::CacheCommand;

/// What the folders below the cache folder are.
const KINDS: [(&str, &str); 5] = [
    ("seek", "seek indexes"),
    ("shards", "indexes of shards"),
    ("foreground", "foregrounds"),
    ("samples", "prepared samples"),
    ("costs", "costs of samples"),
];

/// What is, or was, kept.
#[derive(Debug, Serialize)]
pub(crate) struct CacheListing {
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

impl fmt::Display for CacheListing {
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
pub(crate) fn cache(command: &CacheCommand, registry: &Registry) -> Result<CacheListing> {
    let folder = registry
        .cache_folder()
        .context("there is no cache folder: FEEDLINE_CACHE is empty, or neither it nor HOME is set")?;
    let is_removed = matches!(command, CacheCommand::Clear);
    let mut kinds = Vec::new();
    for (name, what) in KINDS {
        let path = folder.join(name);
        let (files, bytes) = size(&path).with_context(|| format!("cannot look at {path:?}"))?;
        if is_removed {
            remove(&path).with_context(|| format!("cannot remove {path:?}"))?;
        }
        kinds.push(KeptKind { what, files, bytes });
    }
    Ok(CacheListing { path: folder.to_owned(), kinds, is_removed })
}

/// What is ours in a folder: a user may have named a folder of theirs as the cache folder. Ours are called by a hash.
fn ours(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let hash = name.split('.').next().unwrap_or_default();
        hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    Ok(paths?.into_iter().filter(is_ours).collect())
}

/// Files of ours below a folder and their bytes on disk.
fn size(folder: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let mut sum = (0, 0);
    for path in ours(folder)? {
        let inside =
            if path.is_dir() { fs::read_dir(&path)?.map(|entry| Ok(entry?.path())).collect() } else { Ok(vec![path]) };
        for file in inside.map_err(|error: io::Error| error)? {
            sum = (sum.0 + 1, sum.1 + fs::metadata(file)?.blocks() * 512);
        }
    }
    Ok(sum)
}

fn remove(folder: &Path) -> io::Result<()> {
    for path in ours(folder)? {
        if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    match fs::remove_dir(folder) {
        // Something else lies there, or nothing was ever kept.
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => Ok(()),
        removed => removed,
    }
}
