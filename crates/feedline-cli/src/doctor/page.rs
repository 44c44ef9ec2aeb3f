//! A diagnosis as a self-contained HTML page.

use std::fmt::{self, Write as _};

use feedline_data::plan::ByteSize;
use feedline_diagnose::doctor::{BatchRow, BatchStage, Diagnosis, Life, Tried};
use feedline_net::node::PALETTE;
use serde::Serialize;

use super::FormatCost;
use super::tables::{augmentation, form_name};
use super::words::{bound_detail, causes, cores_name, error_note, predicted, rate, shared_cores_note, time};
use crate::plot::{Axis, Plot, Series, escaped};

const STYLE: &str = include_str!("../../web/doctor.css");
const SCRIPT: &str = concat!(include_str!("../../web/life.js"), include_str!("../../web/doctor.js"));
/// Number of colours for the stages of samples. Further stages repeat them.
const STAGE_COLOURS: usize = 6;

/// The data that the script of the page draws.
#[derive(Serialize)]
struct PageData<'a> {
    batch_log: &'a [feedline_diagnose::doctor::BatchTime],
    life: &'a Life,
    /// The stages of each batch.
    rows: Vec<BatchRow>,
    /// How long each sample waited before it started, and in its slot.
    waits: Vec<(f64, Option<f64>)>,
}

/// The page.
pub fn html(diagnosis: &Diagnosis, tried: &[Tried], formats: &[FormatCost]) -> String {
    let mut out = String::new();
    write_page(diagnosis, tried, formats, &mut out).expect("writing to a String cannot fail");
    out
}

fn write_page(diagnosis: &Diagnosis, tried: &[Tried], formats: &[FormatCost], out: &mut String) -> fmt::Result {
    write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>feedline doctor</title>\
         <link rel=\"icon\" href=\"data:,\"><style>{PALETTE}{STYLE}</style></head><body><main>"
    )?;
    write_verdict(diagnosis, out)?;
    write_parts(diagnosis, out)?;
    write_remedies(diagnosis, tried, out)?;
    write_log(diagnosis, out)?;
    write_life(diagnosis, out)?;
    write_tables(diagnosis, formats, out)?;
    let life = &diagnosis.life;
    let waits = life.samples.iter().map(|sample| life.waits(sample)).collect();
    let data = PageData { batch_log: &diagnosis.batch_log, life, rows: life.rows(), waits };
    // A name that contains `</script>` would end the element.
    let data = serde_json::to_string(&data).expect("plain data").replace('<', "\\u003c");
    writeln!(
        out,
        "</main><script type=\"application/json\" id=\"data\">{data}</script><script>{SCRIPT}</script></body></html>"
    )
}

fn write_verdict(diagnosis: &Diagnosis, out: &mut String) -> fmt::Result {
    write!(
        out,
        "<section><h1>feedline doctor</h1><p class=\"verdict\">Bound by {}</p>",
        escaped(&diagnosis.bound.to_string())
    )?;
    let numbers = [
        ("measured", format!("{:.1} samples/s", diagnosis.measured_samples_per_second)),
        ("predicted", format!("{} samples/s", predicted(diagnosis))),
        ("the accelerator waited", format!("{:.1} %", 100.0 * diagnosis.stall_share)),
        ("a monitor would show", format!("{:.0} % use", 100.0 * diagnosis.log.utilisation_sampled)),
        ("lost in 90 epochs", time(diagnosis.lost_seconds_in_90_epochs)),
    ];
    out.push_str("<dl class=\"numbers\">");
    for (name, value) in numbers {
        write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
    }
    // The text continues a sentence in the terminal. Here it starts one.
    let causes = causes(diagnosis).trim_start_matches(", ").to_owned();
    let notes = [
        Some(causes).filter(|causes| !causes.is_empty()),
        bound_detail(diagnosis),
        shared_cores_note(&diagnosis.parts),
    ];
    let notes: Vec<String> = notes.into_iter().flatten().map(|note| note.trim_end_matches('.').to_owned()).collect();
    write!(out, "</dl><p class=\"faint\">{}</p></section>", escaped(&notes.join(". ")))
}

fn write_parts(diagnosis: &Diagnosis, out: &mut String) -> fmt::Result {
    let (parts, times) = (&diagnosis.parts, &diagnosis.times);
    let read = if parts.is_remote { "network" } else { "read" };
    let rows = [
        (format!("step, {:.2} ms", parts.step_ms), times.step, ""),
        (format!("{read}, {} per sample", ByteSize(parts.read_bytes as u64)), times.read.max(times.network), ""),
        (format!("prepare, {} threads", parts.num_workers), 1.0 / parts.prepare_samples_per_second, ""),
        ("threads, including reads".to_owned(), times.prepare, ""),
        (cores_name(parts), times.cores, ""),
        ("predicted".to_owned(), 1.0 / diagnosis.predicted_samples_per_second, "predicted"),
        ("measured".to_owned(), 1.0 / diagnosis.measured_samples_per_second, "measured"),
    ];
    // A full bar is at most four times the measured speed. Parts that are faster than that do not matter.
    let shortest = rows.iter().map(|row| row.1).filter(|seconds| *seconds > 0.0).fold(f64::MAX, f64::min);
    let shortest = shortest.max(0.25 / diagnosis.measured_samples_per_second.max(1e-9));
    out.push_str("<section><h2>Each part alone, samples/s</h2><dl class=\"bars\">");
    for (name, seconds, kind) in rows {
        // A part that takes no time is unlimited, and gets a full bar.
        let width = if seconds > 0.0 { 100.0 * (shortest / seconds).min(1.0) } else { 100.0 };
        let rate = rate(seconds);
        write!(
            out,
            "<dt>{name}</dt><dd class=\"track\"><div class=\"bar\" data-kind=\"{kind}\" style=\"width:{width:.1}%\"></div></dd>\
             <dd>{rate}</dd>"
        )?;
    }
    out.push_str("</dl></section><section><h2>Ops, per sample</h2><div class=\"scroll\"><table><thead><tr><th>op<th>ms<th>cpu ms<th>bytes out</thead><tbody>");
    for op in &parts.ops {
        let bytes = ByteSize(op.bytes as u64);
        write!(out, "<tr><td>{}<td>{:.3}<td>{:.3}<td>{bytes}", escaped(&op.op), op.ms, op.cpu_ms)?;
    }
    out.push_str("</tbody></table></div></section>");
    Ok(())
}

fn write_remedies(diagnosis: &Diagnosis, tried: &[Tried], out: &mut String) -> fmt::Result {
    out.push_str("<section><h2>What would help</h2><div class=\"scroll\"><table><thead><tr><th>change<th>samples/s<th>gain<th>tried</thead><tbody>");
    for remedy in &diagnosis.remedies {
        let measured = tried.iter().find(|tried| tried.remedy.change == remedy.change);
        let measured = measured.map(|tried| format!("{:.1}", tried.measured_samples_per_second)).unwrap_or_default();
        write!(
            out,
            "<tr><td><code>{}</code><br><span class=\"faint\">{}</span><td>{:.1}<td>{:+.0} %<td>{measured}",
            escaped(&remedy.change.to_string()),
            escaped(&format!("{}{}", remedy.note, error_note(remedy))),
            remedy.predicted_samples_per_second,
            100.0 * remedy.predicted_gain
        )?;
    }
    if diagnosis.remedies.is_empty() {
        out.push_str("<tr><td>No change of the plan would help.<td><td><td>");
    }
    out.push_str("</tbody></table></div></section>");
    Ok(())
}

fn write_log(diagnosis: &Diagnosis, out: &mut String) -> fmt::Result {
    let log = &diagnosis.log;
    write!(
        out,
        "<section><h2>Batches</h2><p class=\"faint\">{} batches; median {:.1} ms, p99 {:.1} ms, of which the trainer waited \
         {:.1} ms and {:.1} ms</p><canvas id=\"log\" tabindex=\"0\" role=\"img\" aria-label=\"Times of all batches; arrow keys \
         go from one to the next\" aria-describedby=\"log-told\"></canvas><p id=\"log-told\" class=\"told\" aria-live=\"polite\">\
         Move over the bars, or focus them and use the arrow keys.</p>",
        log.batches, log.total_ms.p50, log.total_ms.p99, log.wait_ms.p50, log.wait_ms.p99
    )?;
    write_legend("", &TRAINER.map(by_name), out)?;
    for anomaly in &log.anomalies {
        write!(out, "<p>Anomaly: {}.</p>", escaped(&anomaly.to_string()))?;
    }
    out.push_str("</section>");
    Ok(())
}

/// The stages of a batch at the trainer.
const TRAINER: [&str; 3] = ["wait", "hand-over", "step"];

/// The name of a CSS colour and of its entry in the legend, for stages whose colour has their name.
fn by_name(name: &str) -> (String, String) {
    (name.replace(' ', "-"), name.to_owned())
}

/// Writes a legend: the name of the rows, then each colour with its meaning.
fn write_legend(rows: &str, entries: &[(String, String)], out: &mut String) -> fmt::Result {
    out.push_str("<ul class=\"legend\">");
    if !rows.is_empty() {
        write!(out, "<li>{rows}</li>")?;
    }
    for (colour, name) in entries {
        write!(out, "<li style=\"--of:var(--{colour})\">{}</li>", escaped(name))?;
    }
    out.push_str("</ul>");
    Ok(())
}

fn write_life(diagnosis: &Diagnosis, out: &mut String) -> fmt::Result {
    out.push_str(
        "<section><h2>Timeline of batches</h2><div class=\"tools\"><button id=\"closer\">Zoom in</button>\
         <button id=\"farther\">Zoom out</button><button id=\"all\">All</button><span class=\"faint\">+ and -, or the wheel after a \
         click, zoom; PageUp, PageDown or the pointer move; arrow keys go from one to the next</span></div>\
         <canvas id=\"life\" tabindex=\"0\" role=\"img\" aria-label=\"What the trainer and each thread did, and what each batch went \
         through, over time\" aria-describedby=\"life-told\"></canvas><p id=\"life-left\" class=\"faint\"></p><p id=\"life-told\" \
         class=\"told\" aria-live=\"polite\">Move over a row to see what was done.</p>",
    );
    let stages = diagnosis.life.stages.iter().enumerate();
    // The colours are CSS variables: `--stage-0` to `--stage-5`.
    let stages = stages.map(|(number, name)| (format!("stage-{}", number % STAGE_COLOURS), name.clone()));
    write_legend("trainer:", &TRAINER.map(by_name), out)?;
    write_legend("threads:", &stages.collect::<Vec<_>>(), out)?;
    write_legend("batches:", &BatchStage::ALL.map(|stage| by_name(stage.name())), out)?;
    out.push_str("</section>");
    Ok(())
}

fn write_tables(diagnosis: &Diagnosis, formats: &[FormatCost], out: &mut String) -> fmt::Result {
    let axis = |name: &str, is_logarithmic| Axis { name: name.to_owned(), is_logarithmic, words: Vec::new() };
    let line = |name: &str, colour, points| Series { name: name.to_owned(), colour, is_line: true, points };
    if !diagnosis.consumers.is_empty() {
        let rows = &diagnosis.consumers;
        let of = |rate: fn(&feedline_diagnose::doctor::ConsumersRow) -> f64| {
            rows.iter().map(|row| (row.consumers as f64, rate(row))).collect::<Vec<_>>()
        };
        let series = vec![
            line("linear", 0, of(|row| row.linear)),
            line("synthetic", 1, of(|row| row.synthetic)),
            line("real", 2, of(|row| row.real)),
        ];
        let (x, y) = (axis("consumers", false), axis("samples/s", false));
        let plot = Plot { title: "Throughput by consumers".to_owned(), x, y, series };
        write!(out, "<section><div class=\"scroll\">{}</div></section>", plot.svg())?;
    }
    if !diagnosis.workers.is_empty() {
        let of = |ms: fn(&feedline_diagnose::doctor::WorkersRow) -> f64| {
            diagnosis.workers.iter().map(|row| (row.num_workers as f64, ms(row))).collect::<Vec<_>>()
        };
        let series = vec![
            line("step", 2, of(|row| row.step_ms)),
            line("load", 1, of(|row| row.load_ms)),
            line("total", 0, of(|row| row.total_ms)),
        ];
        let (x, y) = (axis("threads", false), axis("ms per batch", false));
        let plot = Plot { title: "Time of a batch by threads".to_owned(), x, y, series };
        write!(out, "<section><div class=\"scroll\">{}</div></section>", plot.svg())?;
    }
    if !diagnosis.cache_points.is_empty() {
        out.push_str("<section><h2>Caches, by place in the op chain</h2><div class=\"scroll\"><table><thead><tr><th>after<th>form<th>size<th>saves ms<th>augmentation</thead><tbody>");
        for point in &diagnosis.cache_points {
            let (after, form, bytes) = (escaped(&point.after), form_name(point), ByteSize(point.bytes));
            write!(
                out,
                "<tr><td>{after}<td>{form}<td>{bytes}<td>{:.3}<td>{}",
                point.saved_ms,
                escaped(&augmentation(point))
            )?;
        }
        out.push_str("</tbody></table></div></section>");
    }
    if !formats.is_empty() {
        out.push_str("<section><h2>One picture on this machine</h2><div class=\"scroll\"><table><thead><tr><th>format<th>side<th>content<th>bytes<th>ms</thead><tbody>");
        for cost in formats {
            let bytes = ByteSize(cost.bytes as u64);
            write!(out, "<tr><td>{}<td>{}<td>{}<td>{bytes}<td>{:.3}", cost.format, cost.side, cost.content, cost.ms)?;
        }
        out.push_str("</tbody></table></div></section>");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_legend_is_shown_as_it_is() {
        let mut out = String::new();
        write_legend("threads:", &[("stage-1".to_owned(), "</ul><img src=\"x\" onerror=a()>".to_owned())], &mut out)
            .unwrap();
        assert!(out.contains("&lt;/ul&gt;&lt;img src=&quot;x&quot;") && !out.contains("<img"), "{out}");
    }
}
