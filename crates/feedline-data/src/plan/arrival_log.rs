//! The log of a run in arrival order. It lists the samples of each batch, so that the run can be replayed.
//!
//! In: delivered batches, or a file of them. Out: lines of JSON, the first of which identifies the plan; or the order of each
//! epoch. A record replaces everything that the log has of its epoch from its place on, because a run that was killed and resumed
//! delivers some batches again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use feedline_order::{Epoch, Rank, ShareIndex};
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::private_files::open_appending;

/// Identifies the plan of a log. A log can be replayed only with an equal title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Title {
    feedline_arrivals: u32,
    order: String,
    batch_size: usize,
    drop_last: bool,
    rank: u32,
    world_size: u32,
}

/// A delivered batch: one line of the log.
#[derive(Debug, Serialize, Deserialize)]
pub struct ArrivedBatch {
    /// Its epoch.
    pub epoch: Epoch,
    /// The offset from which the epoch is divided into batches.
    pub offset: u64,
    /// Its number since that offset.
    pub batch: u64,
    /// Its samples in slot order.
    pub numbers: Vec<ShareIndex>,
}

/// Longer logs are not replayed. This is enough for about 10^9 samples.
pub(super) const MAX_LOG_BYTES: u64 = 8 << 30;
/// A longer title is not one of ours.
const MAX_TITLE_BYTES: u64 = 1 << 16;
/// The version of logs.
const FORMAT: u32 = 1;

impl Title {
    fn of(plan: &Plan) -> Self {
        let rank = plan.config().rank;
        let settings = plan.settings();
        Self {
            feedline_arrivals: FORMAT,
            order: plan.fingerprints().order.to_string(),
            batch_size: settings.batch_size,
            drop_last: settings.drop_last,
            rank: rank.rank,
            world_size: rank.world,
        }
    }
}

/// The file of a rank. Each rank has its own.
pub(super) fn file_of_rank(path: &str, rank: Rank) -> PathBuf {
    // Ranks of one job may share a file system, so each writes a file of its own.
    if rank.world == 1 { PathBuf::from(path) } else { PathBuf::from(format!("{path}.rank{}", rank.rank)) }
}

/// A log opened for writing.
#[derive(Debug)]
pub struct ArrivalLog {
    file: File,
}

impl ArrivalLog {
    /// Creates a log, or continues one of the same plan.
    pub fn open(path: &str, plan: &Plan) -> io::Result<Self> {
        let path = file_of_rank(path, plan.config().rank);
        let mut file = open_appending(&path)?;
        let title = Title::of(plan);
        if file.metadata()?.len() == 0 {
            write_line(&mut file, &title)?;
        } else if read_title(&mut BufReader::new(&file)).as_ref() != Some(&title) {
            let text = format!("{} is not a log of this plan; name another file, or remove it", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut log = Self { file };
        // A kill may have left half a line. The newline ends it, so that the next record starts on a line of its own.
        log.end_line()?;
        Ok(log)
    }

    /// Appends the samples of a batch. After an error the record may be incomplete: open the log again.
    pub fn write(&mut self, batch: &ArrivedBatch) -> io::Result<()> {
        write_line(&mut self.file, batch)
    }

    fn end_line(&mut self) -> io::Result<()> {
        let mut last = [b'\n'];
        self.file.seek(SeekFrom::End(-1))?;
        self.file.read_exact(&mut last)?;
        if last == [b'\n'] { Ok(()) } else { self.file.write_all(b"\n") }
    }
}

fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    // One write per line, so that a kill leaves at most one incomplete line.
    file.write_all(&text)
}

fn read_title(reader: &mut impl BufRead) -> Option<Title> {
    let mut line = String::new();
    reader.take(MAX_TITLE_BYTES).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// The contents of a log: for each epoch and offset, the samples in the order of delivery, as far as the log goes.
#[derive(Debug, Default)]
pub(super) struct Logged(BTreeMap<(Epoch, u64), Vec<u64>>);

impl Logged {
    /// Reads a log of `plan` from bytes. The error describes the problem.
    pub(super) fn read(bytes: &[u8], plan: &Plan) -> Result<Self, String> {
        let mut lines = BufReader::new(bytes);
        let title = read_title(&mut lines).ok_or("it is not a log of arrivals")?;
        if title != Title::of(plan) {
            return Err(format!(
                "it belongs to a run with other samples, ops or seed, or to another rank or batch size than rank {} of {} with batch size {}",
                plan.config().rank.rank,
                plan.config().rank.world,
                plan.settings().batch_size
            ));
        }
        let mut logged = Self::default();
        for line in lines.split(b'\n') {
            // A line that was truncated by a kill belongs to a batch that was not delivered.
            let line = line.map_err(|error| error.to_string())?;
            if let Ok(record) = serde_json::from_slice::<ArrivedBatch>(&line) {
                logged.add(record, plan.settings().batch_size as u64);
            }
        }
        Ok(logged)
    }

    fn add(&mut self, ArrivedBatch { epoch, offset, batch, numbers }: ArrivedBatch, batch_size: u64) {
        let order = self.0.entry((epoch, offset)).or_default();
        if let Ok(from) = usize::try_from(batch.saturating_mul(batch_size))
            // A record with a gap before it cannot be placed, so it is ignored.
            && from <= order.len()
        {
            order.truncate(from);
            order.extend(numbers.iter().map(|index| index.0));
        }
    }

    /// The order of delivery of `samples` samples: first the logged ones, then the others in the sampler's order.
    pub(super) fn order(&self, epoch: Epoch, offset: u64, samples: u64) -> Vec<u32> {
        let logged = self.0.get(&(epoch, offset)).map(Vec::as_slice).unwrap_or_default();
        let mut is_left = vec![true; samples as usize];
        let mut order = Vec::with_capacity(samples as usize);
        for &number in logged {
            // A damaged log may contain a number twice or one that is too large. Such numbers are ignored.
            if let Some(is_left) = is_left.get_mut(number as usize)
                && std::mem::take(is_left)
            {
                order.push(number as u32);
            }
        }
        if (order.len() as u64) < samples {
            tracing::warn!(
                epoch = epoch.0,
                logged = order.len(),
                samples,
                "the log ends here; the rest is in the sampler's order"
            );
        }
        order.extend((0..samples as u32).filter(|&number| is_left[number as usize]));
        order
    }
}
