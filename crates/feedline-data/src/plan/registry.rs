//! The ops, sources and stores that plans can name, and the cache folder that they may use.
//!
//! This is a value, not a global: this crate fills it, other crates add to it, and the caller that opens a plan passes it in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::PlanError;
use crate::op::PlannedOp;
use crate::source::{Opener, Source, SourceError};
use crate::spec::SpecError;
use crate::store::{OpenStore, Store, StoreError};
use crate::{op, source, store};

type SourceBuilder = Box<dyn Fn(toml::Table, &dyn Opener) -> Result<Arc<dyn Source>, SourceError> + Send + Sync>;
type OpBuilder = Box<dyn Fn(toml::Table) -> Result<PlannedOp, PlanError> + Send + Sync>;

/// The scheme of plain paths.
const DISK: &str = "file";

/// Ops, sources and stores by name.
pub struct Registry {
    ops: BTreeMap<String, OpBuilder>,
    sources: BTreeMap<String, SourceBuilder>,
    stores: BTreeMap<String, OpenStore>,
    cache_folder: Option<PathBuf>,
    /// Ops whose parameters name code. A plan with such an op is rejected, unless the caller trusts the plan.
    code_ops: BTreeSet<String>,
    allows_functions: bool,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("ops", &self.op_names())
            .field("sources", &known(&self.sources))
            .field("stores", &known(&self.stores))
            .field("cache_folder", &self.cache_folder)
            .field("allows_functions", &self.allows_functions)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// All ops, and the given sources.
    fn with_sources(sources: impl IntoIterator<Item = (&'static str, source::OpenSource)>) -> Self {
        let op = |(name, build): (&'static str, op::BuildOp)| -> (String, OpBuilder) {
            (name.to_owned(), Box::new(move |params| Ok(build(name, params)?)))
        };
        let source =
            |(kind, open): (&str, source::OpenSource)| -> (String, SourceBuilder) { (kind.to_owned(), Box::new(open)) };
        Self {
            ops: op::OPS.iter().copied().map(op).collect(),
            sources: sources.into_iter().map(source).collect(),
            stores: BTreeMap::new(),
            cache_folder: None,
            code_ops: BTreeSet::new(),
            allows_functions: false,
        }
    }

    /// Everything in this crate.
    pub fn core() -> Self {
        let mut registry = Self::with_sources(source::STORED.iter().chain(source::OTHERS).copied());
        registry.stores.extend(store::stores().map(|(scheme, open)| (scheme.to_owned(), open)));
        registry
    }

    /// The registry of a server: all ops, and the sources whose stores it adds itself. Nothing in it opens a file by its path.
    pub fn confined() -> Self {
        Self::with_sources(source::STORED.iter().copied())
    }

    /// Adds a folder in which sources may save what they found out. It is created when needed.
    #[must_use]
    pub fn with_cache_folder(self, folder: PathBuf) -> Self {
        Self { cache_folder: Some(folder), ..self }
    }

    /// Allows plans that run any code. For plans of the user's own program, never for a file from elsewhere.
    #[must_use]
    pub fn allowing_functions(self) -> Self {
        Self { allows_functions: true, ..self }
    }

    /// Adds an op with its own build function.
    pub fn op_with(
        &mut self,
        name: &str,
        build: impl Fn(toml::Table) -> Result<PlannedOp, PlanError> + Send + Sync + 'static,
    ) {
        self.ops.insert(name.to_owned(), Box::new(build));
    }

    /// Adds an op whose parameters name code. Only a registry that allows functions builds it.
    pub fn code_op(
        &mut self,
        name: &str,
        build: impl Fn(toml::Table) -> Result<PlannedOp, PlanError> + Send + Sync + 'static,
    ) {
        self.code_ops.insert(name.to_owned());
        self.op_with(name, build);
    }

    /// Adds a kind of source.
    pub fn source(
        &mut self,
        kind: &str,
        open: impl Fn(toml::Table, &dyn Opener) -> Result<Arc<dyn Source>, SourceError> + Send + Sync + 'static,
    ) {
        self.sources.insert(kind.to_owned(), Box::new(open));
    }

    /// Adds a store for URLs of a scheme.
    pub fn store(
        &mut self,
        scheme: &str,
        open: impl Fn(&str) -> Result<Arc<dyn Store>, StoreError> + Send + Sync + 'static,
    ) {
        self.stores.insert(scheme.to_owned(), Box::new(open));
    }

    /// The names of all ops.
    pub fn op_names(&self) -> Vec<&str> {
        self.ops.keys().map(String::as_str).collect()
    }

    /// Builds an op from its table in a plan. The key `op` holds its name.
    pub fn build_op(&self, mut table: toml::Table) -> Result<PlannedOp, PlanError> {
        let Some(toml::Value::String(name)) = table.remove("op") else {
            return Err(SpecError::NoName { of: "an op".to_owned(), key: "op" }.into());
        };
        match self.ops.get(&name) {
            // Checked before the op is built: building it would import the function.
            Some(_) if self.code_ops.contains(&name) && !self.allows_functions => {
                let function = table.get("fn").map(ToString::to_string).unwrap_or_default();
                Err(PlanError::Functions { op: name, function })
            }
            Some(build) => build(table),
            None => Err(SpecError::Unknown { what: "op", name, known: known(&self.ops) }.into()),
        }
    }
}

impl Opener for Registry {
    fn store_for(&self, url: &str) -> Result<Arc<dyn Store>, StoreError> {
        // A path without a scheme is on disk.
        let scheme = url.split_once("://").map_or(DISK, |(scheme, _)| scheme);
        match self.stores.get(scheme) {
            Some(open) => open(url),
            None => {
                Err(SpecError::Unknown { what: "store", name: scheme.to_owned(), known: known(&self.stores) }.into())
            }
        }
    }

    fn open_source(&self, mut table: toml::Table) -> Result<Arc<dyn Source>, SourceError> {
        let Some(toml::Value::String(kind)) = table.remove("kind") else {
            return Err(SpecError::NoName { of: "the source".to_owned(), key: "kind" }.into());
        };
        match self.sources.get(&kind) {
            Some(open) => open(table, self),
            None => Err(SpecError::Unknown { what: "source", name: kind, known: known(&self.sources) }.into()),
        }
    }

    fn cache_folder(&self) -> Option<&Path> {
        self.cache_folder.as_deref()
    }
}

fn known<T>(entries: &BTreeMap<String, T>) -> String {
    entries.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}
