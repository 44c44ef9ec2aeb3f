//! `feedline demo`: generates pictures and trains a model on them, in seconds.
//!
//! In: a number of pictures. Out: loss, accuracy, speed and stalls per epoch. Pictures and plans go to a temporary folder, which is
//! always removed, or to a folder that is kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use anyhow::{Context as _, Result, anyhow};
use feedline_data::batch::{Batch, FieldData};
use feedline_data::plan::{Document, Registry};
use feedline_engine::loader::Loader;
use serde::Serialize;

use crate::arguments::DemoArguments;
use crate::classifier::{Classifier, Score};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::report::EpochReport;
use crate::synth::{Existing, Style, Synth, synth};
use crate::{environment, plan};

const SIDE: usize = 32;
const CLASSES: u32 = 10;
const EPOCHS: u64 = 2;

/// The settings of the demo.
#[derive(Clone, Debug)]
pub(crate) struct Demo {
    images: u64,
    sides: (u32, u32),
    place: DemoFolder,
}

/// Where pictures and plans go.
#[derive(Clone, Debug)]
enum DemoFolder {
    Temporary,
    Kept(PathBuf),
}

impl From<DemoArguments> for Demo {
    fn from(typed: DemoArguments) -> Self {
        let place = typed.keep.map_or(DemoFolder::Temporary, DemoFolder::Kept);
        Self { images: typed.images, sides: (192, 384), place }
    }
}

/// The results of the demo.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DemoReport {
    images: u64,
    classes: u32,
    chance: f64,
    epochs: Vec<TrainedEpoch>,
    samples_per_second: f64,
    stall_share: f64,
    /// The folder with pictures and plans, if it was kept.
    kept: Option<PathBuf>,
}

/// One epoch of training.
#[derive(Clone, Debug, Serialize)]
struct TrainedEpoch {
    #[serde(flatten)]
    pace: EpochReport,
    train_loss: f64,
    train_accuracy: f64,
    held_out_loss: f64,
    held_out_accuracy: f64,
}

impl fmt::Display for DemoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { images, classes, .. } = self;
        writeln!(
            f,
            "{images} pictures in {classes} classes, 90 % for training, 10 % held out; guessing gives {:.0} %\n",
            100.0 * self.chance
        )?;
        writeln!(f, "epoch        loss    accuracy    held out   samples/s     stalled")?;
        for (number, epoch) in self.epochs.iter().enumerate() {
            let percent = |share: f64| format!("{:.1} %", 100.0 * share);
            writeln!(
                f,
                "{number:<5}{:>12.3}{:>12}{:>12}{:>12.0}{:>12}",
                epoch.train_loss,
                percent(epoch.train_accuracy),
                percent(epoch.held_out_accuracy),
                epoch.pace.samples_per_second,
                percent(epoch.pace.stall_share)
            )?;
        }
        writeln!(f)?;
        match &self.kept {
            Some(folder) => {
                writeln!(f, "kept in {folder:?}; next:")?;
                writeln!(f, "  feedline run {}", folder.join(TRAIN).display())?;
                writeln!(f, "  feedline show {} samples.png", folder.join(TRAIN).display())?;
            }
            None => writeln!(f, "to keep the pictures and plans: feedline demo --keep DIR")?,
        }
        writeln!(f, "next: the docs in the repository, feedline run --help")
    }
}

const TRAIN: &str = "train.toml";
const HELD_OUT: &str = "held_out.toml";

/// Generates pictures and trains on them.
pub(crate) fn demo(what: &Demo, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<DemoReport> {
    match &what.place {
        DemoFolder::Temporary => {
            let base = environment::temporary_folder();
            let folder = tempfile::Builder::new()
                .prefix("feedline-demo-")
                .tempdir_in(&base)
                .with_context(|| format!("cannot create a folder in {base:?}"))?;
            let result = run_demo(what, folder.path(), registry, interrupt);
            // Closed explicitly, because a drop would ignore an error. The error of the demo itself comes first.
            let removed = folder.close().context("cannot remove the temporary folder");
            result.and_then(|result| removed.map(|()| result))
        }
        DemoFolder::Kept(folder) => {
            let folder = std::path::absolute(folder)?;
            let result = run_demo(what, &folder, registry, interrupt)?;
            Ok(DemoReport { kept: Some(folder), ..result })
        }
    }
}

fn run_demo(what: &Demo, folder: &Path, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<DemoReport> {
    let images = folder.join("images");
    let style = Style { seed: 0, classes: CLASSES, sides: what.sides, quality: 88 };
    let synth_images = Synth {
        folder: images.clone(),
        images: what.images,
        style,
        workers: environment::cores(),
        existing: Existing::Refuse,
    };
    synth(&synth_images, interrupt)?;
    let open = |name: &str, text: String| -> Result<Loader> {
        let path = folder.join(name);
        fs::write(&path, &text).with_context(|| format!("cannot write plan {path:?}"))?;
        Ok(plan::loader(plan::open(Document::parse(&text)?, registry, interrupt)?))
    };
    let train = open(TRAIN, plan_text(&images, Split::Train)?)?;
    let held_out = open(HELD_OUT, plan_text(&images, Split::HeldOut)?)?;
    let mut classifier = Classifier::new(SIDE * SIDE * 3, CLASSES as usize);
    let mut epochs = Vec::new();
    // The held-out epochs are not part of the measured training time.
    let (none, mut training) = (train.snapshot(), Duration::ZERO);
    let progress =
        Progress::new("batches", EPOCHS * (train.plan().batches_per_epoch() + held_out.plan().batches_per_epoch()));
    for number in 0..EPOCHS {
        let (start, before) = (Instant::now(), train.snapshot());
        let (trained, batches) =
            each_batch(&train, &progress, interrupt, |images, labels| classifier.train(images, labels))?;
        let (time, after) = (start.elapsed(), train.snapshot());
        training += time;
        let (tested, _) =
            each_batch(&held_out, &progress, interrupt, |images, labels| classifier.score(images, labels))?;
        epochs.push(TrainedEpoch {
            pace: EpochReport::new(number, batches, trained.samples(), time, &before, &after),
            train_loss: trained.loss(),
            train_accuracy: trained.accuracy(),
            held_out_loss: tested.loss(),
            held_out_accuracy: tested.accuracy(),
        });
    }
    let all = train.snapshot();
    // Relative to the empty snapshot, so that it covers all epochs.
    let whole = EpochReport::new(0, all.batches, all.samples, training, &none, &all);
    Ok(DemoReport {
        images: what.images,
        classes: CLASSES,
        chance: 1.0 / f64::from(CLASSES),
        epochs,
        samples_per_second: whole.samples_per_second,
        stall_share: whole.stall_share,
        kept: None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Split {
    Train,
    HeldOut,
}

/// The plan of one split. Both have the same pictures. Only the training split is augmented.
fn plan_text(images: &Path, part: Split) -> Result<String> {
    let root = images.to_str().ok_or_else(|| anyhow!("the name of folder {images:?} is not valid UTF-8"))?;
    let root = toml::Value::from(root);
    let (from, to, shuffle) = match part {
        Split::Train => (0.0, 0.9, true),
        Split::HeldOut => (0.9, 1.0, false),
    };
    let crop = match part {
        Split::Train => {
            "op = \"RandomResizedCrop\"\nsize = 32\nscale = [0.3, 1.0]\n\n[[ops]]\nop = \"RandomHorizontalFlip\""
        }
        Split::HeldOut => "op = \"Resize\"\nsize = [32, 32]",
    };
    Ok(format!(
        "feedline = 1\nbatch_size = 16\nshuffle = {shuffle}\nfields = [\"image\", \"label\"]\n\n\
         [source]\nkind = \"subset\"\nseed = 0\nfrom = {from:?}\nto = {to:?}\n\n\
         [source.of]\nkind = \"folder\"\nroot = {root}\n\n\
         [[ops]]\nop = \"DecodeImage\"\n\n[[ops]]\n{crop}\n\n[[ops]]\nop = \"Normalize\"\n"
    ))
}

/// Runs one epoch. Returns the score of all its samples, and the number of batches.
fn each_batch(
    loader: &Loader,
    progress: &Progress,
    interrupt: &Interrupt<'_>,
    mut judge: impl FnMut(&[f32], &[usize]) -> Score,
) -> Result<(Score, u64)> {
    let iteration = loader.begin()?;
    let (mut score, mut batches) = (Score::default(), 0);
    while let Some(batch) = plan::next(loader, iteration, interrupt)? {
        let (images, labels) = numbers(&batch);
        score.add(judge(&images, &labels));
        batches += 1;
        progress.advance();
        progress.show(|| format!("loss {:.3}, accuracy {:.0} %", score.loss(), 100.0 * score.accuracy()));
    }
    Ok((score, batches))
}

/// The pictures as floats, and their classes.
fn numbers(batch: &Batch) -> (Vec<f32>, Vec<usize>) {
    let bytes = |field: &str| batch.field(field).map(FieldData::bytes).unwrap_or_default();
    // The batch is in the byte order of this machine.
    let images = bytes("image").as_chunks().0.iter().map(|value| f32::from_ne_bytes(*value)).collect();
    let labels = bytes("label").as_chunks().0.iter().map(|label| i64::from_ne_bytes(*label) as usize).collect();
    (images, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_learns_and_keeps_its_plans() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept");
        let what = Demo { images: 400, sides: (48, 80), place: DemoFolder::Kept(kept.clone()) };
        let result = demo(&what, &Arc::new(Registry::core()), &Interrupt::new(&|| false)).unwrap();
        let last = result.epochs.last().unwrap();
        assert!(last.held_out_accuracy > 3.0 * result.chance, "{result:?}");
        assert!(last.train_loss < result.epochs[0].train_loss, "{result:?}");
        assert!(kept.join(TRAIN).is_file() && kept.join(HELD_OUT).is_file() && kept.join("images").is_dir());
    }
}
