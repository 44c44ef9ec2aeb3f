//! Changes of a plan whose gain is not known before their parts are measured.

use std::sync::Arc;

use super::DoctorError;
use super::parts::Parts;
use super::remedy::Change;
use super::verdict::Bound;
use crate::offload::Policy;
use crate::plan::{ByteSize, CacheForm, Plan, PlannedOp, Registry, SeekIndexUse};
use crate::sink::Machine;

/// The part of the machine's memory that a cache may take.
const MEMORY_SHARE: f64 = 0.5;
/// What a cache takes beyond the bytes of its samples.
const CACHE_SPARE: f64 = 1.1;
/// Of forms to keep that save nearly as much, the one that takes least memory.
const NEARLY: f64 = 0.9;

/// A plan as it would be, whose parts are to be measured.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// What is changed.
    pub change: Change,
    /// The plan with it, or with a part of its samples.
    pub plan: Arc<Plan>,
    /// What it takes, and what is lost by it, in words.
    pub note: String,
}

/// What could be changed about a plan that is bound by loading.
pub(super) fn alternatives(
    plan: &Plan,
    parts: &Parts,
    bound: Bound,
    machine: &Machine,
) -> Result<Vec<Alternative>, DoctorError> {
    if !matches!(bound, Bound::Prepare | Bound::Read | Bound::Network | Bound::Python | Bound::HeadOfLine) {
        return Ok(Vec::new());
    }
    let is_loading = matches!(bound, Bound::Prepare | Bound::Read | Bound::Network);
    let decodes = is_loading && plan.ops().iter().any(is_decoder);
    let is_exact = !plan.ops().iter().any(PlannedOp::is_approximate);
    let has_index = plan.config().seek_index == SeekIndexUse::Auto;
    let is_near = plan.source().peer().is_some() && plan.config().offload == Policy::None;
    let index_note = "indexes are made in the first epoch; the pixels stay the same";
    let possible = [
        (decodes && !has_index, Change::SeekIndex, index_note),
        (decodes && is_exact && bound == Bound::Prepare, Change::FastDecode, "pixels are approximate: see the guide"),
        (is_near && is_loading, Change::Offload, "the bytes of samples stay the same"),
    ];
    let mut found = Vec::new();
    for (_, change, note) in possible.into_iter().filter(|(is_possible, ..)| *is_possible) {
        if let Some(plan) = change.apply(plan)? {
            found.push(Alternative { change, plan, note: note.to_owned() });
        }
    }
    if let Some((form, ram)) = best_cache(plan, parts, machine) {
        let change = Change::Cache { form, ram };
        if let Some(plan) = change.apply(plan)? {
            let note = format!("{} of memory, from the second epoch on; no augmentation is lost", ByteSize(ram));
            found.push(Alternative { change, plan, note });
        }
    }
    Ok(found)
}

/// What to keep between epochs, and the memory that takes: the form that saves most time, if there is room for all samples.
fn best_cache(plan: &Plan, parts: &Parts, machine: &Machine) -> Option<(CacheForm, u64)> {
    if plan.config().cache.is_some() {
        return None;
    }
    let decoded = plan.cut_of(CacheForm::Decoded);
    let possible = |form: CacheForm| {
        let cut = plan.cut_of(form);
        let is_own = match form {
            CacheForm::Encoded => true,
            CacheForm::Decoded => cut.0 > 0,
            CacheForm::Resized => cut > decoded,
        };
        let bytes = cut.0.checked_sub(1).map_or(parts.read_bytes, |last| parts.ops[last].bytes);
        let ram = (bytes * plan.source().len() as f64 * CACHE_SPARE) as u64 + (1 << 20);
        let has_room = machine.memory_bytes.is_none_or(|all| (ram as f64) < MEMORY_SHARE * all as f64);
        let saved = parts.read_ms() + parts.ops[..cut.0].iter().map(|op| op.ms).sum::<f64>();
        (is_own && bytes > 0.0 && has_room).then_some((form, ram, saved))
    };
    let forms = [CacheForm::Encoded, CacheForm::Decoded, CacheForm::Resized];
    let possible: Vec<(CacheForm, u64, f64)> = forms.into_iter().filter_map(possible).collect();
    let most = possible.iter().map(|(.., saved)| *saved).fold(0.0, f64::max);
    let best = possible.into_iter().filter(|(.., saved)| *saved >= NEARLY * most).min_by_key(|(_, ram, _)| *ram);
    best.map(|(form, ram, _)| (form, ram))
}

/// The plan's ops, with pictures decoded approximately.
pub(super) fn fast(plan: &Plan) -> Result<Vec<PlannedOp>, DoctorError> {
    let registry = Registry::core();
    let change = |planned: &PlannedOp| {
        if !is_decoder(planned) {
            return Ok(planned.clone());
        }
        let mut table = planned.table()?;
        table.insert("fast".to_owned(), true.into());
        Ok(registry.build_op(table)?)
    };
    plan.ops().iter().map(change).collect()
}

fn is_decoder(planned: &PlannedOp) -> bool {
    planned.op().on().names().any(|name| planned.op().decoding(name).is_some())
}
