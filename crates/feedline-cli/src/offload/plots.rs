//! The plots of `feedline offload`.

use feedline_engine::offload::SamplePoint;

use crate::plot::{Axis, Plot, Series};

/// The size of samples by op, and the bytes saved by size.
pub(super) fn plots(ops: &[String], points: &[SamplePoint]) -> Vec<Plot> {
    vec![sizes(ops, points), benefit(points)]
}

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

/// The bytes that each sample saves, by its size.
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
