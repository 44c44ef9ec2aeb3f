//! A folder of pictures: each sub-folder a class, in byte order; pictures that lie in the folder itself have label -1.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;

use super::{Origin, Source, SourceError, parameters};
use crate::batch::{Dtype, FieldTypes, Kind};
use crate::order::SampleId;
use crate::plan::{PlanError, Registry};
use crate::store::{Names, Store};
use crate::supply::Peer;

/// File name endings that count as pictures, in lower case.
const EXTENSIONS: [&str; 6] = [".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif"];

/// Pictures below a folder.
#[derive(Debug)]
pub struct FolderSource {
    root: String,
    store: Arc<dyn Store>,
    names: Names,
    classes: Vec<String>,
    labels: Vec<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    root: String,
}

impl FolderSource {
    /// Lists the pictures below the root of `store`, which messages call `root`.
    pub fn open(root: &str, store: Arc<dyn Store>) -> Result<Self, SourceError> {
        let others = AtomicUsize::new(0);
        let names = store.list(&|name| {
            let is_picture = is_picture(name);
            others.fetch_add(usize::from(!is_picture), Ordering::Relaxed);
            is_picture
        })?;
        if names.is_empty() {
            return Err(SourceError::NoPictures {
                root: root.to_owned(),
                others: others.into_inner(),
                extensions: EXTENSIONS.join(" "),
            });
        }
        let (classes, labels) = classify(&names);
        Ok(Self { root: root.to_owned(), store, names, classes, labels })
    }

    pub(super) fn from_params(params: toml::Table, registry: &Registry) -> Result<Self, PlanError> {
        let Params { root } = parameters("folder", params)?;
        let store = registry.store_for(&root)?;
        Ok(Self::open(&root, store)?)
    }

    /// Bytes of memory that the listing takes.
    pub fn memory_bytes(&self) -> usize {
        self.names.memory_bytes() + self.labels.capacity() * size_of::<i32>()
    }
}

fn is_picture(name: &str) -> bool {
    let has_ending = |ending: &&str| {
        name.len() > ending.len()
            && name.is_char_boundary(name.len() - ending.len())
            && name[name.len() - ending.len()..].eq_ignore_ascii_case(ending)
    };
    EXTENSIONS.iter().any(has_ending)
}

/// The sub-folders in byte order, and for each name which of them it lies in.
fn classify(names: &Names) -> (Vec<String>, Vec<i32>) {
    let class_of = |name: &str| name.split_once('/').map(|(class, _)| class.to_owned());
    let mut classes: Vec<String> = Vec::new();
    for class in names.iter().filter_map(class_of) {
        if classes.last() != Some(&class) {
            classes.push(class);
        }
    }
    // Sorted names do not keep a class together: "a-b/x" sorts between "a" and "a/x".
    classes.sort_unstable();
    classes.dedup();
    let label = |name: &str| {
        let class = name.split_once('/')?.0;
        classes.binary_search_by(|other| other.as_str().cmp(class)).ok()
    };
    let labels = names.iter().map(|name| label(name).map_or(-1, |label| label as i32)).collect();
    (classes, labels)
}

impl Source for FolderSource {
    fn len(&self) -> u64 {
        self.names.len() as u64
    }

    fn fields(&self) -> FieldTypes {
        let mut fields = FieldTypes::new();
        fields.set("image", Kind::Bytes);
        fields.set("label", Kind::tensor(Dtype::I64, &[]));
        fields
    }

    fn origin(&self, id: SampleId, field: &str) -> Origin<'_> {
        match field {
            "image" => Origin::Whole { store: &*self.store, name: self.names.get(id.0 as usize) },
            _ => Origin::Made,
        }
    }

    fn is_remote(&self) -> bool {
        self.store.is_remote() && self.store.is_near()
    }

    fn peer(&self) -> Option<Arc<dyn Peer>> {
        self.store.peer()
    }

    fn make(&self, id: SampleId, _field: &str, target: &mut [u8]) {
        target.copy_from_slice(&i64::from(self.labels[id.0 as usize]).to_ne_bytes());
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        self.names.get(id.0 as usize).into()
    }

    fn class_of(&self, id: SampleId) -> Option<i64> {
        Some(i64::from(self.labels[id.0 as usize]))
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn identity(&self) -> u128 {
        self.names.hash()
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        let mut table = toml::Table::new();
        table.insert("kind".to_owned(), "folder".into());
        table.insert("root".to_owned(), self.root.clone().into());
        Ok(table)
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Self::open(&self.root, Arc::clone(&self.store))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_sub_folders_in_byte_order_and_the_rest_is_minus_one() {
        let names: Names = ["a-b/1.jpg", "a/1.jpg", "a/deep/2.jpg", "z.jpg", "a-b/3.jpg"].into_iter().collect();
        let (classes, labels) = classify(&names);
        assert_eq!(classes, ["a", "a-b"]);
        let by_name: Vec<(&str, i32)> = names.iter().zip(labels).collect();
        assert_eq!(by_name, [("a-b/1.jpg", 1), ("a-b/3.jpg", 1), ("a/1.jpg", 0), ("a/deep/2.jpg", 0), ("z.jpg", -1)]);
    }

    /// A store of as many files as `ImageNet` has.
    #[derive(Debug)]
    struct Simulated;

    impl Store for Simulated {
        fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, crate::store::StoreError> {
            let names: Vec<String> =
                (0..1_300_000).map(|n| format!("n{:08}/n{:08}_{n}.JPEG", n % 1000, n % 1000)).collect();
            Ok(names.iter().map(String::as_str).filter(|name| accept(name)).collect())
        }

        fn read(&self, _: &str, _: &mut dyn crate::store::Room) -> Result<(), crate::store::StoreError> {
            unreachable!("listing reads no file")
        }

        fn open(&self, _: &str) -> Result<Arc<dyn crate::store::Object>, crate::store::StoreError> {
            unreachable!("listing opens no file")
        }

        fn address(&self, name: &str) -> String {
            name.to_owned()
        }
    }

    #[test]
    fn a_listing_of_1_3_million_files_takes_under_100_bytes_a_sample_beyond_the_names() {
        let source = FolderSource::open("simulated", Arc::new(Simulated)).unwrap();
        assert_eq!((source.len(), source.classes().len()), (1_300_000, 1000));
        let names: usize = source.names.iter().map(str::len).sum();
        let beyond = source.memory_bytes() - names;
        assert!(beyond < 100 * 1_300_000, "{} bytes a sample", beyond / 1_300_000);
    }

    #[test]
    fn pictures_are_known_by_their_ending_in_any_case() {
        for name in ["x.JPEG", "d/y.Png", "é.webp"] {
            assert!(is_picture(name), "{name}");
        }
        for name in ["x.txt", ".jpg", "jpg", "x.jpgé", "é"] {
            assert!(!is_picture(name), "{name}");
        }
    }
}
