//! A diagnosis as text for the terminal.

use std::fmt::{self, Write as _};

use feedline_data::plan::ByteSize;
use feedline_diagnose::doctor::{Bound, Diagnosis, LogReport, OpPart, Parts, Percentiles, Remedy, Tried};

use super::FormatCost;
use super::strip::strip;
use super::tables::write_tables;

/// If a job gets less than this fraction of the cores, other processes use them too.
const SHARED_BELOW: f64 = 0.85;

/// The whole text: verdict, parts, timeline, remedies, batches and tables.
pub fn words(diagnosis: &Diagnosis, tried: &[Tried], formats: &[FormatCost]) -> String {
    let mut out = String::new();
    write_all(diagnosis, tried, formats, &mut out).expect("writing to a String cannot fail");
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
    writeln!(out, "A utilisation monitor that samples ten times per second would have shown {sampled:.0} %.")?;
    let lost = diagnosis.lost_seconds_in_90_epochs;
    if *bound == Bound::Step {
        writeln!(out, "In 90 epochs, waiting costs {}.", time(lost))?;
    } else {
        writeln!(out, "In 90 epochs, this costs {} compared with an accelerator that never waits.", time(lost))?;
    }
    for note in [bound_detail(diagnosis), shared_cores_note(&diagnosis.parts)].into_iter().flatten() {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

pub(super) fn causes(diagnosis: &Diagnosis) -> String {
    let total: f64 = diagnosis.stall_seconds.values().sum();
    let mut causes: Vec<(&str, f64)> = diagnosis.stall_seconds.iter().map(|(cause, s)| (*cause, *s)).collect();
    causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shares: Vec<String> = causes
        .into_iter()
        // Causes below 2 % are left out.
        .filter(|(_, seconds)| *seconds > 0.02 * total && total > 0.0)
        .map(|(cause, seconds)| format!("{cause} {:.0} %", 100.0 * seconds / total))
        .collect();
    if shares.is_empty() { String::new() } else { format!(", for: {}", shares.join(", ")) }
}

/// The predicted samples per second. A range if the share of cores varied during the measurement.
pub(super) fn predicted(diagnosis: &Diagnosis) -> String {
    let [low, high] = diagnosis.predicted_range;
    if low < high { format!("{low:.1} to {high:.1}") } else { format!("{:.1}", diagnosis.predicted_samples_per_second) }
}

/// More about the bottleneck: the longest op, the slowest samples, or the speed of reads.
pub(super) fn bound_detail(diagnosis: &Diagnosis) -> Option<String> {
    let parts = &diagnosis.parts;
    match diagnosis.bound {
        Bound::Prepare | Bound::Python => Some(longest_op(parts)?),
        Bound::HeadOfLine => {
            let slow: Vec<String> =
                diagnosis.slow_samples.iter().map(|slow| format!("{} ({:.0} ms)", slow.key, slow.ms)).collect();
            let idle = 100.0 * diagnosis.idle_share;
            let named = if slow.is_empty() { String::new() } else { format!(" Slowest: {}.", slow.join(", ")) };
            Some(format!(
                "Threads were idle for {idle:.0} % of their time, because finished batches waited behind slow samples.{named}"
            ))
        }
        Bound::Read | Bound::Network => {
            let rate = parts.read_samples_per_second.unwrap_or_default() * parts.read_bytes / 1e6;
            let store = if diagnosis.bound == Bound::Read { "The storage" } else { "The network" };
            Some(format!("{store} delivers {rate:.1} MB/s, with {} per sample.", ByteSize(parts.read_bytes as u64)))
        }
        Bound::Step | Bound::Memory | Bound::HandOver => None,
    }
}

/// The op that takes the most time. If threads wait for cores, the wall time of an op includes these waits, so CPU time decides.
fn longest_op(parts: &Parts) -> Option<String> {
    let by_cpu_time = parts.is_contended() && parts.ops.iter().any(|op| op.cpu_ms > 0.0);
    let ms = |op: &OpPart| if by_cpu_time { op.cpu_ms } else { op.ms };
    let longest = parts.ops.iter().max_by(|a, b| ms(a).total_cmp(&ms(b)))?;
    let share = 100.0 * ms(longest) / parts.ops.iter().map(ms).sum::<f64>().max(1e-9);
    let what = if by_cpu_time { "CPU" } else { "wall" };
    Some(format!(
        "Most of the time goes to {}: {:.2} ms of {what} time per sample, {share:.0} %.",
        longest.op,
        ms(longest)
    ))
}

fn write_parts(diagnosis: &Diagnosis, out: &mut String) -> fmt::Result {
    let parts = &diagnosis.parts;
    let times = &diagnosis.times;
    writeln!(out, "\n{:<34}{:>14}", "each part alone", "samples/s")?;
    let mut row = |name: String, seconds: f64| writeln!(out, "  {name:<32}{:>14}", rate(seconds));
    row(format!("step, {:.2} ms per batch", parts.step_ms), times.step)?;
    row(read_name(parts), times.read.max(times.network))?;
    row(format!("prepare, {} threads", parts.num_workers), 1.0 / parts.prepare_samples_per_second)?;
    row(format!("prepare and read, {} threads", parts.num_workers), times.prepare)?;
    row(cores_name(parts), times.cores)?;
    if parts.python_ms() > 0.0 {
        row("Python, one thread at a time".to_owned(), times.python)?;
    }
    row("predicted: the minimum".to_owned(), 1.0 / diagnosis.predicted_samples_per_second)?;
    row("measured: all together".to_owned(), 1.0 / diagnosis.measured_samples_per_second)?;
    let longest = parts.ops.iter().map(|op| op.op.len()).max().unwrap_or(0).max(16);
    writeln!(out, "\n{:<longest$}  {:>10}{:>10}{:>14}", "op", "ms", "cpu ms", "bytes out")?;
    for op in &parts.ops {
        let bytes = ByteSize(op.bytes as u64).to_string();
        writeln!(out, "{:<longest$}  {:>10.3}{:>10.3}{bytes:>14}", op.op, op.ms, op.cpu_ms)?;
    }
    Ok(())
}

/// The label of the row for cores.
pub(super) fn cores_name(parts: &Parts) -> String {
    if is_shared(parts) {
        format!("cores, {:.1} of {} available", parts.free_cores, parts.cores)
    } else {
        format!("cores, all {} available", parts.cores)
    }
}

/// Whether other processes use the cores too.
fn is_shared(parts: &Parts) -> bool {
    parts.free_cores < SHARED_BELOW * parts.cores as f64
}

/// A note if other processes use the cores.
pub(super) fn shared_cores_note(parts: &Parts) -> Option<String> {
    let Parts { cores, free_cores, .. } = parts;
    is_shared(parts).then(|| {
        format!("Other processes use this machine: about {free_cores:.1} of {cores} cores are left for this job, and the results vary with their load.")
    })
}

fn read_name(parts: &Parts) -> String {
    let what = if parts.is_remote { "network" } else { "read" };
    format!("{what}, {} per sample", ByteSize(parts.read_bytes as u64))
}

fn write_remedies(diagnosis: &Diagnosis, tried: &[Tried], out: &mut String) -> fmt::Result {
    if diagnosis.remedies.is_empty() {
        let why = if diagnosis.bound == Bound::Step { ": only a faster step would" } else { "" };
        writeln!(out, "\nNo change of the plan would help{why}.")?;
    } else {
        writeln!(out, "\n{:<52}{:>12}{:>9}", "what would help", "samples/s", "gain")?;
    }
    for remedy in &diagnosis.remedies {
        let gain = format!("{:+.0} %", 100.0 * remedy.predicted_gain);
        writeln!(out, "  {:<50}{:>12.1}{gain:>9}", remedy.change.to_string(), remedy.predicted_samples_per_second)?;
        writeln!(out, "      {}{}", remedy.note, error_note(remedy))?;
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

/// The uncertainty of a predicted gain, if there is any.
pub(super) fn error_note(remedy: &Remedy) -> String {
    if remedy.error_band > 0.0 {
        format!("; may be off by {:.0} %, because the share of cores varied", 100.0 * remedy.error_band)
    } else {
        String::new()
    }
}

fn write_log(log: &LogReport, out: &mut String) -> fmt::Result {
    writeln!(out, "\n{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}", "batches, ms", "mean", "p50", "p90", "p99", "max")?;
    for (name, Percentiles { mean, p50, p90, p99, most }) in
        [("waited", log.wait_ms), ("step", log.step_ms), ("total", log.total_ms)]
    {
        writeln!(out, "  {name:<14}{mean:>10.2}{p50:>10.2}{p90:>10.2}{p99:>10.2}{most:>10.2}")?;
    }
    if log.batches < 20 {
        writeln!(out, "  Only {} batches were measured; a longer run (--seconds) is more reliable.", log.batches)?;
    }
    for anomaly in &log.anomalies {
        writeln!(out, "  Anomaly: {anomaly}.")?;
    }
    Ok(())
}

/// Throughput of a resource that takes `seconds` per sample.
pub(super) fn rate(seconds: f64) -> String {
    if seconds > 0.0 { format!("{:.1}", 1.0 / seconds) } else { "unlimited".to_owned() }
}

/// A duration in a unit that gives a short number.
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
            "Most of the time goes to DecodeImage: 2.40 ms of CPU time per sample, 75 %."
        );
        let quiet = longest_op(&parts(0.1)).unwrap();
        assert!(quiet.starts_with("Most of the time goes to RandomResizedCrop: 3.20 ms of wall time"), "{quiet}");
    }
}
