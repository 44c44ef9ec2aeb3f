//! Plans: built from parts, read from and written to TOML.

use std::path::PathBuf;
use std::sync::Arc;

use feedline_data::batch::{Kind, VolumeKind};
use feedline_data::dtype::Dtype;
use feedline_data::failure::chain;
use feedline_data::op::{Facts, PlannedOp};
use feedline_data::plan::{Document, Plan as CorePlan, PlanError, RunConfig};
use feedline_order::{Epoch, Occurrence, Rank, SampleId, SampleRequest};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{self, table, to_python};
use crate::errors::plan_error;
use crate::logging;
use crate::map::FunctionParts;
use crate::registry::registry;
use crate::source::Source;

fn rank_of((rank, world): (u32, u32)) -> Rank {
    Rank { rank, world }
}

/// A checked plan.
#[pyclass(frozen, module = "feedline._feedline")]
pub struct Plan(pub Arc<CorePlan>);

/// An op as Python passes it: the table of a plan, or a function with its parameters.
#[derive(FromPyObject)]
enum OpParts<'py> {
    #[pyo3(transparent)]
    Function(FunctionParts),
    #[pyo3(transparent)]
    Table(Bound<'py, PyAny>),
}

#[pymethods]
impl Plan {
    /// Checks that source, ops and settings fit together.
    #[new]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, Source>,
        ops: Vec<OpParts<'_>>,
        settings: &Bound<'_, PyDict>,
        config: &Bound<'_, PyDict>,
        rank: (u32, u32),
    ) -> PyResult<Self> {
        // The functions are objects of the user's own program, so running them needs no permission.
        let registry = registry(None).allowing_functions();
        let refuse = |error: PlanError| plan_error(py, &error);
        let build = |(number, parts)| match parts {
            OpParts::Function(function) => function.planned(py, number),
            OpParts::Table(params) => registry.build_op(table(&params)?).map_err(refuse),
        };
        let ops: PyResult<Vec<PlannedOp>> = ops.into_iter().enumerate().map(build).collect();
        let settings = convert::settings(settings)?;
        let config = RunConfig { rank: rank_of(rank), ..convert::settings(config)? };
        let (source, ops) = (Arc::clone(&source.get().0), ops?);
        // Detached, because checking a plan may take long for a large source.
        let checked = py.detach(|| CorePlan::new(source, ops, settings, config));
        Ok(Self(Arc::new(checked.map_err(refuse)?)))
    }

    /// Reads a plan and opens its source, for `rank` as (rank, world size). Functions are refused unless they are allowed.
    #[staticmethod]
    fn from_toml(
        py: Python<'_>,
        text: &str,
        rank: (u32, u32),
        cache: Option<PathBuf>,
        allow_functions: bool,
    ) -> PyResult<Self> {
        logging::install();
        let registry = registry(cache);
        let registry = if allow_functions { registry.allowing_functions() } else { registry };
        let opened = py.detach(|| Document::parse(text)?.for_rank(rank_of(rank)).open(&registry));
        logging::forward(py)?;
        Ok(Self(Arc::new(opened.map_err(|error| plan_error(py, &error))?)))
    }

    /// Writes the plan.
    fn to_toml(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.document().map_err(|error| plan_error(py, &error))?.to_toml())
    }

    /// The same plan for another rank.
    fn for_rank(&self, py: Python<'_>, rank: u32, world: u32) -> PyResult<Self> {
        let plan = Arc::clone(&self.0);
        let opened = py.detach(|| plan.for_rank(Rank { rank, world }));
        Ok(Self(Arc::new(opened.map_err(|error| plan_error(py, &error))?)))
    }

    /// The rank of the plan, and the number of ranks.
    #[getter]
    fn rank(&self) -> (u32, u32) {
        let Rank { rank, world } = self.0.config().rank;
        (rank, world)
    }

    /// The same plan over a new listing of its source.
    fn reopen(&self, py: Python<'_>) -> PyResult<Self> {
        let plan = Arc::clone(&self.0);
        let opened = py.detach(|| plan.refreshed());
        Ok(Self(Arc::new(opened.map_err(|error| plan_error(py, &error))?)))
    }

    /// The names of the ops.
    #[getter]
    fn ops(&self) -> Vec<String> {
        self.0.ops().iter().map(|op| op.name().to_string()).collect()
    }

    /// The source.
    #[getter]
    fn source(&self) -> Source {
        Source(Arc::clone(self.0.source()))
    }

    /// The settings of the stream.
    #[getter]
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.0.settings())
    }

    /// The settings of the execution.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.0.config())
    }

    /// Hashes of listing, values, order and run.
    #[getter]
    fn fingerprints(&self) -> std::collections::BTreeMap<&'static str, String> {
        let prints = self.0.fingerprints();
        let entries =
            [("listing", prints.listing), ("values", prints.values), ("order", prints.order), ("run", prints.run)];
        entries.into_iter().map(|(name, print)| (name, print.to_string())).collect()
    }

    /// Why a node cannot prepare its samples, shared between jobs or for one rank. `None` if it can.
    #[getter]
    fn unshared(&self) -> Option<String> {
        let written = self.0.handed_over().map(drop).map_err(|error| chain(&error));
        let is_rank = self.0.config().rank.world > 1;
        let checked = if is_rank { self.0.check_partitioned() } else { self.0.check_shared() };
        checked.map_err(|why| why.to_string()).and(written).err()
    }

    /// Names of the delivered fields in bfloat16, which `NumPy` does not have.
    #[getter]
    fn bfloat16_fields(&self) -> Vec<String> {
        let is_bfloat16 = |kind: &Kind| match kind {
            Kind::Tensor { dtype, .. } | Kind::Volume(VolumeKind { dtype, .. }) => *dtype == Dtype::BF16,
            _ => false,
        };
        self.0.types().iter().filter(|(_, kind)| is_bfloat16(kind)).map(|(name, _)| name.to_string()).collect()
    }

    /// Batches per epoch of this rank.
    #[getter]
    fn batches_per_epoch(&self) -> u64 {
        self.0.batches_per_epoch()
    }

    /// The indices of an epoch's samples in the order of delivery.
    fn indices(&self, epoch: u64) -> Vec<u64> {
        self.0.ids(Epoch(epoch), u64::MAX)
    }

    /// The random parameters of op `number` for a picture of this size, by name. Reads no data.
    fn resolve(
        &self,
        number: usize,
        epoch: u64,
        index: u64,
        width: u32,
        height: u32,
    ) -> PyResult<Vec<(&'static str, f64)>> {
        let Some(planned) = self.0.ops().get(number) else {
            return Err(PyIndexError::new_err(format!("the plan has {} ops", self.0.ops().len())));
        };
        let request = SampleRequest { id: SampleId(index), epoch: Epoch(epoch), occurrence: Occurrence(0) };
        Ok(planned.op().resolve(&self.0.chain().draw(number, request), Facts { width, height }))
    }
}
