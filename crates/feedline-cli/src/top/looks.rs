//! Looks at a node, and how fast its numbers grow.
//!
//! In: what the node says of itself, time after time. Out: growth per second over the last ten seconds: jobs get samples by the
//! segment, so a shorter time would show jumps. The page of the node does the same.

use std::collections::VecDeque;

use serde_json::Value;

/// How far back a rate looks, in seconds.
const OVER: f64 = 10.0;

/// The latest looks, the newest last; never empty.
#[derive(Clone, Debug)]
pub(super) struct Looks(VecDeque<Value>);

/// The number at a path; 0 if there is none.
pub(super) fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
}

/// The list at a path; empty if there is none.
pub(super) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

impl Looks {
    /// The first look.
    pub(super) fn new(stats: Value) -> Self {
        Self(VecDeque::from([stats]))
    }

    /// Takes another look, and forgets those that no rate needs any more.
    pub(super) fn add(&mut self, stats: Value) {
        let now = number(&stats, "/seconds");
        self.0.push_back(stats);
        while self.0.get(1).is_some_and(|second| number(second, "/seconds") <= now - OVER) {
            self.0.pop_front();
        }
    }

    /// The newest look.
    pub(super) fn newest(&self) -> &Value {
        self.0.back().expect("a look is there from the beginning")
    }

    /// How much the number at `field` grows each second, of the entry of the list at `of` whose `name` is that of `entry`.
    pub(super) fn rate(&self, of: &str, name: &str, entry: &Value, field: &str) -> f64 {
        let newest = (number(self.newest(), "/seconds"), number(entry, field));
        let mut oldest = newest;
        for look in self.0.iter().rev().skip(1) {
            let same = list(look, of).iter().find(|other| other.get(name) == entry.get(name));
            let Some(value) = same.map(|same| number(same, field)) else { break };
            // It has begun anew since then.
            if value > oldest.1 {
                break;
            }
            oldest = (number(look, "/seconds"), value);
        }
        if newest.0 > oldest.0 { (newest.1 - oldest.1) / (newest.0 - oldest.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn look(seconds: f64, runs: &[(&str, u64)]) -> Value {
        let runs: Vec<Value> = runs.iter().map(|(key, samples)| json!({"key": key, "samples": samples})).collect();
        json!({"seconds": seconds, "runs": runs})
    }

    #[track_caller]
    fn check(looks: &Looks, key: &str, expected: f64) {
        let run = list(looks.newest(), "/runs").iter().find(|run| run["key"] == key).expect("it is there");
        let rate = looks.rate("/runs", "key", run, "/samples");
        assert!((rate - expected).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn rates_are_those_of_ten_seconds_or_since_an_entry_is_there_or_began_anew() {
        let mut looks = Looks::new(look(100.0, &[("a", 1000), ("c", 500)]));
        check(&looks, "a", 0.0);
        for second in 1..=20 {
            let of_c = if second < 18 { 500 + second } else { second };
            looks.add(look(
                100.0 + second as f64,
                &[("a", 1000 + 10 * second * second), ("b", 7 * second), ("c", of_c)],
            ));
        }
        check(&looks, "a", 10.0 * (400.0 - 100.0) / 10.0);
        check(&looks, "b", 7.0);
        check(&looks, "c", 1.0);
        assert_eq!(looks.0.len(), 11);
    }
}
