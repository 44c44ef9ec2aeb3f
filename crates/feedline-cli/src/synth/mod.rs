//! `feedline synth`: generates a folder of pictures.
//!
//! In: a folder, the number of pictures, and their style. Out: JPEG files `class-NN/NNNNNNNN.jpg`. Always true: a file with a
//! picture's name is complete, because it is written under another name first. The bytes do not depend on the number of workers.

mod noise;
mod picture;
mod shape;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Instant;
use std::{fmt, fs, thread};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use crate::arguments::SynthArguments;
use crate::atomic_file::write_atomically;
use crate::environment;
use crate::interrupt::{Interrupt, POLL};
use crate::progress::Progress;

pub(crate) use noise::Numbers;
pub(crate) use picture::Style;

/// What to generate.
#[derive(Clone, Debug)]
pub(crate) struct Synth {
    /// The folder.
    pub folder: PathBuf,
    /// Number of pictures.
    pub images: u64,
    /// What they look like.
    pub style: Style,
    /// Number of threads.
    pub workers: usize,
    /// What to do with a folder that is not empty.
    pub existing: Existing,
}

/// What to do with a folder that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// Fail without changing anything.
    Refuse,
    /// Add pictures to it, and replace files of the same name.
    Replace,
}

impl From<SynthArguments> for Synth {
    fn from(typed: SynthArguments) -> Self {
        let SynthArguments { dir, images, classes, size, quality, seed, workers, force } = typed;
        Self {
            folder: dir,
            images,
            style: Style { seed, classes, sides: size, quality },
            workers: workers.map_or_else(environment::cores, usize::from),
            existing: if force { Existing::Replace } else { Existing::Refuse },
        }
    }
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SynthReport {
    path: PathBuf,
    images: u64,
    classes: u32,
    seed: u64,
    bytes: u64,
    mean_bytes: f64,
    seconds: f64,
    images_per_second: f64,
}

impl fmt::Display for SynthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "wrote {} pictures in {} classes to {:?}: {:.1} MB, {:.1} kB each, {:.1} s, {:.0} pictures/s",
            self.images,
            self.classes,
            self.path,
            self.bytes as f64 / 1e6,
            self.mean_bytes / 1e3,
            self.seconds,
            self.images_per_second
        )
    }
}

/// Generates the pictures.
pub(crate) fn synth(what: &Synth, interrupt: &Interrupt<'_>) -> Result<SynthReport> {
    let start = Instant::now();
    interrupt.check()?;
    prepare_folder(what)?;
    let bytes = make_all(what, interrupt)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(SynthReport {
        path: what.folder.clone(),
        images: what.images,
        classes: what.style.classes,
        seed: what.style.seed,
        bytes,
        mean_bytes: bytes as f64 / what.images.max(1) as f64,
        seconds,
        images_per_second: what.images as f64 / seconds,
    })
}

fn prepare_folder(what: &Synth) -> Result<()> {
    let Synth { folder, images, style, existing, .. } = what;
    fs::create_dir_all(folder).with_context(|| format!("cannot create folder {folder:?}"))?;
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot list folder {folder:?}"))?;
    if *existing == Existing::Refuse && entries.next().is_some() {
        bail!("folder {folder:?} is not empty; name another one, or write into it with --force");
    }
    for class in 0..u64::from(style.classes).min(*images) {
        let class = class_folder(folder, class as u32, style.classes);
        fs::create_dir_all(&class).with_context(|| format!("cannot create folder {class:?}"))?;
    }
    Ok(())
}

/// Names have equal lengths, so that they sort like their numbers.
fn class_folder(folder: &Path, class: u32, classes: u32) -> PathBuf {
    // At least two digits.
    let digits = (classes - 1).max(10).to_string().len();
    folder.join(format!("class-{class:0digits$}"))
}

/// Generates all pictures in parallel. Returns their total bytes.
fn make_all(what: &Synth, interrupt: &Interrupt<'_>) -> Result<u64> {
    let next = AtomicU64::new(0);
    let progress = Progress::new("pictures", what.images);
    thread::scope(|scope| {
        // Bounded: workers wait if the main thread does not keep up.
        let (sender, receiver) = mpsc::sync_channel(what.workers);
        for _ in 0..what.workers {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                // Each worker takes the next free number, so that large pictures do not delay the others.
                let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                for number in numbers.take_while(|&number| number < what.images) {
                    // The receiver is gone if a picture has failed or the user has interrupted the command.
                    if sender.send(make(what, number)).is_err() {
                        return;
                    }
                }
            });
        }
        // Only the clones of the workers are left, so the receiver disconnects when the last worker ends.
        drop(sender);
        let mut bytes = 0;
        loop {
            interrupt.check()?;
            match receiver.recv_timeout(POLL) {
                Ok(made) => {
                    bytes += made?;
                    progress.advance();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(bytes),
            }
        }
    })
}

/// Generates one picture. Returns its bytes.
fn make(what: &Synth, number: u64) -> Result<u64> {
    let jpeg = what.style.jpeg(number).with_context(|| format!("cannot encode picture {number}"))?;
    let folder = class_folder(&what.folder, what.style.class_of(number), what.style.classes);
    let path = folder.join(format!("{number:08}.jpg"));
    write_atomically(&path, &jpeg).with_context(|| format!("cannot write picture {path:?}"))?;
    Ok(jpeg.len() as u64)
}
