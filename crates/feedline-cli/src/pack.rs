//! `feedline pack`: packs a source into tar shards.
//!
//! In: a source, a folder and options. Out: shards, their indexes, and a [`Packed`]. `feedline_data::pack` does the work.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use feedline_data::pack;
use feedline_data::pack::{Content, Damaged, DamagedPicture, Options, PackError, Summary, Watch};
use feedline_data::plan::Registry;
use serde::Serialize;

use crate::arguments::{DamagedArgument, PackArguments};
use crate::interrupt::{Interrupt, Interrupted};
use crate::progress::Progress;
use crate::{environment, plan};

/// Upper limit of damaged pictures that the text names.
const NAMED_DAMAGED: usize = 10;

/// What to pack, and how.
#[derive(Debug)]
pub(crate) struct Pack {
    src: String,
    folder: PathBuf,
    options: Options,
    workers: usize,
}

impl From<PackArguments> for Pack {
    fn from(typed: PackArguments) -> Self {
        // `--as-is` is the default, and exists only to be explicit.
        let PackArguments { src, dst, shard_size, as_is: _, pixels, max_side, damaged, workers } = typed;
        let content = if pixels { Content::Pixels } else { Content::AsIs };
        let damaged = match damaged {
            DamagedArgument::Keep => Damaged::Keep,
            DamagedArgument::Skip => Damaged::Skip,
        };
        Self {
            src,
            folder: dst,
            options: Options { shard_size, content, max_side, damaged },
            workers: workers.map_or_else(environment::cores, usize::from),
        }
    }
}

/// The results of packing. MB are 10^6 bytes. Samples, shards and bytes include those of an earlier run that this one continued;
/// `seconds` and `mb_per_second` are those of this run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Packed {
    path: PathBuf,
    samples: u64,
    shards: u64,
    bytes: u64,
    index_bytes: u64,
    seconds: f64,
    mb_per_second: f64,
    resumed_samples: u64,
    renamed: u64,
    resized: u64,
    skipped: u64,
    damaged: usize,
    damaged_pictures: Vec<DamagedPicture>,
    /// What was done with damaged pictures.
    #[serde(skip)]
    damaged_policy: Damaged,
}

/// Packs the source.
pub(crate) fn pack(what: &Pack, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Packed> {
    let start = Instant::now();
    let source = plan::open_source(&what.src, registry, interrupt)?;
    let progress = Progress::new("samples", source.len());
    let mut watch = Watcher { progress, interrupt };
    let packed = pack::pack(&*source, &what.folder, &what.options, what.workers, &mut watch);
    let summary = packed.map_err(|error| match error {
        PackError::Cancelled => Interrupted.into(),
        error => anyhow::Error::from(error),
    })?;
    Ok(Packed::new(what, summary, start.elapsed()))
}

/// Shows the progress of packing, and stops it on request.
struct Watcher<'a> {
    progress: Progress,
    interrupt: &'a Interrupt<'a>,
}

impl Watch for Watcher<'_> {
    fn reached(&mut self, samples: u64) {
        self.progress.reach(samples);
    }

    fn wants_to_stop(&mut self) -> bool {
        self.interrupt.check().is_err()
    }
}

impl Packed {
    fn new(what: &Pack, summary: Summary, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        Self {
            path: what.folder.clone(),
            samples: summary.samples,
            shards: summary.shards,
            bytes: summary.bytes,
            index_bytes: summary.index_bytes,
            seconds,
            mb_per_second: summary.written_bytes as f64 / 1e6 / seconds,
            resumed_samples: summary.resumed_samples,
            renamed: summary.renamed,
            resized: summary.resized,
            skipped: summary.skipped,
            damaged: summary.damaged.len(),
            damaged_pictures: summary.damaged,
            damaged_policy: what.options.damaged,
        }
    }
}

impl fmt::Display for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "packed {} samples into {} shards in {:?}: {:.1} MB and {:.1} MB of indexes, {:.1} s, {:.0} MB/s",
            self.samples,
            self.shards,
            self.path,
            self.bytes as f64 / 1e6,
            self.index_bytes as f64 / 1e6,
            self.seconds,
            self.mb_per_second
        )?;
        if self.resumed_samples > 0 {
            writeln!(f, "{} of them were packed by an earlier run", self.resumed_samples)?;
        }
        if self.renamed > 0 {
            writeln!(
                f,
                "{} keys differ from the file names: dots became underscores, or the key existed already",
                self.renamed
            )?;
        }
        if self.resized > 0 {
            writeln!(f, "{} pictures were shrunk", self.resized)?;
        }
        if self.damaged > 0 {
            let fate = match self.damaged_policy {
                Damaged::Keep => "kept as they are",
                Damaged::Skip => "left out with their samples",
            };
            writeln!(f, "{} pictures are damaged and were {fate}:", self.damaged)?;
        }
        for DamagedPicture { name, problem, .. } in self.damaged_pictures.iter().take(NAMED_DAMAGED) {
            writeln!(f, "  {name:?}: {problem}")?;
        }
        if self.damaged > NAMED_DAMAGED {
            writeln!(f, "  and {} more; --json lists all of them", self.damaged - NAMED_DAMAGED)?;
        }
        Ok(())
    }
}
