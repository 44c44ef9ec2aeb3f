//! Metrics in Prometheus' text format, and as data.
//!
//! In: metrics, one after the other. Out: the text of a scrape, or the metrics themselves.

use std::fmt::Write as _;

/// The metrics of one process at one time.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    /// Labels of all values.
    common: Vec<(&'static str, String)>,
    metrics: Vec<Metric>,
}

/// One metric with all its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name with the unit. The name of a counter ends in `_total`.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// Values by labels.
    pub values: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It may rise and fall.
    Gauge,
}

impl MetricKind {
    /// Its name in the text format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// A number that can be a value. Counts up to 2^53 are exact, as in Prometheus itself.
pub trait MetricNumber: Copy {
    /// As a value.
    fn value(self) -> f64;
}

macro_rules! number {
    ($($kind:ty)*) => {
        $(impl MetricNumber for $kind {
            fn value(self) -> f64 {
                // Exact up to 2^53, the integers that an f64 can hold.
                self as f64
            }
        })*
    };
}

number! { f64 u64 usize }

impl Exposition {
    /// An empty exposition. All its values get these labels.
    pub fn labelled(common: Vec<(&'static str, String)>) -> Self {
        Self { common, metrics: Vec::new() }
    }

    /// Adds a counter. Its name ends in `_total`.
    pub fn counter(&mut self, name: &'static str, help: &'static str, value: impl MetricNumber) {
        self.counters(name, help, [], [([""; 0], value)]);
    }

    /// Adds a gauge.
    pub(crate) fn gauge(&mut self, name: &'static str, help: &'static str, value: impl MetricNumber) {
        self.gauges(name, help, [], [([""; 0], value)]);
    }

    /// Adds a counter with one value for each combination of labels.
    pub fn counters<const N: usize, L: Into<String>, V: MetricNumber>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        values: impl IntoIterator<Item = ([L; N], V)>,
    ) {
        debug_assert!(name.ends_with("_total"), "{name} is a counter");
        self.add(name, help, MetricKind::Counter, labels, values);
    }

    /// Adds a gauge with one value for each combination of labels.
    pub(crate) fn gauges<const N: usize, L: Into<String>, V: MetricNumber>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        values: impl IntoIterator<Item = ([L; N], V)>,
    ) {
        self.add(name, help, MetricKind::Gauge, labels, values);
    }

    fn add<const N: usize, L: Into<String>, V: MetricNumber>(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: MetricKind,
        labels: [&'static str; N],
        values: impl IntoIterator<Item = ([L; N], V)>,
    ) {
        let labelled = |(of, value): ([L; N], V)| {
            let own = labels.into_iter().zip(of.map(Into::into));
            (self.common.iter().cloned().chain(own).collect(), value.value())
        };
        let values = values.into_iter().map(labelled).collect();
        self.metrics.push(Metric { name, help, kind, values });
    }

    /// The metrics, in the order in which they were added.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The text of a scrape.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Metric { name, help, kind, values } in &self.metrics {
            write!(text, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name())
                .expect("writing to a String cannot fail");
            for (labels, value) in values {
                let pairs: Vec<String> =
                    labels.iter().map(|(label, of)| format!("{label}=\"{}\"", escaped(of))).collect();
                // The text format has no empty braces: a value without labels is only `name value`.
                let pairs = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
                writeln!(text, "{name}{pairs} {value}").expect("writing to a String cannot fail");
            }
        }
        text
    }
}

/// The value of a label, escaped for quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_its_help_type_and_lines() {
        let mut text = Exposition::default();
        text.gauge("connections", "Clients now.", 3_u64);
        text.counters("requests_total", "Requests.", ["kind"], [(["open"], 1_u64), (["read"], 20)]);
        text.gauges("share", "Of all.", ["of", "in"], [(["a \"b\"\\c\n", "d"], 0.5)]);
        text.counter("cpu_seconds_total", "Seconds.", 0.5);
        let expected = "# HELP connections Clients now.\n# TYPE connections gauge\nconnections 3\n\
                        # HELP requests_total Requests.\n# TYPE requests_total counter\n\
                        requests_total{kind=\"open\"} 1\nrequests_total{kind=\"read\"} 20\n\
                        # HELP share Of all.\n# TYPE share gauge\nshare{of=\"a \\\"b\\\"\\\\c\\n\",in=\"d\"} 0.5\n\
                        # HELP cpu_seconds_total Seconds.\n# TYPE cpu_seconds_total counter\ncpu_seconds_total 0.5\n";
        assert_eq!(text.text(), expected);
    }

    #[test]
    fn labels_of_all_stand_before_those_of_one() {
        let mut text = Exposition::labelled(vec![("rank", "1".to_owned())]);
        text.gauge("a", "A.", 1_u64 << 40);
        text.counters("b_total", "B.", ["op"], [(["x"], 2_u64)]);
        let lines: Vec<String> = text.text().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        assert_eq!(lines, ["a{rank=\"1\"} 1099511627776", "b_total{rank=\"1\",op=\"x\"} 2"]);
        assert_eq!(text.metrics()[1].values, [(vec![("rank", "1".to_owned()), ("op", "x".to_owned())], 2.0)]);
    }
}
