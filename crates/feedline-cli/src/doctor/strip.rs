//! The timeline of batches as text. Rows: the trainer, each thread, and a few batches. Columns: equal intervals of time.

use std::fmt::Write as _;

use feedline_diagnose::doctor::{BatchRow, BatchSpan, BatchStage, Life};

/// Number of columns, and of the trainer's batches to show if no batch has a row.
const COLUMNS: usize = 72;
const BATCHES: usize = 6;
/// Width of names, and of a line of the legend, in characters.
const NAME: usize = 16;
const LEGEND: usize = 86;
/// Upper limits of rows for threads and for batches.
const MAX_THREADS: usize = 16;
const BATCH_ROWS: usize = 4;
/// Letters of the ops, in order.
const LETTERS: &[u8] = b"abcdefghijklmnopqtuvwxyz";

/// Start, end, and the character that is drawn there.
type Drawn = (f64, f64, char);

/// The timeline of a few batches. Empty if nothing was recorded.
pub(super) fn strip(life: &Life) -> String {
    let is_whole = |row: &BatchRow| row.spans.iter().any(|span| span.stage == BatchStage::Step);
    let batches: Vec<BatchRow> = life.rows().into_iter().filter(is_whole).take(BATCH_ROWS).collect();
    let Some((from, to)) = window(life, &batches) else { return String::new() };
    let mut out = format!("\ntimeline of batches, {:.1} ms:\n", (to - from) / 1e3);
    let width = (to - from) / COLUMNS as f64;
    let mut row = |name: &str, spans: &[Drawn]| {
        let column = |number: usize| {
            let start = from + number as f64 * width;
            let part = |&(a, b, _): &Drawn| b.min(start + width) - a.max(start);
            // Each column shows the span that covers most of its interval.
            let longest = spans.iter().max_by(|a, b| part(a).total_cmp(&part(b)));
            longest.filter(|span| part(span) > 0.0).map_or(' ', |span| span.2)
        };
        let drawn: String = (0..COLUMNS).map(column).collect();
        writeln!(out, "  {name:<NAME$}|{drawn}|").expect("writing to a String cannot fail");
    };
    let trainer = life.trainer.iter().flat_map(|batch| {
        let wait = (batch.asked, batch.ready, '.');
        [wait, (batch.ready, batch.received, '>'), (batch.received, batch.done, '#')]
    });
    row("trainer", &trainer.collect::<Vec<_>>());
    let letters = letters(&life.stages);
    // Thread numbers start at 0, so the largest plus one is their count.
    let threads = life.samples.iter().map(|sample| sample.thread + 1).max().unwrap_or(0);
    for thread in 0..threads.min(MAX_THREADS) {
        let of_thread = life.samples.iter().filter(|sample| sample.thread == thread);
        let spans: Vec<_> = of_thread
            .flat_map(|sample| sample.stages.iter().zip(&letters).map(|((from, to), letter)| (*from, *to, *letter)))
            .collect();
        row(&format!("thread {thread}"), &spans);
    }
    for batch in &batches {
        row(&format!("epoch {} batch {}", batch.epoch, batch.number), &drawn(batch, (from, width)));
    }
    let trainer = [". wait", "> hand-over", "# step"].map(str::to_owned);
    let threads = letters.iter().zip(&life.stages).map(|(letter, name)| format!("{letter} {name}"));
    // Hand-over and step have the same characters as in the row of the trainer.
    let own = BatchStage::ALL.into_iter().filter(|stage| !matches!(stage, BatchStage::HandOver | BatchStage::Step));
    let own = own.map(|stage| format!("{} {}", mark(stage), stage.name()));
    out.push_str(&legend("trainer", &trainer));
    out.push_str(&legend("threads", &threads.collect::<Vec<_>>()));
    if !batches.is_empty() {
        out.push_str(&legend("batches", &own.collect::<Vec<_>>()));
    }
    out
}

/// The time range to show: that of the batches with rows, otherwise that of some of the trainer's batches.
fn window(life: &Life, batches: &[BatchRow]) -> Option<(f64, f64)> {
    let spans = || batches.iter().flat_map(|row| &row.spans);
    let whole = spans().map(|span| span.from).reduce(f64::min).zip(spans().map(|span| span.to).reduce(f64::max));
    let (from, to) = match whole {
        // A sample that started early may have begun before the recording, at a negative time.
        Some((from, to)) => (from.max(0.0), to),
        None => (life.trainer.first()?.asked, life.trainer.iter().take(BATCHES).next_back()?.done),
    };
    (to > from).then_some((from, to))
}

/// The stages of a batch. The order takes too little time to be seen, so it is widened to one column.
fn drawn(batch: &BatchRow, (from, width): (f64, f64)) -> Vec<Drawn> {
    let (order, others): (Vec<&BatchSpan>, _) = batch.spans.iter().partition(|span| span.stage == BatchStage::Order);
    let column = |time: f64| from + ((time - from) / width).floor() * width;
    let others = others.into_iter().map(|span| (span.from, span.to, mark(span.stage)));
    let order = order.into_iter().map(|span| (column(span.from), span.to, span.stage));
    // If several stages fill a column equally, the last one is drawn.
    others.chain(order.map(|(from, to, stage)| (from, to.max(from + width), mark(stage)))).collect()
}

/// The character of a stage of a batch.
fn mark(stage: BatchStage) -> char {
    match stage {
        BatchStage::Order => '!',
        BatchStage::Begin => '-',
        BatchStage::Prepare => '=',
        BatchStage::Turn => '~',
        BatchStage::HandOver => '>',
        BatchStage::Step => '#',
    }
}

/// `r` for reading, `s` for writing to the slot, and other letters in order for the ops between them.
fn letters(stages: &[String]) -> Vec<char> {
    let last = stages.len().saturating_sub(1);
    let letter = |number: usize| match number {
        0 => 'r',
        number if number == last => 's',
        number => char::from(LETTERS[(number - 1) % LETTERS.len()]),
    };
    (0..stages.len()).map(letter).collect()
}

/// The legend of some rows, wrapped to [`LEGEND`] characters.
fn legend(rows: &str, entries: &[String]) -> String {
    let mut lines = vec![format!("  {rows}:")];
    for (number, entry) in entries.iter().enumerate() {
        let entry = if number + 1 < entries.len() { format!("{entry},") } else { entry.clone() };
        let line = lines.last_mut().expect("there is always a line");
        if line.chars().count() + 1 + entry.chars().count() > LEGEND {
            lines.push(format!("    {entry}"));
        } else {
            line.push(' ');
            line.push_str(&entry);
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::example::life;

    #[test]
    fn rows_show_what_took_most_of_each_moment() {
        let text = strip(&life());
        let rows: Vec<&str> = text.lines().collect();
        assert!(rows[2].starts_with("  trainer") && rows[2].contains(&"#".repeat(10)), "{text}");
        assert!(rows[3].starts_with("  thread 0") && rows[3].contains("aaaaa"), "{text}");
        assert!(text.contains("r read, a Resize, s slot"), "{text}");
        assert_eq!(strip(&Life::default()), "");
    }

    #[test]
    fn a_few_batches_have_rows_from_the_order_to_the_step() {
        let text = strip(&life());
        let batches: Vec<&str> = text.lines().filter(|line| line.starts_with("  epoch 0 batch ")).collect();
        assert_eq!(batches.len(), BATCH_ROWS, "{text}");
        let drawn = batches[3].split('|').nth(1).unwrap().trim();
        let mut stages: Vec<char> = drawn.chars().collect();
        stages.dedup();
        assert_eq!(stages.iter().collect::<String>(), "!-=~>#", "{text}");
        assert!(text.contains("batches: ! order, - wait to begin, = prepare, ~ wait for its turn"), "{text}");
    }

    #[test]
    fn no_line_is_longer_than_a_terminal_is_wide() {
        let mut life = life();
        life.stages.splice(1..1, (0..20).map(|number| format!("RandomResizedCrop{number}")));
        let longest = strip(&life).lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= 92), "{}", strip(&life));
    }
}
