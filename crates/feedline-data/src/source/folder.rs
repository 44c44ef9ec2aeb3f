//! A folder of pictures. Each sub-folder is a class, in byte order. Pictures in the folder itself have label -1.
//!
//! A class keeps its number whatever its folder contains, so the labels of two folders with the same sub-folders agree. A
//! sub-folder without pictures is an error, unless the user allows it. A warning counts and names files that were left out.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use feedline_memory::Mutex;
use feedline_order::SampleId;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::{Opener, Origin, Source, SourceError, parameters};
use crate::batch::{FieldTypes, Kind};
use crate::dtype::Dtype;
use crate::store::{Names, Peer, Store};

/// Endings of picture files in lower case: all formats that can be decoded.
const EXTENSIONS: [&str; 11] =
    [".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".ppm", ".pgm", ".pnm"];
/// Upper limit of file kinds named in a warning.
const MAX_NAMED: usize = 5;

/// Pictures below a folder.
#[derive(Debug)]
pub struct FolderSource {
    root: String,
    store: Arc<dyn Store>,
    options: FolderOptions,
    names: Names,
    classes: Vec<String>,
    labels: Vec<i32>,
    skipped: u64,
}

/// Which files are taken, and how classes are numbered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FolderOptions {
    /// The classes in the order of their labels. By default the sub-folders in byte order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
    /// Endings of the files to take, in any case, with or without a dot. By default those of all pictures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Vec<String>>,
    /// Whether a class may have no pictures.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_empty: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    root: String,
    classes: Option<Vec<String>>,
    extensions: Option<Vec<String>>,
    #[serde(default)]
    allow_empty: bool,
}

/// What a listing found besides pictures.
#[derive(Debug, Default)]
struct NonPictures {
    /// Names of the sub-folders.
    folders: BTreeSet<String>,
    /// Number of other files, by ending.
    skipped: BTreeMap<String, u64>,
}

impl FolderSource {
    /// Lists the pictures below the root of `store`. Messages call it `root`.
    pub fn open(root: &str, store: Arc<dyn Store>, options: FolderOptions) -> Result<Self, SourceError> {
        let extensions = options.extensions()?;
        // A store may call the filter from several threads.
        let non_pictures: Mutex<NonPictures> = Mutex::default();
        let names = store.list(&|name| {
            let is_picture = has_extension(name, &extensions);
            if !is_picture {
                non_pictures.lock().add(name);
            }
            is_picture
        })?;
        let NonPictures { mut folders, skipped } = non_pictures.into_inner();
        let others = skipped.values().sum::<u64>();
        if names.is_empty() {
            let (root, others, extensions) = (root.to_owned(), others as usize, extensions.join(" "));
            return Err(SourceError::NoPictures { root, others, extensions });
        }
        // Sub-folders with at least one picture. `non_pictures` has the folders in which other files were found, or nothing at all.
        let filled: BTreeSet<String> = names.iter().filter_map(class_of).map(str::to_owned).collect();
        let empty: Vec<String> = folders.difference(&filled).cloned().collect();
        if !empty.is_empty() && !options.allow_empty {
            let extensions = extensions.join(" ");
            return Err(SourceError::EmptyClasses { root: root.to_owned(), classes: first_names(&empty), extensions });
        }
        // Empty folders are numbered too, so that a class keeps its number whatever its folder contains.
        folders.extend(filled);
        let classes = options.number(root, folders)?;
        let labels = labels(&names, &classes);
        // All pictures without a sub-folder is a valid data set without classes. Only a mixture is suspicious.
        let unclassed = labels.iter().filter(|&&label| label < 0).count();
        if unclassed > 0 && unclassed < labels.len() {
            tracing::warn!(
                root,
                pictures = unclassed,
                "pictures outside the sub-folders have label -1; move them into a sub-folder"
            );
        }
        if others > 0 {
            let kinds = frequent_kinds(&skipped);
            tracing::warn!(
                root,
                files = others,
                kinds,
                "left out files that are not pictures; set extensions= to choose endings"
            );
        }
        let (root, skipped) = (root.to_owned(), others);
        Ok(Self { root, store, options, names, classes, labels, skipped })
    }

    pub(super) fn from_params(params: toml::Table, opener: &dyn Opener) -> Result<Self, SourceError> {
        let Params { root, classes, extensions, allow_empty } = parameters("folder", params)?;
        let store = opener.store_for(&root)?;
        Self::open(&root, store, FolderOptions { classes, extensions, allow_empty })
    }

    /// Memory of the listing in bytes.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        self.names.memory_bytes() + self.labels.capacity() * size_of::<i32>()
    }
}

impl FolderOptions {
    /// Endings with their dot, in lower case.
    fn extensions(&self) -> Result<Vec<String>, SourceError> {
        let Some(requested) = &self.extensions else { return Ok(EXTENSIONS.map(str::to_owned).to_vec()) };
        let endings: Vec<String> = requested
            .iter()
            .map(|ending| format!(".{}", ending.trim_start_matches('.').to_ascii_lowercase()))
            .collect();
        match endings.iter().find(|ending| ending.len() < 2 || ending.contains('/')) {
            _ if endings.is_empty() => {
                Err(SourceError::Parameter("extensions is empty; leave it out to take all pictures".to_owned()))
            }
            Some(wrong) => Err(SourceError::Parameter(format!(
                "extensions has {wrong:?}, which is not an ending such as \".jpg\""
            ))),
            None => Ok(endings),
        }
    }

    /// The classes in the order of their labels.
    fn number(&self, root: &str, folders: BTreeSet<String>) -> Result<Vec<String>, SourceError> {
        let Some(classes) = &self.classes else { return Ok(folders.into_iter().collect()) };
        let known: BTreeSet<&String> = classes.iter().collect();
        if known.len() < classes.len() {
            return Err(SourceError::Parameter(format!("classes names a class twice: {}", first_names(classes))));
        }
        let unknown: Vec<String> = folders.into_iter().filter(|folder| !known.contains(folder)).collect();
        if unknown.is_empty() {
            return Ok(classes.clone());
        }
        Err(SourceError::UnknownClasses {
            root: root.to_owned(),
            folders: first_names(&unknown),
            classes: first_names(classes),
        })
    }
}

impl NonPictures {
    fn add(&mut self, name: &str) {
        if let Some(folder) = class_of(name)
            && !self.folders.contains(folder)
        {
            self.folders.insert(folder.to_owned());
        }
        // A store names a folder with a final slash. It is no file, so it is not counted.
        if !name.ends_with('/') {
            let base = name.rsplit('/').next().unwrap_or_default();
            let ending = base.rsplit_once('.').map_or("no extension".to_owned(), |(_, ending)| format!(".{ending}"));
            *self.skipped.entry(ending).or_default() += 1;
        }
    }
}

/// The sub-folder of a name.
fn class_of(name: &str) -> Option<&str> {
    Some(name.split_once('/')?.0)
}

fn has_extension(name: &str, extensions: &[String]) -> bool {
    extensions.iter().any(|ending| {
        // A file called `.jpg` has no name before its ending. The ending may start inside a UTF-8 character, where slicing
        // panics.
        name.len() > ending.len()
            && name.is_char_boundary(name.len() - ending.len())
            && name[name.len() - ending.len()..].eq_ignore_ascii_case(ending)
    })
}

/// The class number of each name.
fn labels(names: &Names, classes: &[String]) -> Vec<i32> {
    let numbers: BTreeMap<&str, i32> =
        classes.iter().zip(0..).map(|(class, number)| (class.as_str(), number)).collect();
    let label = |name: &str| class_of(name).and_then(|class| numbers.get(class)).copied();
    names.iter().map(|name| label(name).unwrap_or(-1)).collect()
}

/// The first few names, for messages.
fn first_names(names: &[String]) -> String {
    let named: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("{name:?}")).collect();
    let more = names.len() - named.len();
    if more > 0 { format!("{} and {more} more", named.join(", ")) } else { named.join(", ") }
}

/// The most frequent kinds of files, for messages.
fn frequent_kinds(skipped: &BTreeMap<String, u64>) -> String {
    let mut kinds: Vec<(&String, &u64)> = skipped.iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut text = String::new();
    for (ending, count) in kinds.iter().take(MAX_NAMED) {
        let comma = if text.is_empty() { "" } else { ", " };
        write!(text, "{comma}{count} {ending}").expect("writing to a string cannot fail");
    }
    if kinds.len() > MAX_NAMED { text + ", ..." } else { text }
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

    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn identity(&self) -> u128 {
        // Labels are a part of the samples. If they follow from the names, a hash of the names suffices.
        let usual: BTreeSet<&str> = self.names.iter().filter_map(class_of).collect();
        if usual.into_iter().eq(self.classes.iter().map(String::as_str)) {
            return self.names.hash();
        }
        xxh3_128(format!("{:x} {:?}", self.names.hash(), self.classes).as_bytes())
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        let mut table = toml::Table::try_from(&self.options).expect("options are plain data");
        table.insert("kind".to_owned(), "folder".into());
        table.insert("root".to_owned(), self.root.clone().into());
        Ok(table)
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Self::open(&self.root, Arc::clone(&self.store), self.options.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files. Names that end in "/" are empty folders.
    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in files {
            let path = folder.path().join(name);
            let parent = if name.ends_with('/') { &*path } else { path.parent().unwrap() };
            std::fs::create_dir_all(parent).unwrap();
            if !name.ends_with('/') {
                std::fs::write(path, b"").unwrap();
            }
        }
        folder
    }

    fn open(files: &[&str], options: FolderOptions) -> Result<FolderSource, String> {
        let folder = folder(files);
        let store = Arc::new(crate::store::DiskStore::new(folder.path()));
        FolderSource::open("root", store, options).map_err(|error| error.to_string())
    }

    fn listed(source: &FolderSource) -> Vec<(String, i64)> {
        let ids = (0..source.len()).map(SampleId);
        ids.map(|id| (source.key(id).into_owned(), source.class_of(id).unwrap())).collect()
    }

    #[test]
    fn classes_are_sub_folders_in_byte_order_and_the_rest_is_minus_one() {
        let files = ["a-b/1.jpg", "a/1.jpg", "a/deep/2.jpg", "z.jpg", "a-b/3.jpg"];
        let source = open(&files, FolderOptions::default()).unwrap();
        assert_eq!(source.classes(), ["a", "a-b"]);
        let expected = [("a-b/1.jpg", 1), ("a-b/3.jpg", 1), ("a/1.jpg", 0), ("a/deep/2.jpg", 0), ("z.jpg", -1)];
        assert_eq!(listed(&source), expected.map(|(name, label)| (name.to_owned(), label)));
    }

    #[test]
    fn a_class_keeps_its_number_where_its_folder_is_empty_or_holds_other_files() {
        for ant in ["ant/", "ant/1.psd", "ant/deep/er/"] {
            let files = [ant, "bee/1.jpg"];
            let refused = open(&files, FolderOptions::default()).unwrap_err();
            assert!(refused.contains("\"ant\"") && refused.contains("allow_empty"), "{refused}");
            let options = FolderOptions { allow_empty: true, ..FolderOptions::default() };
            let source = open(&files, options).unwrap();
            assert_eq!(source.classes(), ["ant", "bee"]);
            assert_eq!(listed(&source), [("bee/1.jpg".to_owned(), 1)]);
            assert_ne!(source.identity(), open(&["bee/1.jpg"], FolderOptions::default()).unwrap().identity());
        }
    }

    #[test]
    fn listed_classes_fix_the_numbers_and_an_unlisted_folder_is_an_error() {
        let classes = |names: &[&str]| FolderOptions {
            classes: Some(names.iter().map(|&name| name.to_owned()).collect()),
            ..FolderOptions::default()
        };
        let files = ["bee/1.jpg", "cat/2.jpg"];
        let source = open(&files, classes(&["cat", "ant", "bee"])).unwrap();
        assert_eq!(source.classes(), ["cat", "ant", "bee"]);
        assert_eq!(listed(&source), [("bee/1.jpg".to_owned(), 2), ("cat/2.jpg".to_owned(), 0)]);
        let refused = open(&files, classes(&["bee"])).unwrap_err();
        assert!(refused.contains("\"cat\""), "{refused}");
        assert!(open(&files, classes(&["bee", "cat", "bee"])).unwrap_err().contains("twice"));
        let table = source.spec().unwrap();
        assert_eq!(table["classes"].as_array().map(Vec::len), Some(3), "a plan holds them");
    }

    #[test]
    fn skipped_files_are_counted_and_endings_can_be_chosen() {
        let files = ["a/1.jpg", "a/2.PSD", "a/notes", "b/3.ppm", "b/4.PGM", "README.md", ".hidden"];
        assert_eq!(open(&files, FolderOptions::default()).unwrap().skipped(), 3);
        let extensions = Some(vec!["psd".to_owned(), ".JPG".to_owned()]);
        let options = FolderOptions { extensions, allow_empty: true, ..FolderOptions::default() };
        let source = open(&files, options).unwrap();
        assert_eq!((source.len(), source.skipped()), (2, 4));
        for wrong in [vec![], vec![".".to_owned()], vec!["a/b".to_owned()]] {
            let options = FolderOptions { extensions: Some(wrong), ..FolderOptions::default() };
            assert!(open(&files, options).unwrap_err().contains("extensions"));
        }
    }

    /// A store with as many files as `ImageNet`.
    #[derive(Debug)]
    struct Simulated;

    impl Store for Simulated {
        fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, crate::store::StoreError> {
            let names: Vec<String> =
                (0..1_300_000).map(|n| format!("n{:08}/n{:08}_{n}.JPEG", n % 1000, n % 1000)).collect();
            Ok(names.iter().map(String::as_str).filter(|name| accept(name)).collect())
        }

        fn read(&self, _: &str, _: &mut dyn crate::store::BufferSource) -> Result<(), crate::store::StoreError> {
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
        let source = FolderSource::open("simulated", Arc::new(Simulated), FolderOptions::default()).unwrap();
        assert_eq!((source.len(), source.classes().len()), (1_300_000, 1000));
        let names: usize = source.names.iter().map(str::len).sum();
        let beyond = source.memory_bytes() - names;
        assert!(beyond < 100 * 1_300_000, "{} bytes a sample", beyond / 1_300_000);
    }

    #[test]
    fn pictures_are_known_by_their_ending_in_any_case() {
        let is_picture = |name: &str| has_extension(name, &FolderOptions::default().extensions().unwrap());
        for name in ["x.JPEG", "d/y.Png", "é.webp", "x.TIF", "x.ppm"] {
            assert!(is_picture(name), "{name}");
        }
        for name in ["x.txt", ".jpg", "jpg", "x.jpgé", "é", "a/"] {
            assert!(!is_picture(name), "{name}");
        }
    }
}
