//! The plots of `feedline shuffle`.

use feedline_data::plan::ShuffleReport;

use crate::plot::{Axis, Plot, Series};

/// The distance of stored neighbours in the epoch, and the storage place of samples by position.
pub(super) fn plots(report: &ShuffleReport) -> Vec<Plot> {
    vec![neighbours(report), places(report)]
}

fn axis(name: &str) -> Axis {
    Axis { name: name.to_owned(), ..Axis::default() }
}

/// The distances in the epoch of samples that are stored side by side.
fn neighbours(report: &ShuffleReport) -> Plot {
    let [plan, full] = &report.curves;
    let series = |name: &str, colour, points: &Vec<(f64, f64)>| Series {
        name: name.to_owned(),
        colour,
        is_line: true,
        points: points.clone(),
    };
    Plot {
        title: "Distance in the epoch of samples stored side by side".to_owned(),
        x: axis("distance, as a fraction of an epoch"),
        y: axis("fraction of pairs within this distance"),
        series: vec![series("plan", 1, plan), series("full shuffle", 0, full)],
    }
}

/// The place of samples in the source, by their position in the epoch.
fn places(report: &ShuffleReport) -> Plot {
    let points = report.places.iter().map(|&(position, ordinal)| (position as f64, ordinal as f64)).collect();
    Plot {
        title: "Place in the source by position in the epoch".to_owned(),
        x: axis("position in the epoch"),
        y: axis("number in the source"),
        series: vec![Series { name: String::new(), colour: 1, is_line: false, points }],
    }
}
