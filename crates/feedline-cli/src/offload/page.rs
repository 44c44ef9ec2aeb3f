//! The plots of `feedline offload`, as a page and as a picture.

use anyhow::{Context as _, Result};
use feedline_codec::encode_png;
use feedline_engine::offload::{OffloadReport, SamplePoint};

use crate::plot::{self, Axis, Plot, Series, escaped};

const STYLE: &str = ":root{color-scheme:light dark}body{font-family:sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem}\
     svg{width:100%;height:auto}pre{overflow-x:auto}";

fn bytes(name: &str) -> Axis {
    Axis { name: name.to_owned(), is_logarithmic: true, words: Vec::new() }
}

/// The size of each sample after each op.
fn sizes(ops: &[String], points: &[SamplePoint]) -> Plot {
    let most = points.iter().map(|point| point.op_bytes.len()).max().unwrap_or(0);
    let words = std::iter::once("stored".to_owned()).chain(ops.iter().take(most).cloned()).collect();
    let line = |point: &SamplePoint| {
        let all = std::iter::once(point.stored_bytes).chain(point.op_bytes.iter().copied());
        let shrinks = point.op_bytes.iter().any(|bytes| *bytes < point.stored_bytes);
        let name = if shrinks { "smaller in mid-pipeline" } else { "smallest as stored" };
        let points = (0..).zip(all).map(|(op, bytes)| (f64::from(op), bytes as f64)).collect();
        Series { name: name.to_owned(), colour: usize::from(shrinks), is_line: true, points }
    };
    Plot {
        title: "Size of each sample by op".to_owned(),
        x: Axis { name: "op".to_owned(), is_logarithmic: false, words },
        y: bytes("bytes"),
        series: points.iter().map(line).collect(),
    }
}

/// What each sample saves, by its size.
fn benefit(points: &[SamplePoint]) -> Plot {
    let saved = |point: &SamplePoint, to: Option<u64>| {
        let saved = point.stored_bytes.saturating_sub(to?);
        (saved > 0).then_some((point.stored_bytes as f64, saved as f64))
    };
    let by_op = points.iter().filter_map(|point| saved(point, point.op_bytes.iter().min().copied())).collect();
    let trimmed = points.iter().filter_map(|point| saved(point, point.trimmed_bytes)).collect();
    let series = |name: &str, colour, points| Series { name: name.to_owned(), colour, is_line: false, points };
    Plot {
        title: "Bytes saved by size of the sample".to_owned(),
        x: bytes("bytes stored"),
        y: bytes("bytes saved"),
        series: vec![series("trimmed", 2, trimmed), series("smallest op", 1, by_op)],
    }
}

/// A page that needs nothing else.
pub fn html(ops: &[String], report: &OffloadReport, text: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>feedline offload</title>\
         <style>{STYLE}</style><h1>feedline offload</h1><pre>{}</pre>{}{}</html>\n",
        escaped(text),
        sizes(ops, &report.points).svg(),
        benefit(&report.points).svg()
    )
}

/// Both plots below each other.
pub fn png(ops: &[String], report: &OffloadReport) -> Result<Vec<u8>> {
    let mut pixels = sizes(ops, &report.points).pixels();
    pixels.extend(benefit(&report.points).pixels());
    encode_png(&pixels, plot::WIDTH as u32, 2 * plot::HEIGHT as u32, 3).context("cannot write the plots")
}
