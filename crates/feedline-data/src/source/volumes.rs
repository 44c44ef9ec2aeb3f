//! Volumes in a folder or a list: images, and their labels.
//!
//! In a folder, images and labels are recognised by their names without the ending: `case_7/imaging` and `case_7/segmentation` as
//! in `KiTS19`, `case_7_x` and `case_7_y` as in `MLPerf`'s prepared data, or `image` and `label` in either form. If no name
//! matches, all files are images.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_order::SampleId;
use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3;

use super::{Opener, Origin, Source, SourceError, parameters};
use crate::batch::{FieldTypes, Kind, VolumeKind};
use crate::dtype::Dtype;
use crate::memory::{Cancel, Workspace};
use crate::store::{DiskStore, Peer, Store};
use crate::volume::{VolumeError, VolumeFile};

/// File name endings that count as volumes, in lower case.
const ENDINGS: [&str; 3] = [".nii.gz", ".nii", ".npy"];
/// The last words of the names of images and of labels, before the ending.
const PAIRS: [(&str, &str); 3] = [("imaging", "segmentation"), ("image", "label"), ("x", "y")];
const IMAGE: &str = "image";
const LABEL: &str = "label";

/// Volumes with or without labels.
#[derive(Debug)]
pub struct VolumesSource {
    /// The folder, unless the user listed the files.
    root: Option<String>,
    store: Arc<dyn Store>,
    images: Vec<String>,
    labels: Option<Vec<String>>,
    image_channels: usize,
    label_channels: usize,
    /// Number of files below the root that are neither.
    skipped: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    root: Option<String>,
    images: Option<Vec<String>>,
    labels: Option<Vec<String>>,
}

impl VolumesSource {
    /// Lists the volumes below the root of `store`. Messages call it `root`.
    pub fn open(root: &str, store: Arc<dyn Store>) -> Result<Self, SourceError> {
        let others = AtomicU64::new(0);
        let names = store.list(&|name| {
            let is_volume = stem(name).is_some();
            // A store may call the filter from several threads. Only the sum matters, and `list` returns after all of them:
            // relaxed is enough.
            others.fetch_add(u64::from(!is_volume && !name.ends_with('/')), Ordering::Relaxed);
            is_volume
        })?;
        let names: Vec<&str> = names.iter().collect();
        if names.is_empty() {
            return Err(SourceError::NoVolumes { root: root.to_owned() });
        }
        let (images, labels) = paired(root, &names)?.unzip();
        if labels.is_none() {
            let volumes = names.len();
            tracing::warn!(
                root,
                volumes,
                "took all volumes as images, because no name says which are labels; pass a list of (image, label) to tell them apart"
            );
        }
        let images = images.unwrap_or_else(|| names.iter().map(|&name| name.to_owned()).collect());
        let others = others.into_inner();
        if others > 0 {
            tracing::warn!(root, files = others, "left out files that are not volumes");
        }
        // Files without a recognised name were listed too, but are left out.
        let taken = images.len() + labels.as_ref().map_or(0, Vec::len);
        let skipped = others + names.len().saturating_sub(taken) as u64;
        Ok(Self { skipped, ..Self::new(Some(root.to_owned()), store, images, labels)? })
    }

    /// Listed volumes. Labels, if any, have the same number.
    pub fn listed(images: Vec<String>, labels: Option<Vec<String>>) -> Result<Self, SourceError> {
        if images.is_empty() {
            return Err(SourceError::Parameter("volumes(): the list is empty".to_owned()));
        }
        if let Some(labels) = labels.as_ref().filter(|labels| labels.len() != images.len()) {
            let (field, first) = (LABEL.to_owned(), IMAGE.to_owned());
            return Err(SourceError::FieldLengths { field, has: labels.len(), first, expected: images.len() });
        }
        Self::new(None, Arc::new(DiskStore::below("")?), images, labels)
    }

    pub(super) fn from_params(params: toml::Table, opener: &dyn Opener) -> Result<Self, SourceError> {
        match parameters("volumes", params)? {
            Params { root: Some(root), images: None, labels: None } => {
                let store = opener.store_for(&root)?;
                Ok(Self::open(&root, store)?)
            }
            Params { root: None, images: Some(images), labels } => {
                // An opener that has no files rejects listed paths too.
                opener.store_for("")?;
                Ok(Self::listed(images, labels)?)
            }
            _ => {
                let text = "volumes need either a root, or a list of images and optionally one of labels";
                Err(SourceError::Parameter(text.to_owned()))
            }
        }
    }

    fn new(
        root: Option<String>,
        store: Arc<dyn Store>,
        images: Vec<String>,
        labels: Option<Vec<String>>,
    ) -> Result<Self, SourceError> {
        let image_channels = channels(&*store, &images)?;
        let label_channels = labels.as_ref().map_or(Ok(1), |labels| channels(&*store, labels))?;
        Ok(Self { root, store, images, labels, image_channels, label_channels, skipped: 0 })
    }

    fn names(&self, field: &str) -> &[String] {
        if field == IMAGE { &self.images } else { self.labels.as_deref().unwrap_or_default() }
    }

    /// The common folder of all names, with its last slash.
    fn common_root(&self) -> &str {
        let mut names = self.images.iter().chain(self.labels.iter().flatten());
        let first = names.next().map(String::as_str).unwrap_or_default();
        let mut common = first.rfind('/').map_or("", |slash| &first[..=slash]);
        for name in names {
            // Drop the last folder until the rest is a prefix. The empty string always is, so the loop ends.
            while !name.starts_with(common) {
                common = common[..common.len() - 1].rfind('/').map_or("", |slash| &common[..=slash]);
            }
        }
        common
    }
}

/// A name without the ending of a volume. `None` if it has no such ending.
fn stem(name: &str) -> Option<&str> {
    // `.nii.gz` is listed before `.nii`, and `get` returns `None` inside a UTF-8 character.
    let has = |ending: &&&str| {
        let start = name.len().checked_sub(ending.len());
        start.and_then(|start| name.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(ending))
    };
    ENDINGS.iter().find(has).map(|ending| &name[..name.len() - ending.len()])
}

/// The part of a stem before its last word, if that word stands alone.
fn before<'a>(stem: &'a str, word: &str) -> Option<&'a str> {
    let rest = stem.strip_suffix(word)?;
    (rest.is_empty() || rest.ends_with(['_', '/', '-', '.'])).then_some(rest)
}

type Paired = (Vec<String>, Vec<String>);

/// Images and labels in the same order. `None` if no name tells them apart.
fn paired(root: &str, names: &[&str]) -> Result<Option<Paired>, SourceError> {
    let known: BTreeSet<&str> = names.iter().filter_map(|name| stem(name)).collect();
    for (image_word, label_word) in PAIRS {
        let of = |word: &'static str| {
            names.iter().filter_map(move |name| Some((before(stem(name)?, word)?, *name))).collect::<Vec<_>>()
        };
        let (images, labels) = (of(image_word), of(label_word));
        // Without labels under this naming scheme, its images may be labelled under another one.
        if labels.is_empty() {
            continue;
        }
        // Compared without the ending: `a_x.nii.gz` and `a_y.npy` are a pair.
        let missing = |(rest, name): &(&str, &str), word: &str| {
            let counterpart = format!("{rest}{word}");
            (!known.contains(&*counterpart)).then(|| (name.to_string(), counterpart))
        };
        let alone = images.iter().find_map(|image| missing(image, label_word));
        let alone = alone.or_else(|| labels.iter().find_map(|label| missing(label, image_word)));
        if let Some((name, missing)) = alone {
            return Err(SourceError::NoPair { root: root.to_owned(), name, missing });
        }
        let others = names.len() - images.len() - labels.len();
        if others > 0 {
            tracing::warn!(root, others, image_word, label_word, "left out volumes whose names end in neither word");
        }
        // Images and labels may sort differently, so labels are looked up by name.
        unique(root, &images)?;
        let label_of = unique(root, &labels)?;
        let pair = |(rest, image): (&str, &str)| (image.to_owned(), label_of[rest].to_owned());
        return Ok(Some(images.into_iter().map(pair).unzip()));
    }
    Ok(None)
}

/// Names by the part before their last word. Fails if two names differ only in the ending.
fn unique<'a>(root: &str, found: &[(&'a str, &'a str)]) -> Result<BTreeMap<&'a str, &'a str>, SourceError> {
    let mut names = BTreeMap::new();
    for &(rest, name) in found {
        if let Some(other) = names.insert(rest, name) {
            let (first, second) = (other.to_owned(), name.to_owned());
            return Err(SourceError::SameName { root: root.to_owned(), first, second });
        }
    }
    Ok(names)
}

/// The number of channels of the first readable volume.
fn channels(store: &dyn Store, names: &[String]) -> Result<usize, SourceError> {
    let workspace = Workspace::new(Cancel::default(), 0);
    let read = |name: &String| -> Result<usize, VolumeError> {
        let object = store.open(name)?;
        let all = 0..object.len();
        Ok(VolumeFile::open(object, all, &workspace)?.header().channels)
    };
    let mut first = None;
    for name in names {
        match read(name) {
            Ok(channels) => return Ok(channels),
            // A damaged file fails later as a sample, by policy. Opening fails only if no file is readable.
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.expect("there is a name").into())
}

impl Source for VolumesSource {
    fn len(&self) -> u64 {
        self.images.len() as u64
    }

    fn fields(&self) -> FieldTypes {
        let mut types = FieldTypes::new();
        let image = VolumeKind { dtype: Dtype::F32, channels: self.image_channels, sides: None, is_label: false };
        types.set(IMAGE, Kind::Volume(image));
        if self.labels.is_some() {
            let label = VolumeKind { dtype: Dtype::U8, channels: self.label_channels, sides: None, is_label: true };
            types.set(LABEL, Kind::Volume(label));
        }
        types
    }

    fn origin(&self, id: SampleId, field: &str) -> Origin<'_> {
        Origin::Whole { store: &*self.store, name: &self.names(field)[id.0 as usize] }
    }

    fn peer(&self) -> Option<Arc<dyn Peer>> {
        self.store.peer()
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        self.images[id.0 as usize].as_str().into()
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn identity(&self) -> u128 {
        // Names below a root are relative already. Listed paths lose their common folder, so moved data keeps its identity.
        let root = if self.root.is_some() { 0 } else { self.common_root().len() };
        let mut hasher = Xxh3::new();
        hasher.update(b"volumes\0");
        for names in std::iter::once(&self.images).chain(&self.labels) {
            for name in names {
                hasher.update(&name.as_bytes()[root..]);
                hasher.update(&[0]);
            }
            hasher.update(&[0]);
        }
        hasher.digest128()
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        let mut table = toml::Table::new();
        table.insert("kind".to_owned(), "volumes".into());
        if let Some(root) = &self.root {
            table.insert("root".to_owned(), root.clone().into());
            return Ok(table);
        }
        table.insert("images".to_owned(), self.images.clone().into());
        if let Some(labels) = &self.labels {
            table.insert("labels".to_owned(), labels.clone().into());
        }
        Ok(table)
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(match &self.root {
            Some(root) => Self::open(root, Arc::clone(&self.store))?,
            None => Self::new(None, Arc::clone(&self.store), self.images.clone(), self.labels.clone())?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(names: &[&str]) -> Result<Option<Paired>, String> {
        paired("root", names).map_err(|error| error.to_string())
    }

    #[test]
    fn names_say_which_label_belongs_to_which_image() {
        let check = |names: [&str; 4], images: [&str; 2], labels: [&str; 2]| {
            let expected = (images.map(str::to_owned).to_vec(), labels.map(str::to_owned).to_vec());
            assert_eq!(pairs(&names), Ok(Some(expected)));
        };
        check(
            ["a/imaging.nii.gz", "a/segmentation.nii.gz", "b/imaging.nii", "b/segmentation.nii.gz"],
            ["a/imaging.nii.gz", "b/imaging.nii"],
            ["a/segmentation.nii.gz", "b/segmentation.nii.gz"],
        );
        check(["1_x.npy", "1_y.npy", "2_x.npy", "2_y.npy"], ["1_x.npy", "2_x.npy"], ["1_y.npy", "2_y.npy"]);
        assert_eq!(pairs(&["brain.npy", "galaxy.npy", "y_axis.npy"]), Ok(None));
    }

    #[test]
    fn labels_belong_to_their_images_however_their_names_sort() {
        let names = ["a_imaging.npy", "a_m_imaging.npy", "a_m_segmentation.npy", "a_segmentation.npy"];
        let (images, labels) = pairs(&names).unwrap().unwrap();
        assert_eq!(images, ["a_imaging.npy", "a_m_imaging.npy"]);
        assert_eq!(labels, ["a_segmentation.npy", "a_m_segmentation.npy"]);
    }

    #[test]
    fn two_files_that_differ_in_their_ending_alone_are_named() {
        let error = pairs(&["1_x.nii.gz", "1_x.npy", "1_y.npy"]).unwrap_err();
        assert!(error.contains("\"1_x.nii.gz\"") && error.contains("\"1_x.npy\""), "{error}");
    }

    #[test]
    fn an_image_without_its_label_is_named_and_so_is_a_label_without_its_image() {
        let error = pairs(&["1_x.npy", "1_y.npy", "2_x.npy"]).unwrap_err();
        assert!(error.contains("\"2_x.npy\"") && error.contains("\"2_y\""), "{error}");
        let error = pairs(&["a/segmentation.nii.gz"]).unwrap_err();
        assert!(error.contains("a/imaging"), "{error}");
    }
}
