//! `feedline cache`: lists or clears the cache folder.
//!
//! In: the cache folder. Out: a [`CacheListing`]. All content can be created again, so clearing it needs no confirmation.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use anyhow::{Context as _, Result};
use feedline_data::plan::Registry;
use feedline_data::source::Opener;
use serde::Serialize;

use crate::arguments::CacheCommand;

/// The folders below the cache folder, with their content.
const KINDS: [(&str, &str); 5] = [
    ("seek", "seek indexes"),
    ("shards", "indexes of shards"),
    ("foreground", "foregrounds"),
    ("samples", "prepared samples"),
    ("costs", "costs of samples"),
];

/// The content of the cache, or what was removed from it.
#[derive(Debug, Serialize)]
pub(crate) struct CacheListing {
    path: PathBuf,
    kinds: Vec<CachedKind>,
    is_removed: bool,
}

#[derive(Debug, Serialize)]
struct CachedKind {
    what: &'static str,
    files: u64,
    bytes: u64,
}

impl fmt::Display for CacheListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.is_removed { "removed from" } else { "in" };
        writeln!(f, "{verb} {}:", self.path.display())?;
        for CachedKind { what, files, bytes } in &self.kinds {
            writeln!(f, "  {what:20} {:10.1} MB in {files} files", *bytes as f64 / 1e6)?;
        }
        Ok(())
    }
}

/// Lists or clears the cache.
pub(crate) fn cache(command: &CacheCommand, registry: &Registry) -> Result<CacheListing> {
    let folder = registry
        .cache_folder()
        .context("there is no cache folder: FEEDLINE_CACHE is empty, or neither it nor HOME is set")?;
    let is_removed = matches!(command, CacheCommand::Clear);
    let mut kinds = Vec::new();
    for (name, what) in KINDS {
        let path = folder.join(name);
        let (files, bytes) = size(&path).with_context(|| format!("cannot list {path:?}"))?;
        // Measured before it is removed, so that the report says what was freed.
        if is_removed {
            remove(&path).with_context(|| format!("cannot remove {path:?}"))?;
        }
        kinds.push(CachedKind { what, files, bytes });
    }
    Ok(CacheListing { path: folder.to_owned(), kinds, is_removed })
}

/// The files and folders of Feedline in a folder: their names start with a hash. Other files may belong to the user, who chose the
/// cache folder, and are left alone.
fn own_entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let hash = name.split('.').next().unwrap_or_default();
        // 128 bits in hexadecimal, before the first dot of the name.
        hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    Ok(paths?.into_iter().filter(is_ours).collect())
}

/// The number of our files below a folder, and their bytes on disk.
fn size(folder: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let mut sum = (0, 0);
    for path in own_entries(folder)? {
        let inside =
            if path.is_dir() { fs::read_dir(&path)?.map(|entry| Ok(entry?.path())).collect() } else { Ok(vec![path]) };
        for file in inside.map_err(|error: io::Error| error)? {
            // `st_blocks` counts units of 512 bytes, whatever the block size of the file system (POSIX).
            sum = (sum.0 + 1, sum.1 + fs::metadata(file)?.blocks() * 512);
        }
    }
    Ok(sum)
}

fn remove(folder: &Path) -> io::Result<()> {
    for path in own_entries(folder)? {
        if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    match fs::remove_dir(folder) {
        // The folder contains files of the user, or never existed.
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => Ok(()),
        removed => removed,
    }
}
