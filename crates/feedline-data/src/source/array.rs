//! Samples along the first axis of an array, in memory or in a `.npy` file.

use std::borrow::Cow;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use feedline_order::SampleId;
use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3;

use super::labels::{PlainLabels, PlainList};
use super::{Labels, Opener, Origin, Source, SourceError, check_field_name, parameters};
use crate::batch::{FieldTypes, Kind};
use crate::dtype::{Dtype, array_bytes};
use crate::store::{Object, Store};
use crate::volume::npy::{PREFIX_BYTES, header_range, parse};

/// Number of samples, evenly spread, that the identity of an array hashes. An array has no names to hash instead.
const HASHED_PIECES: usize = 64;
/// Upper limit of bytes that are hashed of each of these samples.
const HASHED_PIECE_BYTES: usize = 64 << 10;
/// The field of an array that is not a list of pictures, unless the user names it.
const FIELD: &str = "data";
/// The field of 8-bit pictures, which image ops take by default.
const PICTURE_FIELD: &str = "image";

/// Memory of an array outside the engine, such as a `NumPy` array.
pub trait ArrayMemory: Send + Sync + Debug {
    /// Copies bytes from `offset` on. The caller ensures that they lie inside the array.
    fn copy_to(&self, offset: usize, target: &mut [u8]);
}

impl ArrayMemory for Vec<u8> {
    fn copy_to(&self, offset: usize, target: &mut [u8]) {
        target.copy_from_slice(&self[offset..offset + target.len()]);
    }
}

/// Samples along the first axis of an array.
#[derive(Debug)]
pub struct ArraySource {
    field: String,
    dtype: Dtype,
    sample_shape: Vec<usize>,
    sample_bytes: usize,
    len: u64,
    place: ArrayData,
    labels: Option<Labels>,
    identity: u128,
}

#[derive(Debug)]
enum ArrayData {
    Memory(Arc<dyn ArrayMemory>),
    File { path: String, store: Arc<dyn Store>, object: Arc<dyn Object>, data_offset: u64 },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    path: String,
    field: Option<String>,
    labels: Option<PlainList>,
    label_dtype: Option<Dtype>,
}

impl ArraySource {
    /// An array in memory, of `shape` with samples first.
    pub fn in_memory(
        memory: Arc<dyn ArrayMemory>,
        dtype: Dtype,
        shape: &[usize],
        labels: Option<Labels>,
    ) -> Result<Self, SourceError> {
        Self::new(dtype, shape, ArrayData::Memory(memory), labels)
    }

    /// A `.npy` file.
    pub fn open(path: &str, opener: &dyn Opener, labels: Option<Labels>) -> Result<Self, SourceError> {
        let folder = path.rsplit_once('/').map_or(".", |(folder, _)| if folder.is_empty() { "/" } else { folder });
        Self::read(path, opener.store_for(folder)?, labels)
    }

    fn read(path: &str, store: Arc<dyn Store>, labels: Option<Labels>) -> Result<Self, SourceError> {
        let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let object = store.open(&name)?;
        let npy = |problem: String| SourceError::Npy { path: path.to_owned(), problem };
        // The length of the header is in its first bytes, so the file is read in two steps: prefix, then header.
        let mut prefix = vec![0; PREFIX_BYTES.min(object.len() as usize)];
        object.read_at(0, &mut prefix)?;
        let range = header_range(&prefix).map_err(npy)?;
        let mut text = vec![0; range.len()];
        object.read_at(range.start as u64, &mut text)?;
        let text = String::from_utf8(text).map_err(|_| npy("its header is not text".to_owned()))?;
        let header = parse(&text, range.end as u64).map_err(npy)?;
        if header.is_fortran {
            return Err(npy("it is in Fortran order; save it with numpy.ascontiguousarray".to_owned()));
        }
        // A header may claim any shape. The claim is compared with the length of the file before any memory is allocated for it.
        let claimed_end =
            array_bytes(header.dtype, &header.shape).and_then(|bytes| header.data_offset.checked_add(bytes as u64));
        if claimed_end.is_none_or(|end| end > object.len()) {
            return Err(npy(format!(
                "its header claims {} {:?}, but the file has {} bytes",
                header.dtype.name(),
                header.shape,
                object.len()
            )));
        }
        let place = ArrayData::File { path: path.to_owned(), store, object, data_offset: header.data_offset };
        Self::new(header.dtype, &header.shape, place, labels)
    }

    pub(super) fn from_params(params: toml::Table, opener: &dyn Opener) -> Result<Self, SourceError> {
        let Params { path, field, labels, label_dtype } = parameters("array", params)?;
        Self::open(&path, opener, PlainLabels { labels, label_dtype }.open()?)?.with_field(field)
    }

    /// The same array under another field name; without one it keeps its own.
    pub fn with_field(mut self, field: Option<String>) -> Result<Self, SourceError> {
        if let Some(field) = field {
            check_field_name("array()", &field)?;
            self.field = field;
        }
        Ok(self)
    }

    fn new(dtype: Dtype, shape: &[usize], place: ArrayData, labels: Option<Labels>) -> Result<Self, SourceError> {
        let bad_shape = || SourceError::Parameter(format!("array() needs samples along the first axis, not {shape:?}"));
        let (&len, sample_shape) = shape.split_first().ok_or_else(bad_shape)?;
        let sample_bytes = array_bytes(dtype, sample_shape).filter(|&bytes| bytes > 0).ok_or_else(bad_shape)?;
        if len == 0 {
            return Err(bad_shape());
        }
        if let Some(labels) = &labels {
            labels.check_len(len as u64)?;
        }
        let sample_shape = sample_shape.to_vec();
        let field = default_field(dtype, &sample_shape).to_owned();
        let mut hasher = Xxh3::new();
        hasher.update(format!("array {} {len} {sample_shape:?}", dtype.name()).as_bytes());
        // Sample numbers `0, len/64, 2 len/64, ...`: a changed array is noticed without reading all of it.
        for piece in 0..HASHED_PIECES.min(len) {
            let sample = piece * len / HASHED_PIECES.min(len);
            let mut bytes = vec![0; sample_bytes.min(HASHED_PIECE_BYTES)];
            match &place {
                ArrayData::Memory(memory) => memory.copy_to(sample * sample_bytes, &mut bytes),
                ArrayData::File { object, data_offset, .. } => {
                    object.read_at(data_offset + (sample * sample_bytes) as u64, &mut bytes)?;
                }
            }
            hasher.update(&bytes);
        }
        if let Some(labels) = &labels {
            hasher.update(&labels.identity().to_le_bytes());
        }
        let identity = hasher.digest128();
        Ok(Self { field, dtype, sample_shape, sample_bytes, len: len as u64, place, labels, identity })
    }
}

impl Source for ArraySource {
    fn len(&self) -> u64 {
        self.len
    }

    fn fields(&self) -> FieldTypes {
        let mut types = FieldTypes::new();
        types.set(&self.field, Kind::of_array(self.dtype, &self.sample_shape));
        if let Some(labels) = &self.labels {
            types.set("label", labels.kind());
        }
        types
    }

    fn origin(&self, id: SampleId, field: &str) -> Origin<'_> {
        match &self.place {
            ArrayData::File { object, data_offset, .. } if field == self.field => {
                let start = data_offset + id.0 * self.sample_bytes as u64;
                Origin::Part { object: Arc::clone(object), range: start..start + self.sample_bytes as u64 }
            }
            // Labels, and the samples of an array in memory: `make` copies them.
            _ => Origin::Made,
        }
    }

    fn is_remote(&self) -> bool {
        matches!(&self.place, ArrayData::File { object, .. } if object.remote().is_some())
    }

    fn make(&self, id: SampleId, field: &str, target: &mut [u8]) {
        match (&self.place, &self.labels) {
            (ArrayData::Memory(memory), _) if field == self.field => {
                memory.copy_to(id.0 as usize * self.sample_bytes, target);
            }
            (_, Some(labels)) => target.copy_from_slice(labels.get(id)),
            _ => unreachable!("fields() names no other field"),
        }
    }

    fn made_shape(&self, id: SampleId, field: &str) -> Option<Vec<usize>> {
        self.labels.as_ref().filter(|_| field != self.field)?.made_shape(id)
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        format!("{:08}", id.0).into()
    }

    fn class_of(&self, id: SampleId) -> Option<i64> {
        self.labels.as_ref()?.class_of(id)
    }

    fn classes(&self) -> &[String] {
        self.labels.as_ref().map_or(&[], Labels::classes)
    }

    fn identity(&self) -> u128 {
        self.identity
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        let ArrayData::File { path, .. } = &self.place else {
            return Err(SourceError::Unserialisable(
                "its source is an array in memory; save it with numpy.save and use fl.array(\"x.npy\")".to_owned(),
            ));
        };
        let mut table = toml::Table::new();
        table.insert("kind".to_owned(), "array".into());
        table.insert("path".to_owned(), path.clone().into());
        if self.field != default_field(self.dtype, &self.sample_shape) {
            table.insert("field".to_owned(), self.field.clone().into());
        }
        if let Some(labels) = &self.labels {
            labels.plain()?.add_to(&mut table);
        }
        Ok(table)
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        let again = match &self.place {
            ArrayData::File { path, store, .. } => Self::read(path, Arc::clone(store), self.labels.clone())?,
            ArrayData::Memory(memory) => {
                let mut shape = vec![self.len as usize];
                shape.extend(&self.sample_shape);
                Self::in_memory(Arc::clone(memory), self.dtype, &shape, self.labels.clone())?
            }
        };
        Ok(Arc::new(again.with_field(Some(self.field.clone()))?))
    }
}

/// The field of an array whose user gives no name.
fn default_field(dtype: Dtype, sample_shape: &[usize]) -> &'static str {
    match Kind::of_array(dtype, sample_shape) {
        Kind::Pixels(_) => PICTURE_FIELD,
        _ => FIELD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(shape: &[usize], dtype: Dtype, field: Option<&str>) -> Result<String, String> {
        let memory = Arc::new(vec![0; array_bytes(dtype, shape).unwrap()]);
        let source = ArraySource::in_memory(memory, dtype, shape, None).unwrap();
        let named = source.with_field(field.map(str::to_owned)).map_err(|error| error.to_string())?;
        Ok(named.fields().names())
    }

    #[test]
    fn pictures_are_called_image_and_all_else_data_unless_the_user_names_it() {
        assert_eq!(fields(&[2, 4, 5, 3], Dtype::U8, None).unwrap(), "\"image\"");
        assert_eq!(fields(&[2, 4, 5, 1], Dtype::U8, None).unwrap(), "\"image\"");
        assert_eq!(fields(&[2, 4, 5, 2], Dtype::U8, None).unwrap(), "\"data\"");
        assert_eq!(fields(&[2, 4, 5, 3], Dtype::F32, None).unwrap(), "\"data\"");
        assert_eq!(fields(&[2, 4, 5, 3], Dtype::U8, Some("scan")).unwrap(), "\"scan\"");
        let refused = fields(&[2, 4], Dtype::F32, Some("label")).unwrap_err();
        assert_eq!(refused, "array(): a field cannot be called \"label\"; choose another name");
    }
}
