//! The plots of `feedline shuffle`.

use feedline_data::plan::ShuffleReport;

use crate::plot::{Axis, Plot, Series};

/// How far apart stored neighbours come, and where samples are stored by when they come.
pub(super) fn plots(report: &ShuffleReport) -> Vec<Plot> {
    vec![neighbours(report), places(report)]
}

fn axis(name: &str) -> Axis {
    Axis { name: name.to_owned(), ..Axis::default() }
}

/// How far apart stored neighbours come.
fn neighbours(report: &ShuffleReport) -> Plot {
    let [plan, full] = &report.curves;
    let series = |name: &str, colour, points: &Vec<(f64, f64)>| Series {
        name: name.to_owned(),
        colour,
        is_line: true,
        points: points.clone(),
    };
    Plot {
        title: "Samples stored side by side: how far apart they come".to_owned(),
        x: axis("distance, in parts of an epoch"),
        y: axis("share of them within it"),
        series: vec![series("plan", 1, plan), series("full shuffle", 0, full)],
    }
}

/// Where samples are stored, and when they come.
fn places(report: &ShuffleReport) -> Plot {
    let points = report.places.iter().map(|&(position, ordinal)| (position as f64, ordinal as f64)).collect();
    Plot {
        title: "Where samples are stored, by when they come".to_owned(),
        x: axis("position in the epoch"),
        y: axis("number in the source"),
        series: vec![Series { name: String::new(), colour: 1, is_line: false, points }],
    }
}
