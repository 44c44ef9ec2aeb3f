//! `feedline show`: draws the first samples of an epoch.
//!
//! In: a plan. Out: a PNG with one cell per sample, and its label below. Each sample is a batch of its own, so that pictures of
//! different sizes can be shown.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use feedline_codec::encode_png;
use feedline_data::batch::{Batch, FieldData, Unslotted};
use feedline_data::plan::{Document, Plan, Registry};
use feedline_data::source::Source;
use feedline_order::{Epoch, SampleId};
use serde::Serialize;

use crate::arguments::ShowArguments;
use crate::atomic_file::write_atomically;
use crate::grid::{self, Grid};
use crate::interrupt::Interrupt;
use crate::picture::{Array, Picture, Scale};
use crate::plan;

/// The drawing that was written.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shown {
    path: PathBuf,
    samples: usize,
    epoch: u64,
    field: String,
    columns: usize,
    rows: usize,
    width: usize,
    height: usize,
    labels: Vec<String>,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, samples, epoch, field, width, height, .. } = self;
        writeln!(f, "wrote {samples} samples of epoch {epoch}, field {field:?}, to {path:?}, {width} x {height} pixels")
    }
}

/// Draws the first samples.
pub(crate) fn show(what: ShowArguments, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Shown> {
    if what.out.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("png")) {
        return Err(anyhow!("{:?} does not end in .png, which is the only supported format", what.out));
    }
    let document = one_by_one(plan::read(&what.plan)?);
    let opened = plan::open(document, registry, interrupt).with_context(|| format!("in plan {:?}", what.plan))?;
    let batches = take(Arc::clone(&opened), what.epoch, usize::from(what.samples), interrupt)?;
    let first = batches.first().ok_or_else(|| anyhow!("epoch {} has no samples", what.epoch))?;
    let field = picture_field(first).ok_or_else(|| no_pictures(first))?;
    let scale = normalisation(&opened, &field);
    let labelled: Result<Vec<(Picture, String)>> = batches
        .iter()
        .map(|batch| {
            let array = array_of(batch, &field).ok_or_else(|| no_pictures(batch))?;
            let picture = Picture::new(&array, scale.as_ref()).ok_or_else(|| no_pictures(batch))?;
            Ok((picture, label_of(batch, &**opened.source())))
        })
        .collect();
    let labelled = labelled?;
    let grid = Grid::new(labelled.iter().map(|(picture, _)| picture));
    let pixels = grid.draw(&labelled)?;
    write_png(&what.out, &pixels, &grid)?;
    Ok(Shown {
        path: what.out,
        samples: labelled.len(),
        epoch: what.epoch,
        field,
        columns: grid.columns,
        rows: grid.rows,
        width: grid.width(),
        height: grid.height(),
        labels: labelled.into_iter().map(|(_, label)| label).collect(),
    })
}

fn write_png(path: &Path, pixels: &[u8], grid: &Grid) -> Result<()> {
    let png = encode_png(pixels, grid.width() as u32, grid.height() as u32, grid::CHANNELS)?;
    write_atomically(path, &png).with_context(|| format!("cannot write {path:?}"))
}

/// The plan with batches of one sample, and with the index of each sample as a field.
fn one_by_one(mut document: Document) -> Document {
    document.settings.batch_size = 1;
    if let Some(fields) = &mut document.settings.fields
        && !fields.iter().any(|field| field == "index")
    {
        fields.push("index".to_owned());
    }
    document
}

fn take(plan: Arc<Plan>, epoch: u64, samples: usize, interrupt: &Interrupt<'_>) -> Result<Vec<Batch>> {
    let loader = plan::loader(plan);
    loader.set_epoch(Epoch(epoch))?;
    let iteration = loader.begin()?;
    let mut batches = Vec::new();
    while batches.len() < samples
        && let Some(batch) = plan::next(&loader, iteration, interrupt)?
    {
        batches.push(batch);
    }
    loader.close();
    Ok(batches)
}

/// The value of a field of the only sample in a batch.
fn array_of<'b>(batch: &'b Batch, field: &str) -> Option<Array<'b>> {
    match batch.field(field)? {
        data @ (FieldData::Region { dtype, shape, .. } | FieldData::Stacked { dtype, shape, .. }) => {
            // Without the batch dimension, which is 1.
            Some(Array { dtype: *dtype, shape: &shape[1..], bytes: data.bytes() })
        }
        FieldData::List(values) => match values.first()? {
            Unslotted::Array { dtype, shape, bytes } => Some(Array { dtype: *dtype, shape, bytes }),
            Unslotted::Text(_) => None,
        },
    }
}

/// The first field that contains pictures.
fn picture_field(batch: &Batch) -> Option<String> {
    let names = batch.fields.iter().map(|field| &*field.name);
    names.into_iter().find(|name| array_of(batch, name).is_some_and(|array| array.is_picture())).map(str::to_owned)
}

fn no_pictures(batch: &Batch) -> anyhow::Error {
    let names: Vec<String> = batch
        .fields
        .iter()
        .map(|field| match array_of(batch, &field.name) {
            Some(array) => format!("{:?} {} {:?}", field.name, array.dtype.name(), array.shape),
            None => format!("{:?} text", field.name),
        })
        .collect();
    anyhow!(
        "no field contains pictures (height x width x 1 or 3, or channels first); the fields are {}; add DecodeImage to the plan",
        names.join(", ")
    )
}

/// The parameters with which `Normalize` changed a field, from the plan.
fn normalisation(plan: &Plan, field: &str) -> Option<Scale> {
    // The last `Normalize` of the field determines the values that are delivered.
    let table = plan.ops().iter().rev().filter(|op| &**op.name() == "Normalize").find_map(|op| {
        let is_on = op.op().on().names().any(|name| name == field);
        op.table().ok().filter(|_| is_on)
    })?;
    let numbers = |key: &str| -> Option<Vec<f32>> {
        table.get(key)?.as_array()?.iter().map(|value| value.as_float().map(|float| float as f32)).collect()
    };
    Some(Scale { mean: numbers("mean")?, std: numbers("std")? })
}

/// The name of the class, its number, the field "label", or the key of the sample: the first that exists.
fn label_of(batch: &Batch, source: &dyn Source) -> String {
    let id = batch.ids().first().map(|&id| SampleId(id as u64));
    let class = id.and_then(|id| source.class_of(id));
    // Samples without a class have a negative label.
    let label = class.or_else(|| array_of(batch, "label")?.as_integer()).filter(|label| *label >= 0);
    let named = label.and_then(|label| source.classes().get(usize::try_from(label).ok()?));
    match (named, label, id) {
        (Some(name), ..) => name.clone(),
        (None, Some(label), _) => label.to_string(),
        (None, None, Some(id)) => source.key(id).into_owned(),
        (None, None, None) => String::new(),
    }
}
