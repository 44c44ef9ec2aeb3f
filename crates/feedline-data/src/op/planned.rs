//! An op in a chain: its name, its behaviour, and its parameters.

use std::sync::Arc;

use serde::Serialize;

use super::{CheckError, MisplacedOp, Op};
use crate::batch::{FieldTypes, Kind};

/// An op of a plan.
#[derive(Clone, Debug)]
pub struct PlannedOp {
    name: Arc<str>,
    op: Arc<dyn Op>,
    params: toml::Table,
}

/// An op that cannot be written into a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("op {op} cannot be written into a plan: {why}")]
pub struct UnwritableOp {
    /// Its name.
    pub op: String,
    /// The reason.
    pub why: String,
}

impl PlannedOp {
    /// An op whose parameters are plain data.
    pub(super) fn of_data<O: Op + Serialize + 'static>(name: &str, op: O) -> Self {
        // From the parsed op, not from the user's table: defaults become explicit, and equal ops have equal texts.
        let params = toml::Table::try_from(&op).expect("parameters of an op are plain data");
        Self::new(name, Arc::new(op), params)
    }

    /// An op with its parameters in the form of a plan.
    pub fn new(name: &str, op: Arc<dyn Op>, params: toml::Table) -> Self {
        Self { name: name.into(), op, params }
    }

    /// The name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its behaviour.
    pub fn op(&self) -> &dyn Op {
        &*self.op
    }

    /// Whether it decodes approximate pixels, which depend on the crop that follows.
    pub fn is_approximate(&self) -> bool {
        self.op.on().names().any(|name| self.op.decoding(name).is_some_and(|decoding| decoding.fast))
    }

    /// The parameters as text, defaults included. Equal texts mean equal ops.
    pub fn fingerprint_text(&self) -> String {
        format!("{} {}", self.name, toml::to_string(&self.params).expect("a table is valid TOML"))
    }

    /// The parameters and the code of the user in it, as text. Equal texts mean equal results in other processes, too.
    pub fn code_text(&self) -> String {
        let text = self.fingerprint_text();
        // Ops without code keep their text, and with it the samples that earlier versions cached.
        self.op.code_hash().map_or(text.clone(), |code| format!("{text} {code}"))
    }

    /// The op as a table of a plan.
    pub fn table(&self) -> Result<toml::Table, UnwritableOp> {
        if let Some(why) = self.op.unserialisable() {
            return Err(UnwritableOp { op: self.name.to_string(), why });
        }
        Ok(self.with_name(toml::Table::new()))
    }

    /// The op as a table for another process of this user on this machine, which takes the functions of this program.
    pub fn handed_over(&self) -> Result<toml::Table, UnwritableOp> {
        match self.op.carried() {
            None => self.table(),
            Some(Ok(carried)) => Ok(self.with_name(carried)),
            Some(Err(why)) => Err(UnwritableOp { op: self.name.to_string(), why }),
        }
    }

    fn with_name(&self, further: toml::Table) -> toml::Table {
        let mut table = toml::Table::new();
        table.insert("op".to_owned(), self.name.to_string().into());
        table.extend(self.params.clone());
        table.extend(self.op.run_params());
        table.extend(further);
        table
    }

    /// Checks the op in its place before the ops `later`, and sets the kinds of the fields after it.
    pub(crate) fn check(&self, types: &mut FieldTypes, later: &[Self]) -> Result<(), MisplacedOp> {
        let decodes =
            |op: &Self, field: &str| &*op.name == "DecodeImage" && op.op.on().names().any(|name| name == field);
        self.op.check(types).map_err(|cause| {
            // If a decoder comes later in the chain, the order of the ops is wrong. That message helps more than "add
            // DecodeImage".
            let decoder = match &cause {
                CheckError::Needs { field, has: Kind::Bytes, .. } => later.iter().find(|op| decodes(op, field)),
                _ => None,
            };
            let cause = match (cause, decoder) {
                (CheckError::Needs { needs, .. }, Some(decoder)) => {
                    CheckError::Before { needs, later: decoder.name.to_string() }
                }
                (cause, _) => cause,
            };
            MisplacedOp { op: self.name.to_string(), cause }
        })
    }
}
