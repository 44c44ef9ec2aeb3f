//! Ops that take no time, so that only reading remains.
//!
//! In: the ops of a plan. Out: ops that need the same bytes, with the same draws, and leave the memory of a batch untouched. The
//! supply reads the same bytes, so the store and the link take the same time.

use std::sync::Arc;

use delegate::delegate;
use feedline_data::batch::{FieldTypes, Kind, Sample, Tensor, Value};
use feedline_data::dtype::Dtype;
use feedline_data::memory::Workspace;
use feedline_data::op::{
    Ahead, CheckError, Decoding, Facts, FindForeground, LaterNeed, Need, On, Op, OpError, PlannedOp,
};
use feedline_data::plan::Plan;
use feedline_data::volume::Region;
use feedline_order::Draw;

/// Fields that the engine adds by itself.
const OWN_FIELDS: [&str; 3] = ["index", "padded", "key"];

/// An op reduced to its needs. The last one of a chain fills in each field.
#[derive(Debug)]
struct Skipped {
    planned: PlannedOp,
    /// The delivered fields, at the end of the chain.
    delivered: Option<FieldTypes>,
}

/// The ops of a plan, all of them skipped.
pub(super) fn skipped(plan: &Plan) -> Vec<PlannedOp> {
    let last = plan.ops().len().saturating_sub(1);
    let skip = |(number, planned): (usize, &PlannedOp)| {
        let delivered = (number == last).then(|| plan.types().clone());
        let op = Skipped { planned: planned.clone(), delivered };
        // The parameters stay, so that a storage server does the same work.
        let mut params = planned.table().unwrap_or_default();
        params.remove("op");
        PlannedOp::new(planned.name(), Arc::new(op), params)
    };
    plan.ops().iter().enumerate().map(skip).collect()
}

#[deny(clippy::missing_trait_methods)]
impl Op for Skipped {
    delegate! {
        to self.planned.op() {
            fn on(&self) -> &On;
            fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError>;
            fn is_random(&self) -> bool;
            fn fires(&self, draw: &Draw) -> bool;
            fn runs_anywhere(&self) -> bool;
            fn reads_key(&self) -> bool;
            fn release(&self);
            fn code_hash(&self) -> Option<String>;
            fn run_params(&self) -> toml::Table;
            fn carried(&self) -> Option<Result<toml::Table, String>>;
            fn unserialisable(&self) -> Option<String>;
            fn resolve(&self, draw: &Draw, facts: Facts) -> Vec<(&'static str, f64)>;
            fn needs(&self, draw: &Draw, facts: Facts, later: &LaterNeed<'_>) -> Option<Need>;
            fn needs_region(&self, draw: &Draw, sides: [usize; 3], foreground: &mut FindForeground<'_>) -> Option<Region>;
            fn looks_for_foreground(&self) -> bool;
            fn will_look_for_foreground(&self, draw: &Draw) -> bool;
            fn keeps_places(&self) -> bool;
            fn keeps_labels(&self) -> bool;
            fn decoding(&self, field: &str) -> Option<Decoding>;
        }
    }

    /// It runs no interpreter, whatever op it replaces.
    fn is_foreign(&self) -> bool {
        false
    }

    fn apply_ahead(
        &self,
        sample: &mut Sample<'_>,
        draw: &Draw,
        _: &Ahead<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), OpError> {
        self.apply(sample, draw, workspace)
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        workspace.cancel().check()?;
        let Some(delivered) = &self.delivered else { return Ok(()) };
        for (name, kind) in delivered.iter() {
            // The result of a function is unknown. A small array of one shape will do.
            let fixed = if *kind == Kind::Any { Some((Dtype::U8, vec![1])) } else { kind.fixed() };
            let is_as_loaded = sample.get(name).is_ok_and(|value| value.array() == fixed);
            if is_as_loaded || OWN_FIELDS.contains(&&**name) {
                continue;
            }
            let value = match fixed {
                // The memory of the batch keeps its old content. No consumer reads it.
                Some((dtype, shape)) => {
                    let memory = sample.output(name, dtype, &shape, workspace)?;
                    Value::Tensor(Tensor::new(dtype, shape, memory))
                }
                None => Value::Text(String::new()),
            };
            sample.put(name, value);
        }
        Ok(())
    }
}
