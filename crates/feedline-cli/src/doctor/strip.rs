//! The life of batches as text: a row for the trainer and one for each thread, a column for each moment.

use std::fmt::Write as _;

use feedline_core::doctor::Life;

/// Columns, and batches that they show.
const COLUMNS: usize = 72;
const BATCHES: usize = 6;
/// Threads that are shown.
const MOST_THREADS: usize = 16;
/// Letters of the ops, in order.
const LETTERS: &[u8] = b"abcdefghijklmnopqtuvwxyz";

/// A few batches of a stretch; nothing where there was none.
pub fn strip(life: &Life) -> String {
    let Some(first) = life.trainer.get(1).or(life.trainer.first()) else { return String::new() };
    let last = &life.trainer[(BATCHES).min(life.trainer.len() - 1)];
    let (from, to) = (first.asked, last.done);
    if to <= from {
        return String::new();
    }
    let mut out = format!("\n{:.1} ms of the life of batches:\n", (to - from) / 1e3);
    let mut row = |name: &str, spans: &[(f64, f64, char)]| {
        let column = |number: usize| {
            let width = (to - from) / COLUMNS as f64;
            let start = from + number as f64 * width;
            let part = |&(a, b, _): &(f64, f64, char)| b.min(start + width) - a.max(start);
            let longest = spans.iter().max_by(|a, b| part(a).total_cmp(&part(b)));
            longest.filter(|span| part(span) > 0.0).map_or(' ', |span| span.2)
        };
        let drawn: String = (0..COLUMNS).map(column).collect();
        writeln!(out, "  {name:<10}|{drawn}|").expect("a string grows");
    };
    let trainer: Vec<_> = life
        .trainer
        .iter()
        .flat_map(|batch| {
            let wait = (batch.asked, batch.ready, '.');
            [wait, (batch.ready, batch.received, '>'), (batch.received, batch.done, '#')]
        })
        .collect();
    row("trainer", &trainer);
    let letters = letters(&life.stages);
    let threads = life.samples.iter().map(|sample| sample.thread + 1).max().unwrap_or(0);
    for thread in 0..threads.min(MOST_THREADS) {
        let of_thread = life.samples.iter().filter(|sample| sample.thread == thread);
        let spans: Vec<_> = of_thread
            .flat_map(|sample| sample.stages.iter().zip(&letters).map(|((from, to), letter)| (*from, *to, *letter)))
            .collect();
        row(&format!("thread {thread}"), &spans);
    }
    let told: Vec<String> = letters.iter().zip(&life.stages).map(|(letter, name)| format!("{letter} {name}")).collect();
    writeln!(out, "  . wait, > hand-over, # step; {}", told.join(", ")).expect("a string grows");
    out
}

/// `r` for reading, `s` for the way into the slot, and letters in order for the ops between them.
fn letters(stages: &[String]) -> Vec<char> {
    let last = stages.len().saturating_sub(1);
    let letter = |number: usize| match number {
        0 => 'r',
        number if number == last => 's',
        number => char::from(LETTERS[(number - 1) % LETTERS.len()]),
    };
    (0..stages.len()).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use feedline_core::doctor::TrainerLife;
    use feedline_core::metrics::SampleLife;

    use super::*;

    #[test]
    fn rows_show_what_took_most_of_each_moment() {
        let batch = |asked: f64| TrainerLife {
            epoch: 0,
            asked,
            ready: asked + 50.0,
            received: asked + 50.0,
            done: asked + 100.0,
        };
        let stages = vec![(0.0, 10.0), (10.0, 290.0), (290.0, 300.0)];
        let life = Life {
            stages: ["read", "Resize", "slot"].map(str::to_owned).to_vec(),
            samples: vec![SampleLife { batch: 0, slot: 0, id: 0, thread: 0, asked: 0.0, stages }],
            keys: vec!["x".to_owned()],
            batches: Vec::new(),
            trainer: vec![batch(0.0), batch(100.0), batch(200.0)],
        };
        let text = strip(&life);
        let rows: Vec<&str> = text.lines().collect();
        let half = "#".repeat(COLUMNS / 4);
        assert!(rows[2].contains(&format!(".{half}.")), "{text}");
        assert!(rows[3].contains("aaaaaaaa") && rows[3].starts_with("  thread 0"), "{text}");
        assert!(rows[4].ends_with("r read, a Resize, s slot"), "{text}");
        assert_eq!(strip(&Life::default()), "");
    }
}
