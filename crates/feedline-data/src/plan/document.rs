//! A plan as a TOML document.

use std::fmt::Write as _;
use std::path::Path;

use feedline_order::Rank;

use super::{Plan, PlanError, Registry, RunConfig, Settings};
use crate::source::Opener;
use crate::spec::SpecError;
use crate::store::{escaped_path, unescaped};

/// The version of the format.
const FORMAT: i64 = 1;

/// A plan in its written form. Opened with a registry it becomes a [`Plan`].
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The table of the source.
    pub source: toml::Table,
    /// The tables of the ops, in order.
    pub ops: Vec<toml::Table>,
    /// The settings that decide the stream.
    pub settings: Settings,
    /// The settings of execution.
    pub config: RunConfig,
}

impl Document {
    /// Parses a document. Unknown keys are errors.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let toml = |source: toml::de::Error| PlanError::Toml(Box::new(source));
        let mut table: toml::Table = toml::from_str(text).map_err(toml)?;
        match table.remove("feedline") {
            // A document without a version has the first format.
            None | Some(toml::Value::Integer(FORMAT)) => {}
            Some(found) => return Err(PlanError::Version { found: found.to_string(), known: FORMAT }),
        }
        let mut part = |key: &'static str| table.remove(key);
        let Some(toml::Value::Table(source)) = part("source") else {
            return Err(PlanError::NoSource);
        };
        let parameters = |of: &str, source| SpecError::Parameters { of: of.to_owned(), source: Box::new(source) };
        let ops = match part("ops") {
            Some(ops) => ops.try_into().map_err(|source| parameters("the list of ops", source))?,
            None => Vec::new(),
        };
        let config = match part("run") {
            Some(toml::Value::Table(run)) if run.contains_key("rank") || run.contains_key("world_size") => {
                // A plan is shared by all ranks. A rank in it would give all of them the same share.
                return Err(PlanError::RankInPlan);
            }
            Some(config) => config.try_into().map_err(|source| parameters("[run]", source))?,
            None => RunConfig::default(),
        };
        // All other keys are settings. Unknown ones are rejected by their type.
        let settings = toml::Value::Table(table).try_into().map_err(|source| parameters("the plan", source))?;
        Ok(Self { source, ops, settings, config })
    }

    /// Writes the document.
    pub fn to_toml(&self) -> String {
        let as_text = |table: &toml::Table| toml::to_string(table).expect("a table is valid TOML");
        let settings = toml::Table::try_from(&self.settings).expect("settings are plain data");
        let mut text = format!("feedline = {FORMAT}\n{}", as_text(&settings));
        let config = toml::Table::try_from(&self.config).expect("settings are plain data");
        let mut nested = toml::Table::new();
        nested.insert("source".to_owned(), toml::Value::Table(self.source.clone()));
        // An empty array is not a table. TOML would read it as a part of the last settings table.
        if !self.ops.is_empty() {
            nested.insert("ops".to_owned(), self.ops.clone().into());
        }
        nested.insert("run".to_owned(), toml::Value::Table(config));
        write!(text, "\n{}", as_text(&nested)).expect("writing to a string cannot fail");
        text
    }

    /// Rewrites relative paths for a process in another folder: they are taken relative to `folder`.
    #[must_use]
    pub fn seen_from(mut self, folder: &Path) -> Self {
        make_absolute(&mut self.source, folder);
        self
    }

    /// The document for one of several ranks.
    #[must_use]
    pub fn for_rank(mut self, rank: Rank) -> Self {
        self.config.rank = rank;
        self
    }

    /// Opens the source and checks the plan.
    pub fn open(self, registry: &Registry) -> Result<Plan, PlanError> {
        let source = registry.open_source(self.source)?;
        let ops: Result<Vec<_>, PlanError> = self.ops.into_iter().map(|table| registry.build_op(table)).collect();
        Plan::new(source, ops?, self.settings, self.config)
    }
}

/// Source parameters that contain paths: as a string, a list or a table.
const PATHS: [&str; 6] = ["root", "path", "shards", "images", "labels", "fields"];

fn make_absolute(source: &mut toml::Table, folder: &Path) {
    for (key, value) in source.iter_mut() {
        match value {
            // A subset contains the table of its parent source.
            toml::Value::Table(parent) if key == "of" => make_absolute(parent, folder),
            value if PATHS.contains(&&**key) => join_paths(value, folder),
            _ => {}
        }
    }
}

fn join_paths(value: &mut toml::Value, folder: &Path) {
    match value {
        toml::Value::String(path) if !path.contains("://") => {
            // `join` leaves absolute paths unchanged.
            *path = escaped_path(&folder.join(unescaped(path)));
        }
        toml::Value::Array(values) => values.iter_mut().for_each(|value| join_paths(value, folder)),
        toml::Value::Table(values) => values.iter_mut().for_each(|(_, value)| join_paths(value, folder)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_without_ops_is_read_back_unchanged_after_tables_of_settings() {
        let text = "batch_size = 1\non_error = { max_fraction = 0.5 }\n[source]\nkind = \"any\"\n";
        let document = Document::parse(text).unwrap();
        assert_eq!(Document::parse(&document.to_toml()).unwrap(), document);
    }

    #[test]
    fn relative_paths_of_all_sources_can_be_made_absolute() {
        let text = "batch_size = 1\n[source]\nkind = \"subset\"\nindices = [0]\n[source.of]\nkind = \"files\"\n\
                    labels = [1]\nfields = { image = [\"a.jpg\", \"/b.jpg\", \"s3://bucket/c.jpg\"] }\n";
        let document = Document::parse(text).unwrap().seen_from(Path::new("/data"));
        let written = document.to_toml();
        assert!(written.contains("[\"/data/a.jpg\", \"/b.jpg\", \"s3://bucket/c.jpg\"]"), "{written}");
        for (key, value) in [("root", "train"), ("shards", "x/*.tar"), ("path", "x.npy")] {
            let text = format!("batch_size = 1\n[source]\nkind = \"any\"\n{key} = {value:?}\n");
            let document = Document::parse(&text).unwrap().seen_from(Path::new("/data"));
            assert_eq!(document.source[key].as_str(), Some(&*format!("/data/{value}")));
        }
    }
}
