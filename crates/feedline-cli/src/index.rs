//! `feedline index`: builds the seek indexes of a source before the first epoch.
//!
//! In: a folder, shards or a plan. Out: indexes in the cache folder, and an [`Indexing`]. The data files are not changed.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use feedline_data::plan::Registry;
use feedline_data::source::Opener;
use feedline_engine::supply::{Indexed, index_source};
use serde::Serialize;

use crate::arguments::IndexArguments;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::{environment, plan};

/// The results of indexing.
#[derive(Debug, Serialize)]
pub(crate) struct Indexing {
    path: String,
    cache_folder: PathBuf,
    #[serde(flatten)]
    indexed: Indexed,
    seconds: f64,
    pictures_per_second: f64,
}

impl fmt::Display for Indexing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Indexed { pictures, made, known, not_seekable, unreadable, walked_bytes, index_bytes, .. } = self.indexed;
        writeln!(
            f,
            "{pictures} pictures of {}: {made} indexes built, {known} existed already, {not_seekable} are not baseline JPEGs",
            self.path
        )?;
        if unreadable > 0 {
            writeln!(f, "{unreadable} files could not be read; `feedline run` shows the reasons")?;
        }
        if made == 0 {
            return Ok(());
        }
        let share = 100.0 * index_bytes as f64 / (walked_bytes as f64).max(1.0);
        writeln!(
            f,
            "{:.1} MB of indexes ({share:.1} % of the files) in {}, {:.1} s, {:.0} pictures/s",
            index_bytes as f64 / 1e6,
            self.cache_folder.display(),
            self.seconds,
            self.pictures_per_second
        )
    }
}

/// Builds the missing indexes.
pub(crate) fn index(typed: &IndexArguments, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Indexing> {
    let start = Instant::now();
    let folder = registry
        .cache_folder()
        .context("there is no cache folder: FEEDLINE_CACHE is empty, or neither it nor HOME is set")?;
    let source = plan::open_source(&typed.src, registry, interrupt)?;
    let workers = typed.workers.map_or_else(environment::cores, usize::from);
    let progress = Progress::new("pictures", source.len());
    let indexed = index_source(&*source, &folder.to_owned().into(), workers, |done| {
        progress.reach(done);
        interrupt.check().is_ok()
    });
    // The callback only stops the indexing. The error is raised here.
    interrupt.check()?;
    if !indexed.is_kept {
        bail!("cannot write to the cache folder {folder:?}: is the disk full? {} indexes were written", indexed.made);
    }
    let seconds = start.elapsed().as_secs_f64();
    let pictures_per_second = indexed.pictures as f64 / seconds;
    Ok(Indexing { path: typed.src.clone(), cache_folder: folder.to_owned(), indexed, seconds, pictures_per_second })
}
