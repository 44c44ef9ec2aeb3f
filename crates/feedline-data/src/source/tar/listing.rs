//! Builds the index of a shard that has none, or whose index is stale or damaged.
//!
//! Consecutive members with the same key form one sample, as in WebDataset. Only headers and classes are read, so the index
//! contains neither sizes nor seek indexes of pictures.

use super::index::{Builder, MemberFacts, SampleFacts};
use super::names::{CLASS, split};
use super::walk::Walk;
use crate::store::{Object, StoreError};

/// Upper limit of a class in bytes. Longer content is not taken for an integer.
const MAX_CLASS_BYTES: u64 = 64;

/// Lists a shard. Returns the content of its index file.
pub(crate) fn list(shard: &dyn Object) -> Result<Vec<u8>, StoreError> {
    let content = |problem: String| StoreError::Content { path: shard.address(), problem };
    let mut builder = Builder::default();
    let mut walk = Walk::new(shard);
    let mut current: Option<SampleFacts> = None;
    while let Some(member) = walk.next_member()? {
        // Members without a key or an extension, and metadata, do not belong to a sample.
        let Some((key, extension)) = split(&member.name) else { continue };
        let extension = extension.to_ascii_lowercase();
        // A new key ends the sample before it.
        if let Some(done) = current.take_if(|sample| sample.key != key) {
            builder.push(done).map_err(content)?;
        }
        let sample =
            current.get_or_insert_with(|| SampleFacts { key: key.to_owned(), label: None, members: Vec::new() });
        if extension == CLASS && member.data.end - member.data.start <= MAX_CLASS_BYTES {
            sample.label = whole_number(&walk.content(&member.data, MAX_CLASS_BYTES, "a class")?);
        }
        sample.members.push(MemberFacts { extension, data: member.data, ..MemberFacts::default() });
    }
    if let Some(last) = current {
        builder.push(last).map_err(content)?;
    }
    builder.finish(shard, &[])
}

/// The label of a class that is written as an integer. `None` for other text.
fn whole_number(text: &[u8]) -> Option<i64> {
    str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::index::{Index, IndexHead};
    use super::super::memory::MemoryObject;
    use super::*;

    /// A sample as an index describes it: key, label, and its fields with their bytes.
    type Listed = (String, Option<i64>, Vec<(String, Vec<u8>)>);

    fn listed(files: &[(&str, &[u8])]) -> Result<Vec<Listed>, StoreError> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, *bytes).unwrap();
        }
        let bytes = builder.into_inner().unwrap();
        let shard = MemoryObject::new("x.tar".to_owned(), bytes.clone());
        let object = Arc::new(MemoryObject::new("x.tar.index".to_owned(), list(&shard)?));
        let head = Arc::new(IndexHead::read(&*object).unwrap().unwrap());
        let index = Index { object, head };
        assert!(index.fits(&shard).unwrap());
        let sample = |number| {
            let entry = index.entry(number).unwrap();
            let mut fields = Vec::new();
            for (field, place) in &entry.fields {
                let data = bytes[place.data.start as usize..place.data.end as usize].to_vec();
                fields.push((index.head.fields[*field].0.clone(), data));
            }
            (index.names(number, &entry).unwrap().key, entry.label, fields)
        };
        Ok((0..index.head.samples).map(sample).collect())
    }

    fn field(name: &str, bytes: &[u8]) -> (String, Vec<u8>) {
        (name.to_owned(), bytes.to_vec())
    }

    #[test]
    fn members_with_one_key_that_follow_each_other_are_a_sample() {
        let files: [(&str, &[u8]); 7] = [
            ("a/1.jpg", b"one"),
            ("a/1.cls", b" 7\n"),
            ("README", b"no sample"),
            ("a/1.mask.PNG", b"mask"),
            ("a/2.cls", b"cat"),
            ("a/2.png", b"two"),
            ("a/1.jpg", b"again"),
        ];
        let expected = [
            ("a/1".to_owned(), Some(7), vec![field("image", b"one"), field("cls", b" 7\n"), field("mask", b"mask")]),
            ("a/2".to_owned(), None, vec![field("image", b"two"), field("cls", b"cat")]),
            ("a/1".to_owned(), None, vec![field("image", b"again")]),
        ];
        assert_eq!(listed(&files).unwrap(), expected);
    }

    #[test]
    fn a_second_picture_of_a_sample_is_called_by_its_extension_and_one_of_the_same_name_is_refused() {
        let found = listed(&[("a.jpg", b"1"), ("a.png", b"2")]).unwrap();
        assert_eq!(found[0].2, [field("image", b"1"), field("png", b"2")]);
        let error = listed(&[("a.jpg", b"1"), ("a.JPG", b"2")]).unwrap_err().to_string();
        assert_eq!(error, "\"x.tar\" has two members with key \"a\" and extension \"jpg\"");
    }

    #[test]
    fn too_many_kinds_of_members_are_refused_with_the_rule() {
        let names: Vec<String> = (0..300).map(|number| format!("photo.{number}.of.300.jpg")).collect();
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"x".as_slice())).collect();
        let error = listed(&files).unwrap_err().to_string();
        assert!(error.contains("more than 255 kinds") && error.contains("first dot"), "{error}");
    }
}
