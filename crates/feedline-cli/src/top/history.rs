//! Recent metrics of a node, and the rates at which its counters grow.
//!
//! In: the metrics of the node, one after the other. Out: growth per second over the last ten seconds. Jobs receive samples in
//! whole segments, so a shorter time would show jumps. The page of the node computes rates in the same way.

use std::collections::VecDeque;

use serde_json::Value;

/// The time over which rates are computed, in seconds.
const RATE_SECONDS: f64 = 10.0;

/// The latest metrics, the newest last. Never empty.
#[derive(Clone, Debug)]
pub(super) struct History(VecDeque<Value>);

/// The number at a JSON pointer, or 0.
pub(super) fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
}

/// The list at a JSON pointer, or an empty one.
pub(super) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

impl History {
    /// A history with its first entry.
    pub(super) fn new(stats: Value) -> Self {
        Self(VecDeque::from([stats]))
    }

    /// Adds an entry, and removes entries that are too old for any rate.
    pub(super) fn add(&mut self, stats: Value) {
        let now = number(&stats, "/seconds");
        self.0.push_back(stats);
        // The oldest entry may go once the second one is old enough to compute a full rate.
        while self.0.get(1).is_some_and(|second| number(second, "/seconds") <= now - RATE_SECONDS) {
            self.0.pop_front();
        }
    }

    /// The newest entry.
    pub(super) fn newest(&self) -> &Value {
        self.0.back().expect("there is an entry from the start")
    }

    /// Growth per second of the number at `field` of a list item. `of` is the list, and `name` is the field that identifies `entry`
    /// in it.
    pub(super) fn rate(&self, of: &str, name: &str, entry: &Value, field: &str) -> f64 {
        let newest = (number(self.newest(), "/seconds"), number(entry, field));
        let mut oldest = newest;
        // Goes back in time until the item did not exist or its counter was reset.
        for stats_at in self.0.iter().rev().skip(1) {
            let same = list(stats_at, of).iter().find(|other| other.get(name) == entry.get(name));
            let Some(value) = same.map(|same| number(same, field)) else { break };
            // A counter that was larger before has started again since then.
            if value > oldest.1 {
                break;
            }
            oldest = (number(stats_at, "/seconds"), value);
        }
        if newest.0 > oldest.0 { (newest.1 - oldest.1) / (newest.0 - oldest.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stats_at(seconds: f64, runs: &[(&str, u64)]) -> Value {
        let runs: Vec<Value> = runs.iter().map(|(key, samples)| json!({"key": key, "samples": samples})).collect();
        json!({"seconds": seconds, "runs": runs})
    }

    #[track_caller]
    fn check(history: &History, key: &str, expected: f64) {
        let run = list(history.newest(), "/runs").iter().find(|run| run["key"] == key).expect("it is there");
        let rate = history.rate("/runs", "key", run, "/samples");
        assert!((rate - expected).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn rates_are_those_of_ten_seconds_or_since_an_entry_is_there_or_began_anew() {
        let mut history = History::new(stats_at(100.0, &[("a", 1000), ("c", 500)]));
        check(&history, "a", 0.0);
        for second in 1..=20 {
            let of_c = if second < 18 { 500 + second } else { second };
            history.add(stats_at(
                100.0 + second as f64,
                &[("a", 1000 + 10 * second * second), ("b", 7 * second), ("c", of_c)],
            ));
        }
        check(&history, "a", 10.0 * (400.0 - 100.0) / 10.0);
        check(&history, "b", 7.0);
        check(&history, "c", 1.0);
        assert_eq!(history.0.len(), 11);
    }
}
