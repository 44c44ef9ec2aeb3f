//! Evaluates a cache: at which op, how large it would be, and which randomness it would freeze.

use feedline_data::batch::Kind;
use feedline_data::op::PlannedOp;
use feedline_data::plan::{ByteSize, CacheForm, Plan};
use feedline_engine::machine::Machine;
use serde::Serialize;

use super::parts::Parts;
use super::remedy::Change;
use super::trial::free_bytes;

/// The fraction of the machine's memory, or of free disk space, that a cache may use.
const MAX_SHARE: f64 = 0.5;
/// Overhead of a cache: relative, and per sample.
const SIZE_MARGIN: f64 = 1.1;
const SAMPLE_OVERHEAD_BYTES: f64 = 256.0;
/// Assumed bytes of a name or another text.
const TEXT_BYTES: f64 = 64.0;
/// Among forms that are nearly as fast, the smallest is chosen.
const NEARLY_BEST: f64 = 0.9;

/// A cut at which samples could be cached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CachePoint {
    /// The last op before the cut, or `read`.
    pub after: String,
    /// The name for `fl.cache(form=...)`. `None` if the cut is inside a form or after a random op.
    pub form: Option<CacheForm>,
    /// Bytes of all samples.
    pub bytes: u64,
    /// Milliseconds of a thread that are saved per sample.
    pub saved_ms: f64,
    /// Random ops before the cut. Their results would be the same in all epochs.
    pub lost: Vec<String>,
}

/// All cuts at which samples could be cached, in order.
pub(super) fn cache_points(plan: &Plan, parts: &Parts) -> Vec<CachePoint> {
    let forms = [CacheForm::Encoded, CacheForm::Decoded, CacheForm::Resized];
    let point = |cut: usize| {
        let before = &plan.ops()[..cut];
        let is_random = |op: &&PlannedOp| op.op().is_random();
        CachePoint {
            after: before.last().map_or_else(|| "read".to_owned(), |op| op.name().to_string()),
            form: forms.into_iter().find(|form| plan.cut_of(*form).0 == cut),
            // For the whole source, not only for this rank's share: over the epochs a rank gets all samples.
            bytes: (bytes_at(plan, parts, cut) * plan.source().len() as f64 * SIZE_MARGIN) as u64,
            saved_ms: parts.read_ms() + parts.ops[..cut].iter().map(|op| op.ms).sum::<f64>(),
            lost: before.iter().filter(is_random).map(|op| op.name().to_string()).collect(),
        }
    };
    (0..=plan.ops().len()).map(point).collect()
}

/// Bytes of a sample after the first `cut` ops, over all fields.
fn bytes_at(plan: &Plan, parts: &Parts, cut: usize) -> f64 {
    let mut known: Vec<&str> = Vec::new();
    let mut bytes = 0.0;
    for (planned, part) in plan.ops()[..cut].iter().zip(&parts.ops).rev() {
        let names: Vec<&str> = planned.op().on().names().collect();
        // Going backwards, the last op that writes a field determines its size. Bytes of an op are spread over its fields.
        let new = names.iter().filter(|name| !known.contains(name)).count();
        bytes += part.bytes * new as f64 / names.len().max(1) as f64;
        known.extend(names);
    }
    let stored = |kind: &Kind| !matches!(kind, Kind::Tensor { .. } | Kind::Text);
    let count = plan.loaded().iter().filter(|(_, kind)| stored(kind)).count();
    // Fields that no op has changed keep the size in which they were loaded.
    for (_, kind) in plan.loaded().iter().filter(|(name, _)| !known.contains(&&***name)) {
        bytes += match kind {
            Kind::Tensor { dtype, shape, .. } => {
                shape.iter().map(|side| side.unwrap_or(1) as f64).product::<f64>() * dtype.bytes() as f64
            }
            Kind::Text => TEXT_BYTES,
            // Stored bytes are only known in total, so they are divided equally among the stored fields.
            _ => parts.read_bytes / count.max(1) as f64,
        };
    }
    bytes + SAMPLE_OVERHEAD_BYTES
}

/// The best cache and its size: the form that saves the most time, in memory if all samples fit, otherwise on disk.
pub(super) fn best_cache(plan: &Plan, parts: &Parts, machine: &Machine) -> Option<(Change, String)> {
    if plan.config().cache.is_some() {
        return None;
    }
    // Without a known size of the memory, everything fits.
    let room = machine.memory_bytes.unwrap_or(u64::MAX) as f64 * MAX_SHARE;
    if let Some((form, bytes)) = best(plan, parts, room) {
        let note = format!("{} of memory, from the second epoch on; no augmentation is lost", ByteSize(bytes));
        return Some((Change::Cache { form, ram: Some(bytes), disk: None }, note));
    }
    let free = machine.cache_folder.as_deref().map_or(0, free_bytes);
    let (form, bytes) = best(plan, parts, free as f64 * MAX_SHARE)?;
    let note = format!(
        "{} in the cache folder, because memory does not suffice; from the second epoch on; no augmentation is lost. Measured while the samples are \
         in the file cache, so a disk may be slower",
        ByteSize(bytes)
    );
    Some((Change::Cache { form, ram: None, disk: Some(bytes) }, note))
}

/// Of the forms that fit into the cache, the one with the fastest job.
fn best(plan: &Plan, parts: &Parts, room: f64) -> Option<(CacheForm, u64)> {
    let points = cache_points(plan, parts).into_iter().filter(|point| (point.bytes as f64) < room);
    let rate = |form| parts.with_cached(plan.cut_of(form).0).times().samples_per_second();
    let possible: Vec<_> = points.filter_map(|point| Some((point.form?, point.bytes, rate(point.form?)))).collect();
    let most = possible.iter().map(|(.., rate)| *rate).fold(0.0, f64::max);
    // A cache that makes the job no faster is not proposed.
    let gains = most > parts.times().samples_per_second();
    let nearly = possible.into_iter().filter(|(.., rate)| gains && *rate >= NEARLY_BEST * most);
    nearly.min_by_key(|(_, bytes, _)| *bytes).map(|(form, bytes, _)| (form, bytes))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::parts::OpPart;
    use super::*;
    use feedline_data::testing::open;

    fn parts(bytes: [f64; 3]) -> Parts {
        let op = |bytes| OpPart { op: "Op".to_owned(), ms: 2.0, cpu_ms: 2.0, bytes, is_foreign: false };
        Parts {
            batch_size: 1.0,
            num_workers: 2,
            cores: 2,
            free_cores: 2.0,
            step_ms: 0.0,
            is_remote: false,
            reads_ahead: false,
            read_samples_per_second: Some(100.0),
            read_alone_samples_per_second: Some(1000.0),
            read_bytes: 1e6,
            prepare_samples_per_second: 300.0,
            prepare_ms: 6.0,
            prepare_cpu_ms: 6.0,
            core_wait_ms: 0.0,
            core_share: crate::doctor::CoreShare::default(),
            ops: bytes.map(op).to_vec(),
        }
    }

    fn plan() -> Arc<Plan> {
        let ops = ["Resize\"\nsize = 8", "RandomHorizontalFlip\"\np = 0.5", "ToTensor\""];
        let ops = ops.map(|op| format!("[[ops]]\nop = \"{op}\non = \"data\"\n")).concat();
        let text = "batch_size = 1\n[source]\nkind = \"synthetic\"\nn = 100\nshape = [16, 16, 3]\n";
        open(&format!("{text}{ops}")).unwrap()
    }

    #[test]
    fn every_place_says_what_it_takes_and_which_augmentation_it_would_lose() {
        let points = cache_points(&plan(), &parts([5e6, 5e6, 2e7]));
        let told: Vec<_> = points.iter().map(|point| (&*point.after, point.form, point.saved_ms)).collect();
        assert_eq!(told[0], ("read", Some(CacheForm::Encoded), 1.0));
        assert_eq!(told[1], ("Resize", Some(CacheForm::Resized), 3.0));
        assert_eq!((told[2].1, told[3].1), (None, None), "random ops are not kept");
        assert_eq!((&points[1].lost[..], points[3].lost.len()), (&[][..], 1));
        assert!((5.4e8..5.6e8).contains(&(points[1].bytes as f64)), "{points:?}");
    }

    #[test]
    fn a_cache_is_in_memory_if_there_is_room_and_else_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let machine = |memory_bytes| Machine {
            memory_bytes: Some(memory_bytes),
            cache_folder: Some(folder.path().join("not yet").into()),
            ..Machine::default()
        };
        let found = |memory| best_cache(&plan(), &parts([1e4, 1e4, 4e4]), &machine(memory)).map(|(change, _)| change);
        let in_memory = found(1 << 30);
        assert!(matches!(in_memory, Some(Change::Cache { form: CacheForm::Resized, ram: Some(_), disk: None })));
        let on_disk = found(1 << 20);
        assert!(matches!(on_disk, Some(Change::Cache { form: CacheForm::Resized, ram: None, disk: Some(_) })));
        let nowhere = Machine { memory_bytes: Some(1 << 20), ..Machine::default() };
        assert_eq!(best_cache(&plan(), &parts([1e4, 1e4, 4e4]), &nowhere), None);
    }
}
