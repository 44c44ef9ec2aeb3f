//! The names of the fields that an op works on.

use serde::{Deserialize, Serialize};

use crate::batch::{FieldTypes, Kind, PixelKind};
use crate::op::CheckError;

/// One name or a list. Ops on pictures default to `"image"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "OneOrMany", into = "Vec<String>")]
pub struct On(Vec<String>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "on is the name of a field, or several")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for On {
    fn from(names: OneOrMany) -> Self {
        match names {
            OneOrMany::One(name) => Self(vec![name]),
            OneOrMany::Many(names) => Self(names),
        }
    }
}

impl From<On> for Vec<String> {
    fn from(on: On) -> Self {
        on.0
    }
}

impl From<Vec<String>> for On {
    fn from(names: Vec<String>) -> Self {
        Self(names)
    }
}

impl Default for On {
    fn default() -> Self {
        Self(vec!["image".to_owned()])
    }
}

impl On {
    /// The names in order. Draws are resolved with the size of the first field.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The kinds of the fields before the op. The error lists the existing fields.
    pub fn kinds(&self, types: &FieldTypes) -> Result<Vec<(String, Kind)>, CheckError> {
        if self.0.is_empty() {
            return Err(CheckError::NoFields);
        }
        // An op would run on such a field twice.
        if let Some(twice) = self.0.iter().enumerate().find(|(number, name)| self.0[..*number].contains(name)) {
            return Err(CheckError::Parameter(format!("on names field {:?} twice", twice.1)));
        }
        self.0
            .iter()
            .map(|name| match types.get(name) {
                Some(kind) => Ok((name.clone(), kind.clone())),
                None => Err(CheckError::NoSuchField { field: name.clone(), has: types.names() }),
            })
            .collect()
    }

    /// Checks that all fields are pictures or masks, of 8 bits or 16, and sets their size after the op.
    pub(super) fn fix_size(&self, types: &mut FieldTypes, (height, width): (u32, u32)) -> Result<(), CheckError> {
        self.change_any_pixels(types, |kind| PixelKind { height: Some(height), width: Some(width), ..kind })
    }

    /// Checks that all fields are pictures or masks of 8 bits, and sets the kind of each after the op.
    pub(super) fn change_pixels(
        &self,
        types: &mut FieldTypes,
        change: impl Fn(PixelKind) -> PixelKind,
    ) -> Result<(), CheckError> {
        for (field, has) in self.kinds(types)? {
            if matches!(has, Kind::Pixels(pixels) if pixels.is_deep) {
                return Err(CheckError::Needs { needs: "pixels of 8 bits", field, has });
            }
        }
        self.change_any_pixels(types, change)
    }

    /// Checks that all fields are pictures or masks, of 8 bits or 16, and sets the kind of each after the op.
    pub(super) fn change_any_pixels(
        &self,
        types: &mut FieldTypes,
        change: impl Fn(PixelKind) -> PixelKind,
    ) -> Result<(), CheckError> {
        self.change(types, "pixels", |kind| match kind {
            Kind::Pixels(pixels) => Some(Kind::Pixels(change(*pixels))),
            _ => None,
        })
    }

    /// Sets the kind of each field after the op. `change` returns `None` for a kind that the op does not accept. The result of a
    /// user's function ([`Kind::Any`]) is checked at run time.
    pub(super) fn change(
        &self,
        types: &mut FieldTypes,
        needs: &'static str,
        change: impl Fn(&Kind) -> Option<Kind>,
    ) -> Result<(), CheckError> {
        for (field, has) in self.kinds(types)?.into_iter().filter(|(_, kind)| *kind != Kind::Any) {
            match change(&has) {
                Some(kind) => types.set(&field, kind),
                None => return Err(CheckError::Needs { needs, field, has }),
            }
        }
        Ok(())
    }
}
