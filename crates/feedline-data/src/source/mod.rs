//! Sources: which bytes belong to which sample.
//!
//! In: a sample id. Out: the [`Origin`] of each field: where its bytes are stored, or that the source generates them. A source owns
//! the numbering of its samples. The numbering is fixed for its life and the same on every machine. A source reads no sample data.

mod array;
mod dataset;
mod files;
mod folder;
mod labels;
mod path;
mod stamp;
mod subset;
mod synthetic;
pub(crate) mod tar;
mod volumes;

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use array::{ArrayMemory, ArraySource};
pub use dataset::{DATASET_FIELD, DatasetSource};
pub use files::FilesSource;
pub use folder::{FolderOptions, FolderSource};
pub use labels::Labels;
pub use path::open_path;
pub use stamp::{listing_hash, sample_stamp, stamp};
pub use subset::{Part, Stratum, SubsetSource};
pub use synthetic::SyntheticSource;
pub use tar::TarSource;
pub use volumes::VolumesSource;

use crate::batch::FieldTypes;
use crate::spec::{self, SpecError};
use crate::store::{Object, Peer, Store, StoreError};
use crate::volume::VolumeError;
use feedline_order::{Block, Ordinal, SampleId};

/// Maps samples to bytes.
pub trait Source: Send + Sync + Debug {
    /// Number of samples.
    fn len(&self) -> u64;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of the sample at `ordinal`. A subset keeps its parent's ids.
    fn id_at(&self, ordinal: Ordinal) -> SampleId {
        SampleId(ordinal.0)
    }

    /// The ordinal of a sample. `None` if the source does not contain it.
    fn ordinal_of(&self, id: SampleId) -> Option<Ordinal> {
        (id.0 < self.len()).then_some(Ordinal(id.0))
    }

    /// Names and kinds of the fields.
    fn fields(&self) -> FieldTypes;

    /// Where the bytes of a field are.
    fn origin(&self, id: SampleId, field: &str) -> Origin<'_>;

    /// Whether its objects are with a peer and can be opened without a request, so that fetching their bytes ahead pays.
    fn is_remote(&self) -> bool {
        false
    }

    /// Which samples are stored next to each other, in source order. `None` if each sample is an object of its own, so that nothing
    /// can be read in sequence.
    fn blocks(&self) -> Option<Vec<Block>> {
        None
    }

    /// The machine near its data that can prepare samples, if there is one.
    fn peer(&self) -> Option<Arc<dyn Peer>> {
        None
    }

    /// Generates a field whose origin is [`Origin::Made`]. Never called if all fields are stored.
    fn make(&self, _id: SampleId, field: &str, _target: &mut [u8]) {
        unreachable!("{field:?} is stored")
    }

    /// Generates a field of several samples, one after the other. `target` has the same number of bytes for each.
    fn make_each(&self, ids: &[SampleId], field: &str, target: &mut [u8]) {
        let bytes = target.len() / ids.len().max(1);
        for (row, &id) in ids.iter().enumerate() {
            self.make(id, field, &mut target[row * bytes..(row + 1) * bytes]);
        }
    }

    /// The shape of a generated field, if it differs between samples. Otherwise its kind has it.
    fn made_shape(&self, _id: SampleId, _field: &str) -> Option<Vec<usize>> {
        None
    }

    /// The name of a sample, for people.
    fn key(&self, id: SampleId) -> Cow<'_, str>;

    /// The path or address of a sample's first stored field, and its byte range if it is a part of a file. For messages.
    fn address(&self, id: SampleId) -> Option<(String, Option<Range<u64>>)> {
        let types = self.fields();
        types.iter().find_map(|(field, _)| match self.origin(id, field) {
            Origin::Whole { store, name } => Some((store.address(name), None)),
            Origin::Part { object, range } => Some((object.address(), Some(range))),
            Origin::Made => None,
        })
    }

    /// The class of a sample, if it has one.
    fn class_of(&self, _id: SampleId) -> Option<i64> {
        None
    }

    /// The names of the classes.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// Number of files among the samples that were left out.
    fn skipped(&self) -> u64 {
        self.parent().map_or(0, Source::skipped)
    }

    /// The source that this is a part of. Caches of samples are shared by all parts of one source.
    fn parent(&self) -> Option<&dyn Source> {
        None
    }

    /// A hash of the samples: their names below the root, in order.
    fn identity(&self) -> u128;

    /// A hash of what was read once when opening, such as lengths and times of shards.
    fn version(&self) -> u128 {
        0
    }

    /// The ending of the file of a field, such as `jpg` or `JPEG`, if it has one.
    fn ending(&self, id: SampleId, field: &str) -> Option<String> {
        match self.origin(id, field) {
            Origin::Whole { name, .. } => {
                let (_, ending) = name.rsplit('/').next()?.rsplit_once('.')?;
                Some(ending.to_owned())
            }
            _ => None,
        }
    }

    /// Reads the seek index that is stored next to the data. Returns whether there is one.
    fn seek_record(&self, _id: SampleId, _field: &str, _record: &mut Vec<u8>) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// The source as a table of a plan, or why it cannot be written down.
    fn spec(&self) -> Result<toml::Table, SourceError>;

    /// The same source, listed again.
    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError>;
}

/// Where the bytes of one field of one sample are.
#[derive(Debug)]
pub enum Origin<'a> {
    /// A whole object.
    Whole {
        /// The store of the object.
        store: &'a dyn Store,
        /// Its name in the store.
        name: &'a str,
    },
    /// A part of an open object.
    Part {
        /// The object.
        object: Arc<dyn Object>,
        /// The bytes.
        range: Range<u64>,
    },
    /// The source generates them.
    Made,
}

/// An open object and a range of it.
pub type OpenPart = (Arc<dyn Object>, Range<u64>);

impl Origin<'_> {
    /// Opens the object with the bytes, and returns their range in it. `None` if the source generates them.
    pub fn open(self) -> Result<Option<OpenPart>, StoreError> {
        Ok(match self {
            Self::Whole { store, name } => {
                let object = store.open(name)?;
                let all = 0..object.len();
                Some((object, all))
            }
            Self::Part { object, range } => Some((object, range)),
            Self::Made => None,
        })
    }
}

/// Why a source cannot be opened.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SourceError {
    #[error("no pictures in {root:?} ({found}); picture files end in {extensions}", found = describe_found(*.others))]
    NoPictures { root: String, others: usize, extensions: String },
    #[error(
        "{root:?} has sub-folders without pictures: {classes}; fill them, remove them, or accept empty classes with allow_empty=True (picture files end in {extensions})"
    )]
    EmptyClasses { root: String, classes: String, extensions: String },
    #[error("{root:?} has sub-folders that are not among its classes: {folders}; the classes are {classes}")]
    UnknownClasses { root: String, folders: String, classes: String },
    #[error("no volumes in {root:?}; volume files end in .nii, .nii.gz or .npy")]
    NoVolumes { root: String },
    #[error("{root:?} has {name:?}, but not its counterpart {missing:?}; add it, or pass a list of (image, label)")]
    NoPair { root: String, name: String, missing: String },
    #[error("{root:?} has {first:?} and {second:?}, which differ only in their ending; remove one, or pass a list")]
    SameName { root: String, first: String, second: String },
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("{field:?} has {has} files, but {first:?} has {expected}")]
    FieldLengths { field: String, has: usize, first: String, expected: usize },
    #[error("{labels} labels for {samples} samples")]
    LabelCount { labels: usize, samples: u64 },
    #[error("{path:?} is not a .npy file that can be read: {problem}")]
    Npy { path: String, problem: String },
    #[error("no shards match {pattern:?}; their names end in .tar")]
    NoShards { pattern: String },
    #[error("no samples in {shards} shards, the first of which is {first:?}; members must be named key.extension")]
    NoSamples { shards: usize, first: String },
    #[error("no field is in each of the {samples} samples; there are {fields}")]
    NoCommonField { samples: u64, fields: String },
    #[error("{0}")]
    Parameter(String),
    #[error("this plan cannot be saved: {0}")]
    Unserialisable(String),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn describe_found(others: usize) -> String {
    match others {
        0 => "the folder is empty".to_owned(),
        1 => "one file of another kind was found".to_owned(),
        _ => format!("{others} files of other kinds were found"),
    }
}

/// What a source needs to open itself.
pub trait Opener {
    /// The store of a URL. A plain path is on disk.
    fn store_for(&self, url: &str) -> Result<Arc<dyn Store>, StoreError>;

    /// Opens another source from its table. The key `kind` holds its name.
    fn open_source(&self, table: toml::Table) -> Result<Arc<dyn Source>, SourceError>;

    /// The folder in which sources may save what they found out, if there is one.
    fn cache_folder(&self) -> Option<&Path>;
}

/// Opens a source from its table in a plan.
pub type OpenSource = fn(toml::Table, &dyn Opener) -> Result<Arc<dyn Source>, SourceError>;

/// Sources that get all their bytes from stores. A storage server opens these for its clients, confined to its root.
pub(crate) const STORED: &[(&str, OpenSource)] = &[
    ("folder", |params, opener| Ok(Arc::new(FolderSource::from_params(params, opener)?))),
    ("tar", |params, opener| Ok(Arc::new(TarSource::from_params(params, opener)?))),
    ("volumes", |params, opener| Ok(Arc::new(VolumesSource::from_params(params, opener)?))),
];

/// Sources that hold data of their own, or read it without a store. A storage server refuses them.
pub(crate) const OTHERS: &[(&str, OpenSource)] = &[
    ("files", |params, _| Ok(Arc::new(FilesSource::from_params(params)?))),
    ("array", |params, opener| Ok(Arc::new(ArraySource::from_params(params, opener)?))),
    ("synthetic", |params, _| Ok(Arc::new(SyntheticSource::from_params(params)?))),
    ("subset", |params, opener| Ok(Arc::new(SubsetSource::from_params(params, opener)?))),
];

/// Refuses names of fields that the engine adds itself.
fn check_field_name(of: &str, field: &str) -> Result<(), SourceError> {
    // The engine adds these fields to every batch itself.
    if ["label", "index", "key", "padded"].contains(&field) {
        let text = format!("{of}: a field cannot be called {field:?}; choose another name");
        return Err(SourceError::Parameter(text));
    }
    Ok(())
}

/// Reads the parameters of a source from its table in a plan.
fn parameters<T: serde::de::DeserializeOwned>(kind: &str, table: toml::Table) -> Result<T, SpecError> {
    spec::parameters(|| format!("source {kind:?}"), table)
}
