//! Numbers in the text format that Prometheus reads.

use std::fmt::{Display, Write as _};

/// A text that grows by one metric at a time.
#[derive(Clone, Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Adds a number that only grows; its name ends in `_total`.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "counter");
        self.line(name, "", value);
    }

    /// Adds a number that comes and goes.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "gauge");
        self.line(name, "", value);
    }

    /// Adds one counter for each combination of values that some labels have.
    pub fn counters<const N: usize, L: AsRef<str>, V: Display>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([L; N], V)>,
    ) {
        self.head(name, help, "counter");
        self.lines(name, labels, values);
    }

    /// Adds one number that comes and goes for each combination of values that some labels have.
    pub fn gauges<const N: usize, L: AsRef<str>, V: Display>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([L; N], V)>,
    ) {
        self.head(name, help, "gauge");
        self.lines(name, labels, values);
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n").expect("a String takes all");
    }

    fn lines<const N: usize, L: AsRef<str>, V: Display>(
        &mut self,
        name: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([L; N], V)>,
    ) {
        for (of, value) in values {
            let pair = |(label, of): (&str, &L)| format!("{label}=\"{}\"", escaped(of.as_ref()));
            let pairs: Vec<String> = labels.into_iter().zip(&of).map(pair).collect();
            self.line(name, &format!("{{{}}}", pairs.join(",")), value);
        }
    }

    fn line(&mut self, name: &str, label: &str, value: impl Display) {
        writeln!(self.0, "{name}{label} {value}").expect("a String takes all");
    }
}

/// The value of a label, as it stands between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_its_help_type_and_lines() {
        let mut text = Exposition::default();
        text.gauge("connections", "Clients now.", 3);
        text.counters("requests_total", "Requests.", ["kind"], [(["open"], 1), (["read"], 20)]);
        text.gauges("share", "Of all.", ["of", "in"], [(["a \"b\"\\c\n", "d"], 0.5)]);
        text.counter("cpu_seconds_total", "Seconds.", 0.5);
        let expected = "# HELP connections Clients now.\n# TYPE connections gauge\nconnections 3\n\
                        # HELP requests_total Requests.\n# TYPE requests_total counter\n\
                        requests_total{kind=\"open\"} 1\nrequests_total{kind=\"read\"} 20\n\
                        # HELP share Of all.\n# TYPE share gauge\nshare{of=\"a \\\"b\\\"\\\\c\\n\",in=\"d\"} 0.5\n\
                        # HELP cpu_seconds_total Seconds.\n# TYPE cpu_seconds_total counter\ncpu_seconds_total 0.5\n";
        assert_eq!(text.into_text(), expected);
    }
}
