//! Draws plots: points and lines in a frame with axes.
//!
//! In: series of points. Out: marks with coordinates, which `svg.rs` writes as SVG, for a page or for a separate file. Always true:
//! every mark is inside the drawing. Points that cannot be drawn are left out.

mod drawing;
mod svg;

pub(crate) use drawing::Drawing;
pub(crate) use svg::escaped;

/// Width of a drawing, in units of the SVG.
const WIDTH: f64 = 720.0;
/// Its height.
const HEIGHT: f64 = 420.0;
/// Margins of the frame, with room for the labels of the axes.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 64.0;
/// With more series than this, lines are drawn faint, because they overlap.
const FEW_SERIES: usize = 8;
/// Lines with more points than this have no dots, because they would hide the line.
const FEW_POINTS: usize = 32;
/// Approximate width of a letter.
const LETTER: f64 = 8.0;
/// Approximate number of grid lines per axis.
const GRID_LINES: f64 = 6.0;

/// A plot.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The data.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Axis {
    /// Its name, with the unit.
    pub name: String,
    /// Whether its scale is logarithmic.
    pub is_logarithmic: bool,
    /// Labels in place of numbers, at 0, 1, 2 and so on.
    pub words: Vec<String>,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Their name. Series of the same name appear once in the legend.
    pub name: String,
    /// Index into the palette.
    pub colour: usize,
    /// Whether they are joined by a line.
    pub is_line: bool,
    /// The points.
    pub points: Vec<(f64, f64)>,
}

/// Colours that are distinguishable on light and dark backgrounds.
const PALETTE: [[u8; 3]; 4] = [[38, 120, 214], [222, 110, 20], [40, 150, 90], [170, 70, 170]];
const GREY: [u8; 3] = [128, 128, 128];

/// An element of the drawing.
#[derive(Clone, Debug)]
enum Mark {
    Line { points: Vec<(f64, f64)>, colour: [u8; 3], stroke: Stroke },
    Dot { at: (f64, f64), colour: [u8; 3] },
    Text { at: (f64, f64), anchor: Anchor, text: String },
}

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stroke {
    /// A line of the grid.
    Grid,
    /// One of many lines that overlap.
    Faint,
    /// One of a few lines.
    Full,
}

/// The part of a text that is at the given point.
#[derive(Clone, Copy, Debug)]
enum Anchor {
    Left,
    Middle,
    Right,
}

/// The visible range of an axis.
#[derive(Clone, Copy)]
struct AxisSpan {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl AxisSpan {
    fn of(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let is_logarithmic = axis.is_logarithmic;
        let fits = |value: &f64| value.is_finite() && (!is_logarithmic || *value > 0.0);
        let (mut low, mut high) =
            values.filter(fits).fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        // No values at all: any range will do.
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        // Labels are at integers. A margin on both sides keeps them inside the frame.
        if !axis.words.is_empty() {
            (low, high) = (-0.3, axis.words.len() as f64 - 0.7);
        } else if is_logarithmic {
            // Rounded outwards to powers of ten.
            (low, high) = (10_f64.powf(low.log10().floor()), 10_f64.powf(high.log10().ceil()));
        } else {
            // A linear axis includes zero, so that lengths can be compared.
            (low, high) = (low.min(0.0), high);
        }
        if low >= high {
            high = low + low.abs().max(1.0);
        }
        Self { low, high, is_logarithmic }
    }

    /// The place of a value on the axis, from 0 to 1. `None` if it is outside.
    fn place(&self, value: f64) -> Option<f64> {
        let scaled = |value: f64| if self.is_logarithmic { value.log10() } else { value };
        // For a value of 0 or less, the logarithm is not finite, and the point is left out below.
        let place = (scaled(value) - scaled(self.low)) / (scaled(self.high) - scaled(self.low));
        // A small tolerance, so that rounding does not remove a point at the border.
        (place.is_finite() && (-1e-9..=1.0 + 1e-9).contains(&place)).then_some(place)
    }

    /// The values of the grid lines.
    fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let (low, high) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
            return (low..=high).map(|power| 10_f64.powi(power)).collect();
        }
        // Steps of 1, 2 or 5 times a power of ten give readable labels.
        let rough = (self.high - self.low) / GRID_LINES;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|number| number as f64 * step).collect()
    }
}

/// A short text for a number, such as `1.5k`.
fn short_number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        large if large >= 1e9 => (value / 1e9, "G"),
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

impl Plot {
    fn marks(&self) -> Vec<Mark> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = AxisSpan::of(&self.x, points().map(|point| point.0));
        let y = AxisSpan::of(&self.y, points().map(|point| point.1));
        let across = |place: f64| LEFT + place * (WIDTH - LEFT - RIGHT);
        // SVG counts downwards from the top.
        let down = |place: f64| HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM);
        let mut marks = vec![Mark::Text { at: (LEFT, 20.0), anchor: Anchor::Left, text: self.title.clone() }];
        let words = (0..).zip(&self.x.words).map(|(number, word)| (f64::from(number), word.clone()));
        let ticks = x.ticks().into_iter().map(|tick| (tick, short_number(tick)));
        let ticks: Vec<(f64, String)> = if self.x.words.is_empty() { ticks.collect() } else { words.collect() };
        for (number, (tick, text)) in ticks.into_iter().enumerate() {
            let Some(place) = x.place(tick) else { continue };
            // Labels are long, so every second one is drawn lower.
            let lower = if self.x.words.is_empty() { 0.0 } else { 13.0 * (number % 2) as f64 };
            let points = vec![(across(place), down(0.0)), (across(place), down(1.0))];
            marks.push(Mark::Line { points, colour: GREY, stroke: Stroke::Grid });
            marks.push(Mark::Text { at: (across(place), down(0.0) + 18.0 + lower), anchor: Anchor::Middle, text });
        }
        for tick in y.ticks() {
            let Some(place) = y.place(tick) else { continue };
            let points = vec![(across(0.0), down(place)), (across(1.0), down(place))];
            marks.push(Mark::Line { points, colour: GREY, stroke: Stroke::Grid });
            marks.push(Mark::Text {
                at: (LEFT - 8.0, down(place) + 4.0),
                anchor: Anchor::Right,
                text: short_number(tick),
            });
        }
        let middle = LEFT.midpoint(WIDTH - RIGHT);
        marks.push(Mark::Text { at: (middle, HEIGHT - 14.0), anchor: Anchor::Middle, text: self.x.name.clone() });
        marks.push(Mark::Text { at: (8.0, TOP - 10.0), anchor: Anchor::Left, text: self.y.name.clone() });
        let mut named = Vec::new();
        // Names are above the frame, so that no line crosses them.
        let mut left = 36.0 + LETTER * self.y.name.chars().count() as f64;
        for series in &self.series {
            let colour = PALETTE[series.colour % PALETTE.len()];
            let place = |&(a, b): &(f64, f64)| Some((across(x.place(a)?), down(y.place(b)?)));
            let points: Vec<(f64, f64)> = series.points.iter().filter_map(place).collect();
            if series.is_line {
                let stroke = if self.series.len() > FEW_SERIES { Stroke::Faint } else { Stroke::Full };
                marks.push(Mark::Line { points: points.clone(), colour, stroke });
            }
            // Points without a line always have dots, otherwise nothing would be visible.
            let is_marked = !series.is_line || (self.series.len() <= FEW_SERIES && points.len() <= FEW_POINTS);
            if is_marked {
                marks.extend(points.into_iter().map(|at| Mark::Dot { at, colour }));
            }
            if !series.name.is_empty() && !named.contains(&&series.name) {
                let line = TOP - 10.0;
                marks.push(Mark::Dot { at: (left, line - 4.0), colour });
                marks.push(Mark::Text { at: (left + 8.0, line), anchor: Anchor::Left, text: series.name.clone() });
                left += 30.0 + LETTER * series.name.chars().count() as f64;
                named.push(&series.name);
            }
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>, is_logarithmic: bool) -> Plot {
        let axis = |name: &str| Axis { name: name.to_owned(), is_logarithmic, words: Vec::new() };
        let series = vec![Series { name: "all".to_owned(), colour: 0, is_line: false, points }];
        Plot { title: "a <b>".to_owned(), x: axis("bytes"), y: axis("saved"), series }
    }

    #[test]
    fn every_point_that_can_be_drawn_is_inside_and_others_are_left_out() {
        let hostile = vec![(1.0, 2.0), (5e9, 3.0), (f64::NAN, 1.0), (0.0, 4.0), (7.0, f64::INFINITY)];
        for is_logarithmic in [false, true] {
            let marks = plot(hostile.clone(), is_logarithmic).marks();
            let dots: Vec<_> = marks
                .iter()
                .filter_map(|mark| if let Mark::Dot { at, .. } = mark { Some(*at) } else { None })
                .collect();
            assert_eq!(dots.len(), if is_logarithmic { 2 } else { 3 } + 1, "and one that tells the colour");
            assert!(dots.iter().all(|(x, y)| (0.0..WIDTH).contains(x) && (0.0..HEIGHT).contains(y)), "{dots:?}");
        }
        assert!(!plot(Vec::new(), true).marks().is_empty());
    }

    #[test]
    fn a_drawing_has_what_is_to_be_seen() {
        let svg = plot(vec![(10.0, 20.0), (1000.0, 4000.0)], true).svg();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("saved"));
    }

    #[test]
    fn numbers_are_told_in_short() {
        let all = [0.0, 0.25, 10.0, 1500.0, 150_528.0, 2e6, 3.1e9].map(short_number);
        assert_eq!(all, ["0", "0.25", "10", "1.5k", "150.53k", "2M", "3.1G"]);
    }
}
