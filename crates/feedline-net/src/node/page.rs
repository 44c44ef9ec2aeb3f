//! The node in a browser: a page that shows `/stats` and refreshes every second.
//!
//! In: a closure that returns the metrics. Out: routes. The page consists of the files in `web/`, which are built into the program.
//! It loads nothing from elsewhere, and its policy forbids it.

use super::stats::NodeStats;
use crate::http::{Page, Routes};

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The colours of all pages, light and dark, as CSS custom properties.
pub const PALETTE: &str = include_str!("../../web/palette.css");

/// The files of the page by path.
const FILES: [(&str, &str, &str); 5] = [
    ("/", HTML, include_str!("../../web/node.html")),
    ("/node.css", STYLE, concat!(include_str!("../../web/palette.css"), include_str!("../../web/node.css"))),
    ("/node.js", SCRIPT, include_str!("../../web/node.js")),
    ("/looks.js", SCRIPT, include_str!("../../web/looks.js")),
    ("/plot.js", SCRIPT, include_str!("../../web/plot.js")),
];

/// The pages of a node.
pub(super) fn routes(stats: impl Fn() -> NodeStats + Clone + Send + Sync + 'static) -> Routes {
    // The files are part of the binary, so a path can never reach the file system.
    FILES.into_iter().fold(Routes::of_numbers(stats), |routes, (path, content_type, body)| {
        routes.with(path, move || Page { status: 200, content_type, body: body.to_owned() })
    })
}
