//! The progress of packing, stored with the shards. A second run continues after the last finished shard.
//!
//! One line per finished shard, appended and synced once the shard and its index have their final names. A truncated line, or one
//! whose shard is missing, ends the journal.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::options::Options;
use super::summary::{DamagedPicture, PackError, Summary};
use crate::private_files::{open_appending, read_open};
use crate::source::tar::index::ENDING;

/// The name of the journal.
const NAME: &str = ".pack.jsonl";
/// Upper limit of a journal. Longer ones are not ours.
const MAX_BYTES: u64 = 1 << 30;
/// The version of its format.
const FORMAT: u32 = 2;

/// Source and options of the shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    format: u32,
    /// The identity of the source.
    source: String,
    samples: u64,
    options: Options,
}

impl Recipe {
    /// A source and how it is packed.
    pub(super) fn new(identity: u128, samples: u64, options: &Options) -> Self {
        Self { format: FORMAT, source: format!("{identity:032x}"), samples, options: options.clone() }
    }
}

/// A finished shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FinishedShard {
    /// Its name.
    pub shard: String,
    /// Number of samples.
    pub samples: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of its index.
    pub index_bytes: u64,
    /// The first sample of the source after it.
    pub next: u64,
    /// A hash of size and time of the files of its samples.
    pub stamp: u64,
    /// Samples left out since the previous shard.
    pub skipped: u64,
    /// Number of pictures made smaller.
    pub resized: u64,
    /// Pictures that cannot be decoded.
    pub damaged: Vec<DamagedPicture>,
}

impl FinishedShard {
    /// Adds it to a summary.
    pub(super) fn add_to(&self, summary: &mut Summary) {
        summary.samples += self.samples;
        summary.shards += u64::from(!self.shard.is_empty());
        summary.bytes += self.bytes;
        summary.index_bytes += self.index_bytes;
        summary.skipped += self.skipped;
        summary.resized += self.resized;
        summary.damaged.extend(self.damaged.iter().cloned());
    }
}

/// The journal of a folder.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens or creates the journal of `folder`. Returns the finished shards.
    ///
    /// `is_current` gets a finished shard and its first sample, and returns whether the files are unchanged.
    pub(super) fn open(
        folder: &Path,
        recipe: &Recipe,
        is_current: impl Fn(u64, &FinishedShard) -> bool,
    ) -> Result<(Self, Vec<FinishedShard>), PackError> {
        let path = folder.join(NAME);
        let write = |source| PackError::Write { path: path.clone(), source };
        let file = open_appending(&path).map_err(write)?;
        // The lock of the system is released when the process ends, even if it is killed.
        if file.try_lock().is_err() {
            return Err(PackError::Busy { folder: folder.to_owned() });
        }
        let bytes = read_open(&file, MAX_BYTES).map_err(write)?;
        // Bytes that are not text are damage, which ends the journal.
        let text = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let found: Option<Recipe> = lines.next().and_then(|line| serde_json::from_str(line).ok());
        let Some(found) = found else {
            if has_entries(folder).map_err(write)? {
                return Err(PackError::NotEmpty { folder: folder.to_owned() });
            }
            // Nothing but an empty or broken first line: start over.
            file.set_len(0).map_err(write)?;
            let mut journal = Self { path, file };
            journal.add(recipe)?;
            return Ok((journal, Vec::new()));
        };
        let differences = found.options.differences(&recipe.options);
        if !differences.is_empty() {
            let differences = differences.join(", ");
            return Err(PackError::OtherOptions { folder: folder.to_owned(), differences });
        }
        if found != *recipe {
            return Err(PackError::OtherSource { folder: folder.to_owned() });
        }
        let finished: Vec<FinishedShard> = lines
            .map_while(|line| serde_json::from_str(line).ok())
            // Pairs each shard with its first sample, which is the end of the shard before it.
            .scan(0, |first, shard: FinishedShard| Some((std::mem::replace(first, shard.next), shard)))
            .take_while(|(first, shard)| is_there(folder, shard) && is_current(*first, shard))
            .map(|(_, shard)| shard)
            .collect();
        // Anything after the last valid line is removed from the file too.
        let kept: usize = text.split_inclusive('\n').take(1 + finished.len()).map(str::len).sum();
        if kept < bytes.len() {
            file.set_len(kept as u64).map_err(write)?;
        }
        Ok((Self { path, file }, finished))
    }

    /// Appends a line and syncs it.
    pub(super) fn add(&mut self, line: &impl Serialize) -> Result<(), PackError> {
        let mut text = serde_json::to_vec(line).expect("a journal holds plain data");
        text.push(b'\n');
        // A line must be on disk before the next shard begins. Otherwise a crash could lose it and keep later files.
        let written = self.file.write_all(&text).and_then(|()| self.file.sync_data());
        written.map_err(|source| PackError::Write { path: self.path.clone(), source })
    }
}

/// Whether a folder contains anything besides an empty journal and its leftovers.
fn has_entries(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        if !entry?.file_name().to_string_lossy().starts_with('.') {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_there(folder: &Path, shard: &FinishedShard) -> bool {
    let has_len = |name: &str, len: u64| fs::metadata(folder.join(name)).is_ok_and(|meta| meta.len() == len);
    // The last line may stand for samples that were all left out.
    shard.shard.is_empty()
        || (has_len(&shard.shard, shard.bytes) && has_len(&format!("{}{ENDING}", shard.shard), shard.index_bytes))
}

#[cfg(test)]
mod tests {
    use super::super::options::{Content, Damaged};
    use super::*;
    use crate::plan::ByteSize;

    fn recipe(samples: u64, max_side: Option<u32>) -> Recipe {
        let shard_size = ByteSize(1000);
        let options = Options { shard_size, content: Content::AsIs, max_side, damaged: Damaged::Keep };
        Recipe::new(7, samples, &options)
    }

    fn finished(folder: &Path, number: u64) -> FinishedShard {
        let shard = format!("shard-{number}.tar");
        fs::write(folder.join(&shard), b"12345").unwrap();
        fs::write(folder.join(format!("{shard}{ENDING}")), b"123").unwrap();
        FinishedShard { shard, samples: 2, bytes: 5, index_bytes: 3, next: 2 * number + 2, ..FinishedShard::default() }
    }

    #[test]
    fn finished_shards_are_found_up_to_the_first_missing_shard_or_truncated_line() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, before) = Journal::open(folder.path(), &recipe(9, None), |_, _| true).unwrap();
        assert_eq!(before, []);
        let shards: Vec<FinishedShard> = (0..3).map(|number| finished(folder.path(), number)).collect();
        for shard in &shards {
            journal.add(shard).unwrap();
        }
        assert!(matches!(Journal::open(folder.path(), &recipe(9, None), |_, _| true), Err(PackError::Busy { .. })));
        drop(journal);
        let path = folder.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        assert_eq!(Journal::open(folder.path(), &recipe(9, None), |_, _| true).unwrap().1, shards);
        fs::write(&path, &whole[..whole.len() - 4]).unwrap();
        let (mut journal, found) = Journal::open(folder.path(), &recipe(9, None), |_, _| true).unwrap();
        assert_eq!(found, shards[..2]);
        journal.add(&shards[2]).unwrap();
        drop(journal);
        assert_eq!(fs::read(&path).unwrap(), whole, "the cut line is gone");
        fs::write(folder.path().join("shard-1.tar"), b"other").unwrap();
        assert_eq!(
            Journal::open(folder.path(), &recipe(9, None), |_, _| true).unwrap().1.len(),
            3,
            "its length is the same"
        );
        fs::remove_file(folder.path().join("shard-1.tar.index")).unwrap();
        assert_eq!(Journal::open(folder.path(), &recipe(9, None), |_, _| true).unwrap().1, shards[..1]);
    }

    #[test]
    fn another_source_other_options_and_a_foreign_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        Journal::open(folder.path(), &recipe(9, None), |_, _| true).unwrap();
        let refused = |recipe: &Recipe| Journal::open(folder.path(), recipe, |_, _| true).unwrap_err().to_string();
        assert!(refused(&recipe(8, None)).contains("another source"));
        assert!(refused(&recipe(9, Some(64))).contains("max_side was null, now is 64"));
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("mine"), b"").unwrap();
        assert!(
            Journal::open(other.path(), &recipe(9, None), |_, _| true).unwrap_err().to_string().contains("not empty")
        );
    }
}
