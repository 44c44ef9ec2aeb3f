//! Tables of a plan that name something: an op, a source, a store.

/// Why a table cannot be understood.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SpecError {
    #[error("parameters of {of} are wrong")]
    Parameters { of: String, source: Box<toml::de::Error> },
    #[error("{what} {name:?} is unknown; there are {known}")]
    Unknown { what: &'static str, name: String, known: String },
    #[error("{of} needs a string {key:?} that names its kind")]
    NoName { of: String, key: &'static str },
}

/// Parses the parameters of `of` from its table. `of` names it in errors, for example `op Resize`.
pub fn parameters<T: serde::de::DeserializeOwned>(
    of: impl FnOnce() -> String,
    table: toml::Table,
) -> Result<T, SpecError> {
    table.try_into().map_err(|source| SpecError::Parameters { of: of(), source: Box::new(source) })
}
