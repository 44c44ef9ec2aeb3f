//! A Python function as an op.

use std::sync::Arc;

use feedline_data::batch::{FieldTypes, Kind, Sample, Value};
use feedline_data::memory::Workspace;
use feedline_data::op::{CheckError, On, Op, OpError, PlannedOp};
use feedline_net::worker::FunctionValue;
use feedline_order::Draw;
use pyo3::prelude::*;

use super::function::{CallInfo, Function};
use super::parts::Settings;
use super::values::{plain, value_of};

/// The name in plans.
pub(crate) const NAME: &str = "Map";

/// A Python function as an op.
#[derive(Debug)]
pub(crate) struct Map {
    function: Function,
    settings: Settings,
    /// The fields that the function gets, and those of its results.
    touched: On,
}

impl Map {
    pub(super) fn new(function: Function, settings: Settings) -> Self {
        let mut touched: Vec<String> = settings.inputs.names().map(str::to_owned).collect();
        for name in settings.outputs.names() {
            if !touched.iter().any(|touched| touched == name) {
                touched.push(name.to_owned());
            }
        }
        Self { function, settings, touched: touched.into() }
    }

    /// The op with its parameters.
    pub(super) fn planned(self) -> PlannedOp {
        let params = self.params();
        PlannedOp::new(NAME, Arc::new(self), params)
    }

    /// The parameters, as in a plan.
    fn params(&self) -> toml::Table {
        let Settings { inputs, outputs, shapes, deterministic, version } = &self.settings;
        let names = |on: &On| on.names().map(str::to_owned).collect::<Vec<_>>();
        let mut table = toml::Table::new();
        table.insert("fn".to_owned(), self.function.plan_name().into());
        table.insert("on".to_owned(), names(inputs).into());
        table.insert("deterministic".to_owned(), (*deterministic).into());
        table.insert("version".to_owned(), (*version as i64).into());
        // Defaults are left out, so that they do not change fingerprints.
        if outputs != inputs {
            table.insert("out".to_owned(), names(outputs).into());
        }
        if !shapes.is_empty() {
            let shapes = toml::Value::try_from(shapes).expect("shapes are plain data");
            table.insert("shapes".to_owned(), shapes);
        }
        table
    }

    /// The declared kind of a result.
    fn declared(&self, field: &str) -> Option<Kind> {
        self.settings.shapes.get(field).map(|declared| Kind::of_array(declared.dtype, &declared.shape))
    }

    fn check_result(&self, field: &str, result: &FunctionValue<'_>) -> Result<(), OpError> {
        let Some(declared) = self.settings.shapes.get(field) else { return Ok(()) };
        let has = match result {
            FunctionValue::Array { dtype, shape, .. } if *dtype == declared.dtype && *shape == declared.shape => {
                return Ok(());
            }
            FunctionValue::Array { dtype, shape, .. } => Kind::tensor(*dtype, shape).to_string(),
            FunctionValue::Bytes(_) => "bytes".to_owned(),
            FunctionValue::Text(_) => "text".to_owned(),
        };
        let declared = Kind::tensor(declared.dtype, &declared.shape);
        let text = format!("the function returned {has} for field {field:?}, but the op declares {declared}");
        Err(OpError::Foreign(text.into()))
    }
}

impl Op for Map {
    fn on(&self) -> &On {
        &self.touched
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        let Settings { inputs, outputs, shapes, .. } = &self.settings;
        for (field, _) in inputs.kinds(types)? {
            if !outputs.names().any(|name| name == field) {
                types.remove(&field);
            }
        }
        if let Some(unknown) = shapes.keys().find(|field| !outputs.names().any(|name| name == **field)) {
            return Err(CheckError::Parameter(format!(
                "shapes names field {unknown:?}, which the function does not return"
            )));
        }
        for name in outputs.names() {
            // Without a declaration, the type of a result is only known after the call.
            types.set(name, self.declared(name).unwrap_or(Kind::Any));
        }
        // Each output names another field.
        if outputs.names().next().is_some() { outputs.kinds(types).map(|_| ()) } else { Ok(()) }
    }

    fn is_random(&self) -> bool {
        !self.settings.deterministic
    }

    fn runs_anywhere(&self) -> bool {
        false
    }

    fn is_foreign(&self) -> bool {
        self.function.holds_interpreter()
    }

    fn reads_key(&self) -> bool {
        self.function.reads_key()
    }

    fn release(&self) {
        self.function.release();
    }

    fn unserialisable(&self) -> Option<String> {
        self.function.unwritable()
    }

    fn code_hash(&self) -> Option<String> {
        // A function whose code cannot be examined shares nothing: its text is like no hash.
        Some(Python::attach(|py| self.function.hash(py).map_or_else(|error| error.to_string(), str::to_owned)))
    }

    fn run_params(&self) -> toml::Table {
        let worker_type = toml::Value::try_from(self.function.worker_type()).expect("a name is plain data");
        toml::Table::from_iter([("worker_type".to_owned(), worker_type)])
    }

    fn carried(&self) -> Option<Result<toml::Table, String>> {
        let carried = Python::attach(|py| self.function.carry(py).map_err(|error| error.value(py).to_string()));
        let value = |carried| toml::Value::try_from(carried).expect("a carried function is plain data");
        Some(carried.map(|carried| toml::Table::from_iter([("carried".to_owned(), value(carried))])))
    }

    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        // Before attaching: a closing loader must not wait for the interpreter.
        workspace.cancel().check()?;
        let Settings { inputs, outputs, .. } = &self.settings;
        let key = match sample.get("key") {
            Ok(Value::Text(key)) if self.function.reads_key() => Some(key.clone()),
            _ => None,
        };
        let mut taken = Vec::new();
        for name in inputs.names() {
            taken.push(sample.take(name)?);
        }
        // The function's arguments and results are copies. Results are assumed to be as large as the arguments.
        workspace.reserve(2 * taken.iter().map(Value::content_bytes).sum::<usize>())?;
        let seeds = [draw.bits(0), draw.bits(1)];
        let info = CallInfo { seeds, index: draw.id().0, epoch: draw.epoch().0, key: key.as_deref() };
        let values: Vec<FunctionValue<'_>> = taken.iter().map(plain).collect();
        let results = self.function.call(&values, &info, workspace.cancel())?;
        let mut new = Vec::with_capacity(results.len());
        for (name, result) in outputs.names().zip(results) {
            self.check_result(name, &result)?;
            let old = inputs.names().position(|input| input == name).map(|number| &taken[number]);
            new.push(value_of(result, old));
        }
        for (name, value) in inputs.names().zip(taken) {
            if let Some(memory) = value.into_memory() {
                // The old memory may be a slot of the batch or a reusable buffer.
                sample.give_back(name, memory, workspace);
            }
        }
        for (name, value) in outputs.names().zip(new) {
            sample.put(name, value);
        }
        Ok(())
    }
}
