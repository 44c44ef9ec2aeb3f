//! Prepares one sample for a shard: reads its files and prepares its pictures.

use feedline_order::SampleId;

use super::options::{Damaged, Options};
use super::picture::{PictureTools, StoredPicture};
use super::summary::{DamagedPicture, PackError};
use crate::batch::{FieldTypes, Kind};
use crate::memory::Cancel;
use crate::op::is_mask_field;
use crate::source::tar::names::{CLASS, IMAGE, LABEL, is_picture};
use crate::source::{Source, sample_stamp};
use crate::store::{Object, StoreError};

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;

/// A sample that is ready to be written.
#[derive(Debug, Default)]
pub(super) struct ReadySample {
    /// Its name in the source.
    pub name: String,
    /// The ending of its first file.
    pub ending: String,
    /// Its members. Empty if the sample is left out.
    pub members: Vec<ReadyMember>,
    /// Its class.
    pub label: Option<i64>,
    /// When its newest file was changed, in seconds since 1970.
    pub modified: u64,
    /// The stamp of its files before they were read.
    pub stamp: u64,
    /// Pictures in it that cannot be decoded.
    pub damaged: Vec<DamagedPicture>,
    /// Number of pictures that were made smaller.
    pub resized: u64,
}

/// A member that is ready to be written.
#[derive(Debug)]
pub(super) struct ReadyMember {
    /// The part of its name after the key and a dot.
    pub extension: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Stored width. 0 if it is not a picture.
    pub width: u32,
    /// Stored height. 0 if it is not a picture.
    pub height: u32,
    /// The seek index, if it has one.
    pub record: Vec<u8>,
}

impl ReadySample {
    /// Memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.members.iter().map(|member| member.bytes.len() + member.record.len()).sum()
    }
}

/// The fields of a source that a shard can store.
#[derive(Debug)]
pub(super) struct PackedFields {
    stored: Vec<String>,
    has_label: bool,
}

impl PackedFields {
    /// Rejects fields that are neither files nor classes.
    pub(super) fn of(types: &FieldTypes) -> Result<Self, PackError> {
        let mut this = Self { stored: Vec::new(), has_label: false };
        for (field, kind) in types.iter() {
            match kind {
                Kind::Bytes | Kind::Text => this.stored.push(field.to_string()),
                Kind::Tensor { shape, .. } if &**field == LABEL && shape.is_empty() => this.has_label = true,
                _ => return Err(PackError::NotAFile { field: field.to_string(), kind: kind.clone() }),
            }
        }
        Ok(this)
    }

    /// A stamp of a sample's files: their sizes and times. 0 if one of them cannot be opened.
    pub(super) fn stamp(&self, source: &dyn Source, id: SampleId) -> u64 {
        sample_stamp(source, id, self.stored.iter().map(String::as_str)).unwrap_or_default()
    }

    /// The field whose file gives the sample its name.
    pub(super) fn first(&self) -> Option<&str> {
        self.stored.first().map(String::as_str)
    }
}

/// Prepares the samples of a source on one thread.
pub(super) struct Preparer<'a> {
    pub source: &'a dyn Source,
    pub fields: &'a PackedFields,
    pub options: &'a Options,
    pub tools: PictureTools,
}

impl<'a> Preparer<'a> {
    /// The tools of one worker.
    pub(super) fn new(source: &'a dyn Source, fields: &'a PackedFields, options: &'a Options, cancel: Cancel) -> Self {
        Self { source, fields, options, tools: PictureTools::new(cancel) }
    }

    /// Makes one sample ready.
    pub(super) fn prepare(&mut self, id: SampleId) -> Result<ReadySample, PackError> {
        let name = self.source.key(id).into_owned();
        // Before the files are read: a change during the read makes the stamp differ in a later run, and the shard is packed
        // again.
        let stamp = self.fields.stamp(self.source, id);
        let mut ready = ReadySample { name, stamp, ..ReadySample::default() };
        if self.fields.has_label {
            ready.label = Some(self.source.class_of(id).ok_or_else(|| PackError::Class { name: ready.name.clone() })?);
        }
        for (number, field) in self.fields.stored.iter().enumerate() {
            let ending = self.source.ending(id, field).unwrap_or_default();
            if number == 0 {
                ready.ending.clone_from(&ending);
            }
            let (bytes, modified) = match self.read(id, field) {
                Ok(read) => read,
                Err(error) if self.options.damaged == Damaged::Skip => {
                    let problem = crate::failure::chain(&error);
                    ready.damaged.push(DamagedPicture { name: ready.name.clone(), field: field.clone(), problem });
                    continue;
                }
                Err(source) => return Err(PackError::Read { name: ready.name, source }),
            };
            ready.modified = ready.modified.max(modified);
            let member = if is_picture(&ending.to_ascii_lowercase()) {
                self.picture(bytes, field, &ending, &mut ready)?
            } else {
                ReadyMember { extension: field.clone(), bytes, width: 0, height: 0, record: Vec::new() }
            };
            ready.members.push(member);
        }
        if let Some(label) = ready.label {
            let bytes = label.to_string().into_bytes();
            ready.members.push(ReadyMember {
                extension: CLASS.to_owned(),
                bytes,
                width: 0,
                height: 0,
                record: Vec::new(),
            });
        }
        // A sample without one of its fields would be useless, so the whole sample is left out.
        if self.options.damaged == Damaged::Skip && !ready.damaged.is_empty() {
            ready.members.clear();
        }
        Ok(ready)
    }

    fn picture(
        &mut self,
        bytes: Vec<u8>,
        field: &str,
        ending: &str,
        ready: &mut ReadySample,
    ) -> Result<ReadyMember, PackError> {
        let is_mask = is_mask_field(field);
        let stored = self.tools.store(bytes, is_mask, self.options).map_err(|_| PackError::Cancelled)?;
        let StoredPicture { bytes, ending: new_ending, width, height, record, problem, is_resized } = stored;
        if let Some(problem) = problem {
            ready.damaged.push(DamagedPicture { name: ready.name.clone(), field: field.to_owned(), problem });
        }
        ready.resized += u64::from(is_resized);
        let ending = new_ending.unwrap_or(ending);
        // `key.jpg` is the field `image`, `key.mask.png` the field `mask`: the names that `field_of` reads back.
        let extension = if field == IMAGE { ending.to_owned() } else { format!("{field}.{ending}") };
        Ok(ReadyMember { extension, bytes, width, height, record })
    }

    /// The bytes of a field, and when they were changed.
    fn read(&self, id: SampleId, field: &str) -> Result<(Vec<u8>, u64), StoreError> {
        let opened = self.source.origin(id, field).open()?;
        let (object, range) = opened.expect("fields without stored bytes are not packed: see PackedFields::of");
        let mut bytes = Vec::new();
        let len = (range.end - range.start) as usize;
        let no_memory =
            |_| StoreError::Content { path: object.address(), problem: format!("needs {len} bytes of memory") };
        bytes.try_reserve_exact(len).map_err(no_memory)?;
        bytes.resize(len, 0);
        object.read_at(range.start, &mut bytes)?;
        Ok((bytes, seconds(&*object)))
    }
}

fn seconds(object: &dyn Object) -> u64 {
    object.modified_nanoseconds().and_then(|time| u64::try_from(time / SECOND).ok()).unwrap_or_default()
}
