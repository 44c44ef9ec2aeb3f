//! Lists of files, several per sample, such as a picture and its mask, with labels of any kind.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use feedline_order::SampleId;
use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3;

use super::labels::{PlainLabels, PlainList};
use super::{Labels, Origin, Source, SourceError, check_field_name, parameters};
use crate::batch::{FieldTypes, Kind};
use crate::dtype::Dtype;
use crate::store::DiskStore;

/// Samples from listed files, in the order of the lists.
#[derive(Debug)]
pub struct FilesSource {
    store: DiskStore,
    fields: Vec<(String, Vec<String>)>,
    labels: Option<Labels>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    fields: BTreeMap<String, Vec<String>>,
    labels: Option<PlainList>,
    label_dtype: Option<Dtype>,
}

impl FilesSource {
    /// Samples from one list of paths per field. All lists have the same length.
    pub fn new(fields: Vec<(String, Vec<String>)>, labels: Option<Labels>) -> Result<Self, SourceError> {
        let Some((first, paths)) = fields.first() else {
            return Err(SourceError::Parameter("files() needs at least one field with a list of paths".to_owned()));
        };
        if paths.is_empty() {
            return Err(SourceError::Parameter(format!("files(): the list of {first:?} is empty")));
        }
        for (field, other) in &fields {
            if other.len() != paths.len() {
                let (field, first) = (field.clone(), first.clone());
                return Err(SourceError::FieldLengths { field, has: other.len(), first, expected: paths.len() });
            }
            check_field_name("files()", field)?;
        }
        if let Some(labels) = &labels {
            labels.check_len(paths.len() as u64)?;
        }
        Ok(Self { store: DiskStore::below("")?, fields, labels })
    }

    pub(super) fn from_params(params: toml::Table) -> Result<Self, SourceError> {
        let Params { fields, labels, label_dtype } = parameters("files", params)?;
        Self::new(fields.into_iter().collect(), PlainLabels { labels, label_dtype }.open()?)
    }

    /// The common folder of all paths, with its last slash.
    fn common_root(&self) -> &str {
        let mut paths = self.fields.iter().flat_map(|(_, paths)| paths.iter());
        let first = paths.next().map(String::as_str).unwrap_or_default();
        let mut common = first.rfind('/').map_or("", |slash| &first[..=slash]);
        for path in paths {
            // Drop the last folder until the rest is a prefix. The empty string always is, so the loop ends.
            while !path.starts_with(common) {
                common = common[..common.len() - 1].rfind('/').map_or("", |slash| &common[..=slash]);
            }
        }
        common
    }
}

impl Source for FilesSource {
    fn len(&self) -> u64 {
        self.fields[0].1.len() as u64
    }

    fn fields(&self) -> FieldTypes {
        let mut types = FieldTypes::new();
        for (field, _) in &self.fields {
            types.set(field, Kind::Bytes);
        }
        if let Some(labels) = &self.labels {
            types.set("label", labels.kind());
        }
        types
    }

    fn origin(&self, id: SampleId, field: &str) -> Origin<'_> {
        match self.fields.iter().find(|(name, _)| name == field) {
            Some((_, paths)) => Origin::Whole { store: &self.store, name: &paths[id.0 as usize] },
            None => Origin::Made,
        }
    }

    fn make(&self, id: SampleId, _field: &str, target: &mut [u8]) {
        if let Some(labels) = &self.labels {
            target.copy_from_slice(labels.get(id));
        }
    }

    fn made_shape(&self, id: SampleId, _field: &str) -> Option<Vec<usize>> {
        self.labels.as_ref()?.made_shape(id)
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        self.fields[0].1[id.0 as usize].as_str().into()
    }

    fn class_of(&self, id: SampleId) -> Option<i64> {
        self.labels.as_ref()?.class_of(id)
    }

    fn classes(&self) -> &[String] {
        self.labels.as_ref().map_or(&[], Labels::classes)
    }

    fn identity(&self) -> u128 {
        // Only the part below the common folder counts, so a data set that is moved keeps its identity.
        let root = self.common_root().len();
        let mut hasher = Xxh3::new();
        for (field, paths) in &self.fields {
            for text in std::iter::once(field.as_str()).chain(paths.iter().map(|path| &path[root..])) {
                hasher.update(text.as_bytes());
                // The separator keeps ["ab", "c"] and ["a", "bc"] apart.
                hasher.update(&[0]);
            }
        }
        if let Some(labels) = &self.labels {
            hasher.update(&labels.identity().to_le_bytes());
        }
        hasher.digest128()
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        let mut table = toml::Table::new();
        table.insert("kind".to_owned(), "files".into());
        let fields = self.fields.iter().map(|(field, paths)| (field.clone(), paths.clone().into()));
        table.insert("fields".to_owned(), toml::Value::Table(fields.collect()));
        if let Some(labels) = &self.labels {
            labels.plain()?.add_to(&mut table);
        }
        Ok(table)
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Self::new(self.fields.clone(), self.labels.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(paths: &[&str]) -> FilesSource {
        let paths = paths.iter().map(|&path| path.to_owned()).collect();
        FilesSource::new(vec![("image".to_owned(), paths)], None).unwrap()
    }

    #[test]
    fn identity_depends_on_the_names_below_the_common_folder_only() {
        let here = source(&["/data/a/1.jpg", "/data/b/2.jpg"]);
        let there = source(&["elsewhere/a/1.jpg", "elsewhere/b/2.jpg"]);
        assert_eq!(here.identity(), there.identity());
        assert_ne!(here.identity(), source(&["/data/a/1.jpg", "/data/b/3.jpg"]).identity());
        assert_eq!(source(&["x.jpg", "/y.jpg"]).common_root(), "");
    }

    #[test]
    fn lists_of_different_length_are_refused_by_name() {
        let fields = vec![("image".to_owned(), vec!["a".to_owned()]), ("mask".to_owned(), vec![])];
        let text = FilesSource::new(fields, None).unwrap_err().to_string();
        assert_eq!(text, "\"mask\" has 0 files, but \"image\" has 1");
    }
}
