//! The plots of `feedline shuffle`, as a page and as a picture.

use anyhow::{Context as _, Result};
use feedline_codec::encode_png;
use feedline_data::plan::ShuffleReport;

use crate::plot::{self, Axis, Plot, Series, escaped};

const STYLE: &str = ":root{color-scheme:light dark}body{font-family:sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem}\
     svg{width:100%;height:auto}pre{overflow-x:auto}";

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

/// A page that needs nothing else.
pub fn html(report: &ShuffleReport, text: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>feedline shuffle</title>\
         <style>{STYLE}</style><h1>feedline shuffle</h1><pre>{}</pre>{}{}</html>\n",
        escaped(text),
        neighbours(report).svg(),
        places(report).svg()
    )
}

/// Both plots below each other.
pub fn png(report: &ShuffleReport) -> Result<Vec<u8>> {
    let mut pixels = neighbours(report).pixels();
    pixels.extend(places(report).pixels());
    encode_png(&pixels, plot::WIDTH as u32, 2 * plot::HEIGHT as u32, 3).context("cannot write the plots")
}
