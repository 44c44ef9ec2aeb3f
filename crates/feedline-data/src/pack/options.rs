//! The options of packing.

use serde::{Deserialize, Serialize};

use crate::plan::ByteSize;

/// How a source is packed. All options affect the bytes of the shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// A shard ends before the sample that would exceed this size.
    pub shard_size: ByteSize,
    /// What is stored of a picture.
    pub content: Content,
    /// Pictures with a longer side are made smaller.
    pub max_side: Option<u32>,
    /// What to do with a picture that cannot be decoded.
    pub damaged: Damaged,
}

/// What is stored of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// The file, byte for byte.
    AsIs,
    /// Its pixels, upright, as PPM or PGM.
    Pixels,
}

/// What to do with a picture that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Damaged {
    /// Store it unchanged.
    Keep,
    /// Leave out its sample.
    Skip,
}

impl Options {
    /// The options that differ, with both values. For people.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        // Compared in serialised form, so that a new option needs no change here.
        let tables = [self, other].map(|options| serde_json::to_value(options).expect("options are plain data"));
        let [Some(ours), Some(theirs)] = tables.each_ref().map(|table| table.as_object()) else { return Vec::new() };
        let names = ours.keys().filter(|name| ours.get(*name) != theirs.get(*name));
        names.map(|name| format!("{name} was {}, now is {}", ours[name], theirs[name])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_with_both_values() {
        let one =
            Options { shard_size: ByteSize(1000), content: Content::AsIs, max_side: None, damaged: Damaged::Keep };
        let other = Options { max_side: Some(512), content: Content::Pixels, ..one.clone() };
        assert_eq!(one.differences(&one), Vec::<String>::new());
        let expected = ["content was \"as-is\", now is \"pixels\"", "max_side was null, now is 512"];
        assert_eq!(one.differences(&other), expected);
    }
}
