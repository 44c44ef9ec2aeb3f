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

    /// Adds one counter for each value of a label. Labels are names of ours: letters, digits and underscores.
    pub fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.head(name, help, "counter");
        for (of, value) in values {
            self.line(name, &format!("{{{label}=\"{of}\"}}"), value);
        }
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n").expect("a String takes all");
    }

    fn line(&mut self, name: &str, label: &str, value: impl Display) {
        writeln!(self.0, "{name}{label} {value}").expect("a String takes all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_its_help_type_and_lines() {
        let mut text = Exposition::default();
        text.gauge("connections", "Clients now.", 3);
        text.counters("requests_total", "Requests.", "kind", [("open", 1), ("read", 20)]);
        text.counter("cpu_seconds_total", "Seconds.", 0.5);
        let expected = "# HELP connections Clients now.\n# TYPE connections gauge\nconnections 3\n\
                        # HELP requests_total Requests.\n# TYPE requests_total counter\n\
                        requests_total{kind=\"open\"} 1\nrequests_total{kind=\"read\"} 20\n\
                        # HELP cpu_seconds_total Seconds.\n# TYPE cpu_seconds_total counter\ncpu_seconds_total 0.5\n";
        assert_eq!(text.into_text(), expected);
    }
}
