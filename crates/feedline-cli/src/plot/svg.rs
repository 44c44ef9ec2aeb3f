//! Plots as SVG: an element of a page, or a separate file.

use std::fmt::Write as _;

use super::{Anchor, HEIGHT, Mark, Plot, Stroke, WIDTH};

const FONT: &str = "font-family=\"sans-serif\" font-size=\"12\"";

impl Plot {
    /// The plot as an element of a page. Its text has the colour of the page's text.
    pub(crate) fn svg(&self) -> String {
        let name = escaped(&self.title);
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name}\" {FONT}>{}</svg>\n",
            self.content()
        )
    }

    fn content(&self) -> String {
        let mut out = String::new();
        for mark in self.marks() {
            write_mark(&mark, &mut out).expect("writing to a String cannot fail");
        }
        out
    }
}

/// A file with plots from top to bottom, dark on white.
pub(super) fn file(plots: &[Plot]) -> String {
    let height = HEIGHT * plots.len() as f64;
    let plots = (0..).zip(plots).map(|(number, plot)| {
        let (top, name) = (HEIGHT * f64::from(number), escaped(&plot.title));
        format!("<g transform=\"translate(0 {top})\" role=\"img\" aria-label=\"{name}\">{}</g>\n", plot.content())
    });
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         color=\"#1e1e1e\" {FONT}>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
        plots.collect::<String>()
    )
}

fn write_mark(mark: &Mark, out: &mut String) -> std::fmt::Result {
    match mark {
        Mark::Line { points, colour: [r, g, b], stroke } => {
            let (width, opacity) = match stroke {
                Stroke::Grid => (1.0, 0.3),
                Stroke::Faint => (1.0, 0.35),
                Stroke::Full => (2.5, 1.0),
            };
            write!(out, "<polyline fill=\"none\" stroke=\"rgb({r},{g},{b})\" stroke-width=\"{width}\" ")?;
            write!(out, "stroke-opacity=\"{opacity}\" points=\"")?;
            points.iter().try_for_each(|(x, y)| write!(out, "{x:.1},{y:.1} "))?;
            out.push_str("\"/>");
            Ok(())
        }
        Mark::Dot { at: (x, y), colour: [r, g, b] } => {
            write!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"rgb({r},{g},{b})\" fill-opacity=\"0.7\"/>"
            )
        }
        Mark::Text { at: (x, y), anchor, text } => {
            let anchor = match anchor {
                Anchor::Left => "start",
                Anchor::Middle => "middle",
                Anchor::Right => "end",
            };
            let text = escaped(text);
            write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"currentColor\">{text}</text>")
        }
    }
}

/// Escapes a text for HTML and SVG.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
