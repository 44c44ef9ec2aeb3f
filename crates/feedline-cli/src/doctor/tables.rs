//! The tables of a diagnosis as text: consumers, caches, threads, formats.

use std::fmt::{self, Write as _};

use feedline_data::plan::ByteSize;
use feedline_diagnose::doctor::{CachePoint, Diagnosis};

use super::FormatCost;

/// Writes the tables that have rows.
pub(super) fn write_tables(diagnosis: &Diagnosis, formats: &[FormatCost], out: &mut String) -> fmt::Result {
    if !diagnosis.consumers.is_empty() {
        writeln!(out, "\n{:<12}{:>12}{:>12}{:>12}  (samples/s)", "consumers", "linear", "synthetic", "real")?;
    }
    for row in &diagnosis.consumers {
        writeln!(out, "{:<12}{:>12.1}{:>12.1}{:>12.1}", row.consumers, row.linear, row.synthetic, row.real)?;
    }
    write_cache_points(&diagnosis.cache_points, out)?;
    if !diagnosis.workers.is_empty() {
        writeln!(out, "\n{:<12}{:>12}{:>12}{:>12}{:>12}", "threads", "step ms", "load ms", "total ms", "samples/s")?;
    }
    for row in &diagnosis.workers {
        writeln!(
            out,
            "{:<12}{:>12.2}{:>12.2}{:>12.2}{:>12.1}",
            row.num_workers, row.step_ms, row.load_ms, row.total_ms, row.samples_per_second
        )?;
    }
    if !formats.is_empty() {
        writeln!(
            out,
            "\n{:<10}{:>6}{:>10}{:>14}{:>10}  (one picture on this machine)",
            "format", "side", "content", "bytes", "ms"
        )?;
    }
    for cost in formats {
        let bytes = ByteSize(cost.bytes as u64).to_string();
        writeln!(out, "{:<10}{:>6}{:>10}{bytes:>14}{:>10.3}", cost.format, cost.side, cost.content, cost.ms)?;
    }
    Ok(())
}

fn write_cache_points(points: &[CachePoint], out: &mut String) -> fmt::Result {
    if points.is_empty() {
        return Ok(());
    }
    let longest = points.iter().map(|point| point.after.len()).max().unwrap_or(0).max(16);
    writeln!(out, "\n{:<longest$}{:>10}{:>12}{:>10}  augmentation", "cache after", "form", "size", "saves ms")?;
    for point in points {
        let (form, bytes) = (form_name(point), ByteSize(point.bytes).to_string());
        let saved = point.saved_ms;
        writeln!(out, "{:<longest$}{form:>10}{bytes:>12}{saved:>10.3}  {}", point.after, augmentation(point))?;
    }
    Ok(())
}

/// The name for `fl.cache(form=...)`, or `-` if samples cannot be cached there.
pub(super) fn form_name(point: &CachePoint) -> String {
    point.form.map_or_else(|| "-".to_owned(), |form| form.to_string())
}

/// The effect of a cache on augmentation.
pub(super) fn augmentation(point: &CachePoint) -> String {
    if point.lost.is_empty() { "unchanged".to_owned() } else { format!("no new draws of {}", point.lost.join(", ")) }
}
