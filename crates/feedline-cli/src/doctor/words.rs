//! A diagnosis in words.

use std::fmt::{self, Write as _};

use feedline_data::plan::ByteSize;
use feedline_diagnose::doctor::{Bound, Diagnosis, LogReport, OpPart, Parts, Percentiles, Remedy, Tried};

use super::FormatCost;
use super::strip::strip;
use super::tables::write_tables;

/// Below this part of the cores, others have the rest.
const LEFT: f64 = 0.85;

/// The diagnosis as text for the terminal.
pub fn words(diagnosis: &Diagnosis, tried: &[Tried], formats: &[FormatCost]) -> String {
    let mut out = String::new();
    write_all(diagnosis, tried, formats, &mut out).expect("a string grows");
    out
}

fn write_all(diagnosis: &Diagnosis, tried: &[Tried], formats: &[FormatCost], out: &mut String) -> fmt::Result {
    write_verdict(diagnosis, out)?;
    write_parts(diagnosis, out)?;
    write_remedies(diagnosis, tried, out)?;
    write_log(&diagnosis.log, out)?;
    out.push_str(&strip(&diagnosis.life));
    write_tables(diagnosis, formats, out)
}

fn write_verdict(diagnosis: &Diagnosis, out: &mut String) -> fmt::Result {
    let Diagnosis { bound, measured_samples_per_second, stall_share, .. } = diagnosis;
    writeln!(out, "This job is bound by {bound}.\n")?;
    writeln!(
        out,
        "It reaches {measured_samples_per_second:.1} samples/s; {} were predicted before the run.",
        predicted(diagnosis)
    )?;
    let waited = 100.0 * stall_share;
    let sampled = 100.0 * diagnosis.log.utilisation_sampled;
    writeln!(out, "The accelerator waited {waited:.1} % of the time{}.", causes(diagnosis))?;
    writeln!(out, "A sampler of utilisation, which looks ten times a second, would have shown {sampled:.0} %.")?;
    let lost = diagnosis.lost_seconds_in_90_epochs;
    if *bound == Bound::Step {
        writeln!(out, "In 90 epochs {} are lost by waiting.", time(lost))?;
    } else {
        writeln!(out, "In 90 epochs {} are lost, against an accelerator that never waits.", time(lost))?;
    }
    for told in [blame(diagnosis), company(&diagnosis.parts)].into_iter().flatten() {
        writeln!(out, "{told}")?;
    }
    Ok(())
}

pub(super) fn causes(diagnosis: &Diagnosis) -> String {
    let total: f64 = diagnosis.stall_seconds.values().sum();
    let mut causes: Vec<(&str, f64)> = diagnosis.stall_seconds.iter().map(|(cause, s)| (*cause, *s)).collect();
    causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told: Vec<String> = causes
        .into_iter()
        .filter(|(_, seconds)| *seconds > 0.02 * total && total > 0.0)
        .map(|(cause, seconds)| format!("{cause} {:.0} %", 100.0 * seconds / total))
        .collect();
    if told.is_empty() { String::new() } else { format!(", for: {}", told.join(", ")) }
}

/// What was predicted: a range where the share of cores varied while it was measured.
pub(super) fn predicted(diagnosis: &Diagnosis) -> String {
    let [low, high] = diagnosis.predicted_range;
    if low < high { format!("{low:.1} to {high:.1}") } else { format!("{:.1}", diagnosis.predicted_samples_per_second) }
}

/// Which ops or samples it is.
pub(super) fn blame(diagnosis: &Diagnosis) -> Option<String> {
    let parts = &diagnosis.parts;
    match diagnosis.bound {
        Bound::Prepare | Bound::Python => Some(longest_op(parts)?),
        Bound::HeadOfLine => {
            let slow: Vec<String> =
                diagnosis.slow_samples.iter().map(|slow| format!("{} ({:.0} ms)", slow.key, slow.ms)).collect();
            let idle = 100.0 * diagnosis.idle_share;
            let named = if slow.is_empty() { String::new() } else { format!(" Slowest: {}.", slow.join(", ")) };
            Some(format!("Threads had nothing to do for {idle:.0} % of their time meanwhile.{named}"))
        }
        Bound::Read | Bound::Network => {
            let rate = parts.read_samples_per_second.unwrap_or_default() * parts.read_bytes / 1e6;
            Some(format!("It gives {rate:.1} MB/s; a sample is {} of that.", ByteSize(parts.read_bytes as u64)))
        }
        Bound::Step | Bound::Memory | Bound::HandOver => None,
    }
}

/// The op that takes most. Where threads queue for cores, the wall time of an op says when it was preempted, so processor time
/// decides.
fn longest_op(parts: &Parts) -> Option<String> {
    let by_processor = parts.is_contended() && parts.ops.iter().any(|op| op.cpu_ms > 0.0);
    let ms = |op: &OpPart| if by_processor { op.cpu_ms } else { op.ms };
    let longest = parts.ops.iter().max_by(|a, b| ms(a).total_cmp(&ms(b)))?;
    let share = 100.0 * ms(longest) / parts.ops.iter().map(ms).sum::<f64>().max(1e-9);
    let what = if by_processor { "processor" } else { "thread" };
    Some(format!("Most of it is {}: {:.2} ms of a {what} for a sample, {share:.0} %.", longest.op, ms(longest)))
}

fn write_parts(diagnosis: &Diagnosis, out: &mut String) -> fmt::Result {
    let parts = &diagnosis.parts;
    let times = &diagnosis.times;
    writeln!(out, "\n{:<34}{:>14}", "each part alone", "samples/s")?;
    let mut row = |name: String, seconds: f64| writeln!(out, "  {name:<32}{:>14}", rate(seconds));
    row(format!("step, {:.2} ms a batch", parts.step_ms), times.step)?;
    row(read_name(parts), times.read.max(times.network))?;
    row(format!("prepare, {} threads", parts.num_workers), 1.0 / parts.prepare_samples_per_second)?;
    row("threads, reading included".to_owned(), times.prepare)?;
    row(cores_name(parts), times.cores)?;
    if parts.python_ms() > 0.0 {
        row("Python, one thread at a time".to_owned(), times.python)?;
    }
    row("predicted: the least of them".to_owned(), 1.0 / diagnosis.predicted_samples_per_second)?;
    row("measured: all together".to_owned(), 1.0 / diagnosis.measured_samples_per_second)?;
    let longest = parts.ops.iter().map(|op| op.op.len()).max().unwrap_or(0).max(16);
    writeln!(out, "\n{:<longest$}  {:>10}{:>10}{:>14}", "op", "ms", "cpu ms", "bytes out")?;
    for op in &parts.ops {
        let bytes = ByteSize(op.bytes as u64).to_string();
        writeln!(out, "{:<longest$}  {:>10.3}{:>10.3}{bytes:>14}", op.op, op.ms, op.cpu_ms)?;
    }
    Ok(())
}

/// Which cores there are.
pub(super) fn cores_name(parts: &Parts) -> String {
    if is_shared(parts) {
        format!("cores, {:.1} of {} left", parts.free_cores, parts.cores)
    } else {
        format!("cores, all {} busy", parts.cores)
    }
}

/// Whether other processes use the cores, too.
fn is_shared(parts: &Parts) -> bool {
    parts.free_cores < LEFT * parts.cores as f64
}

/// A note if other processes use the cores.
pub(super) fn company(parts: &Parts) -> Option<String> {
    let Parts { cores, free_cores, .. } = parts;
    is_shared(parts).then(|| {
        format!("Other processes use this machine: {free_cores:.1} of {cores} cores are left for this job, and figures vary with that.")
    })
}

fn read_name(parts: &Parts) -> String {
    let what = if parts.is_remote { "network" } else { "read" };
    format!("{what}, {} a sample", ByteSize(parts.read_bytes as u64))
}

fn write_remedies(diagnosis: &Diagnosis, tried: &[Tried], out: &mut String) -> fmt::Result {
    if diagnosis.remedies.is_empty() {
        let why = if diagnosis.bound == Bound::Step { ": a faster step is all that helps" } else { "" };
        writeln!(out, "\nNothing that Feedline could change would help{why}.")?;
    } else {
        writeln!(out, "\n{:<52}{:>12}{:>9}", "what would help", "samples/s", "gain")?;
    }
    for remedy in &diagnosis.remedies {
        let gain = format!("{:+.0} %", 100.0 * remedy.predicted_gain);
        writeln!(out, "  {:<50}{:>12.1}{gain:>9}", remedy.change.to_string(), remedy.predicted_samples_per_second)?;
        writeln!(out, "      {}{}", remedy.note, doubt(remedy))?;
    }
    if !tried.is_empty() {
        writeln!(out, "\n{:<52}{:>12}{:>12}", "tried", "predicted", "measured")?;
    }
    for Tried { remedy, measured_samples_per_second } in tried {
        let predicted = remedy.predicted_samples_per_second;
        let change = remedy.change.to_string();
        writeln!(out, "  {change:<50}{predicted:>12.1}{measured_samples_per_second:>12.1}")?;
    }
    Ok(())
}

/// How sure a gain is.
pub(super) fn doubt(remedy: &Remedy) -> String {
    if remedy.error_band > 0.0 {
        format!("; may be off by {:.0} %, since the share of cores varied", 100.0 * remedy.error_band)
    } else {
        String::new()
    }
}

fn write_log(log: &LogReport, out: &mut String) -> fmt::Result {
    writeln!(out, "\n{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}", "batches, ms", "mean", "p50", "p90", "p99", "most")?;
    for (name, Percentiles { mean, p50, p90, p99, most }) in
        [("waited", log.wait_ms), ("step", log.step_ms), ("in all", log.total_ms)]
    {
        writeln!(out, "  {name:<14}{mean:>10.2}{p50:>10.2}{p90:>10.2}{p99:>10.2}{most:>10.2}")?;
    }
    if log.batches < 20 {
        writeln!(out, "  Only {} batches were seen; give more --seconds to be sure.", log.batches)?;
    }
    for anomaly in &log.anomalies {
        writeln!(out, "  Odd: {anomaly}.")?;
    }
    Ok(())
}

/// Throughput of a resource that takes `seconds` per sample.
pub(super) fn rate(seconds: f64) -> String {
    if seconds > 0.0 { format!("{:.1}", 1.0 / seconds) } else { "any".to_owned() }
}

/// A time as people say it.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        long if long >= 2.0 * 86_400.0 => format!("{:.1} days", long / 86_400.0),
        long if long >= 2.0 * 3600.0 => format!("{:.1} hours", long / 3600.0),
        long if long >= 120.0 => format!("{:.0} minutes", long / 60.0),
        short => format!("{short:.0} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_diagnose::doctor::CoreShare;

    fn op(name: &str, ms: f64, cpu_ms: f64) -> OpPart {
        OpPart { op: name.to_owned(), ms, cpu_ms, bytes: 0.0, is_foreign: false }
    }

    #[test]
    fn where_cores_are_contended_processor_time_names_the_op() {
        // A crop that was preempted again and again, behind a decoder that computes.
        let ops = vec![op("DecodeImage", 3.0, 2.4), op("RandomResizedCrop", 3.2, 0.8)];
        let parts = |core_wait_ms| Parts {
            batch_size: 8.0,
            num_workers: 2,
            cores: 2,
            free_cores: 1.0,
            step_ms: 1.0,
            is_remote: false,
            reads_ahead: false,
            read_samples_per_second: None,
            read_alone_samples_per_second: None,
            read_bytes: 0.0,
            prepare_samples_per_second: 300.0,
            prepare_ms: 6.2,
            prepare_cpu_ms: 3.2,
            core_wait_ms,
            core_share: CoreShare::default(),
            ops: ops.clone(),
        };
        assert_eq!(
            longest_op(&parts(3.0)).unwrap(),
            "Most of it is DecodeImage: 2.40 ms of a processor for a sample, 75 %."
        );
        let quiet = longest_op(&parts(0.1)).unwrap();
        assert!(quiet.starts_with("Most of it is RandomResizedCrop: 3.20 ms of a thread"), "{quiet}");
    }
}
