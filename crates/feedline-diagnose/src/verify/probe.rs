//! An op that verification adds at the end of the chain. It records which samples are prepared, and can make one of them fail.

use std::collections::HashSet;
use std::sync::Arc;

use feedline_data::batch::{FieldTypes, Sample};
use feedline_data::memory::Workspace;
use feedline_data::op::{CheckError, On, Op, OpError, PlannedOp};
use feedline_data::plan::Plan;
use feedline_memory::Mutex;
use feedline_order::{Draw, SampleId, SampleRequest};

/// The name of the op in failures.
pub(super) const NAME: &str = "the probe of feedline verify";

/// An op that changes no field.
#[derive(Debug)]
pub(super) struct Probe {
    on: On,
    refused: Option<SampleId>,
    /// The first random number of each draw, which identifies a sample, its occurrence and its epoch.
    prepared: Mutex<HashSet<u64>>,
}

/// The error of the sample that is made to fail.
#[derive(Debug, thiserror::Error)]
#[error("feedline verify has made this sample fail")]
struct Refused;

impl Probe {
    /// A probe that records samples.
    pub(super) fn recording() -> Arc<Self> {
        Arc::new(Self { on: On::from(Vec::new()), refused: None, prepared: Mutex::default() })
    }

    /// A probe that makes one sample fail.
    pub(super) fn refusing(id: SampleId) -> Arc<Self> {
        Arc::new(Self { on: On::from(Vec::new()), refused: Some(id), prepared: Mutex::default() })
    }

    /// The probe as the op of a plan.
    pub(super) fn planned(self: &Arc<Self>) -> PlannedOp {
        PlannedOp::new(NAME, Arc::new(SharedProbe(Arc::clone(self))), toml::Table::new())
    }

    /// Whether a sample has been prepared. The probe must be the last op of `plan`.
    pub(super) fn has_prepared(&self, plan: &Plan, request: SampleRequest) -> bool {
        let draw = plan.chain().draw(plan.ops().len() - 1, request);
        self.prepared.lock().contains(&draw.bits(0))
    }
}

/// The op in the plan. It shares the probe with the check that reads it.
#[derive(Debug)]
struct SharedProbe(Arc<Probe>);

impl Op for SharedProbe {
    fn on(&self) -> &On {
        &self.0.on
    }

    fn check(&self, _: &mut FieldTypes) -> Result<(), CheckError> {
        Ok(())
    }

    /// `false` keeps the cost of samples the same, and with it the planned order.
    fn fires(&self, _: &Draw) -> bool {
        false
    }

    fn runs_anywhere(&self) -> bool {
        false
    }

    fn apply(&self, _: &mut Sample<'_>, draw: &Draw, _: &mut Workspace) -> Result<(), OpError> {
        if self.0.refused == Some(draw.id()) {
            return Err(OpError::Foreign(Box::new(Refused)));
        }
        // The draw is the only thing that an op knows about the sample, its occurrence and its epoch.
        self.0.prepared.lock().insert(draw.bits(0));
        Ok(())
    }
}
