//! An op of ours at the end of the chain: notes which samples are prepared, and refuses one where that is wanted.

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

/// Leaves all fields alone.
#[derive(Debug)]
pub(super) struct Probe {
    on: On,
    refused: Option<SampleId>,
    /// First numbers of the draws: each stands for a sample, an occurrence and an epoch.
    noted: Mutex<HashSet<u64>>,
}

/// The sample was refused.
#[derive(Debug, thiserror::Error)]
#[error("feedline verify has made this sample fail")]
struct Refused;

impl Probe {
    /// Notes samples.
    pub(super) fn noting() -> Arc<Self> {
        Arc::new(Self { on: On::from(Vec::new()), refused: None, noted: Mutex::default() })
    }

    /// Makes a sample fail.
    pub(super) fn refusing(id: SampleId) -> Arc<Self> {
        Arc::new(Self { on: On::from(Vec::new()), refused: Some(id), noted: Mutex::default() })
    }

    /// The op in a plan.
    pub(super) fn planned(self: &Arc<Self>) -> PlannedOp {
        PlannedOp::new(NAME, Arc::new(SharedProbe(Arc::clone(self))), toml::Table::new())
    }

    /// Whether a sample has been prepared by a plan whose last op this is.
    pub(super) fn has_noted(&self, plan: &Plan, wanted: SampleRequest) -> bool {
        let draw = plan.chain().draw(plan.ops().len() - 1, wanted);
        self.noted.lock().contains(&draw.bits(0))
    }
}

/// The op is shared with the check that asks what it noted.
#[derive(Debug)]
struct SharedProbe(Arc<Probe>);

impl Op for SharedProbe {
    fn on(&self) -> &On {
        &self.0.on
    }

    fn check(&self, _: &mut FieldTypes) -> Result<(), CheckError> {
        Ok(())
    }

    /// It takes no time, so no planned order changes with it.
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
        self.0.noted.lock().insert(draw.bits(0));
        Ok(())
    }
}
