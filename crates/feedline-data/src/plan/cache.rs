//! The settings of the sample cache, and the cuts that they mean.

use feedline_order::Ordinal;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::{ByteSize, Fingerprint, Plan, PlanError};
use crate::cut::Cut;
use crate::op::PlannedOp;

/// The cache of the deterministic ops at the start of a chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Upper limit of bytes in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram: Option<ByteSize>,
    /// Upper limit of bytes in the cache folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<ByteSize>,
    /// The form to cache. By default the one that saves the most time per byte, as measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<CacheForm>,
}

/// The form in which a sample is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum CacheForm {
    /// As loaded.
    Encoded,
    /// After the decoder.
    Decoded,
    /// After all deterministic ops before the first random one.
    Resized,
}

impl Plan {
    /// The cut of a form.
    pub fn cut_of(&self, form: CacheForm) -> Cut {
        // Approximate pixels depend on the crop that follows, which is random.
        let ends_prefix = |op: &PlannedOp| op.op().is_random() || op.is_approximate();
        let prefix = self.ops().iter().position(ends_prefix).unwrap_or(self.ops().len());
        let is_decoder = |op: &PlannedOp| op.op().on().names().any(|name| op.op().decoding(name).is_some());
        Cut(match form {
            CacheForm::Encoded => 0,
            CacheForm::Decoded => self.ops()[..prefix].iter().rposition(is_decoder).map_or(0, |last| last + 1),
            CacheForm::Resized => prefix,
        })
    }

    /// The name of the form at a cut, for people.
    pub fn form_of(&self, cut: Cut) -> &'static str {
        match cut {
            Cut(0) => "encoded",
            cut if cut == self.cut_of(CacheForm::Decoded) => "decoded",
            _ => "resized",
        }
    }

    /// A hash of the samples at a cut, and of where they are stored.
    pub fn prefix_fingerprint(&self, cut: Cut) -> Fingerprint {
        let source = self.source();
        // The address of the first sample tells apart two data sets with equal names in different places.
        let first = (!source.is_empty()).then(|| source.id_at(Ordinal(0))).and_then(|id| source.address(id));
        let mut parts = vec![
            self.fingerprints().listing.to_string(),
            feedline_codec::VERSION.to_owned(),
            first.map(|(address, _)| address).unwrap_or_default(),
        ];
        parts.extend(self.loaded().iter().map(|(name, _)| name.to_string()));
        parts.extend(self.ops()[..cut.0].iter().map(PlannedOp::code_text));
        Fingerprint(xxh3_128(parts.join("\u{0}").as_bytes()))
    }

    /// Rejects a cache that could store nothing.
    pub(super) fn check_cache(&self) -> Result<(), PlanError> {
        let refuse = |value: String, allowed| Err(PlanError::Setting { setting: "cache", value, allowed });
        let Some(CacheConfig { ram, disk, form }) = &self.config().cache else { return Ok(()) };
        if ram.is_none_or(|size| size.0 == 0) && disk.is_none_or(|size| size.0 == 0) {
            return refuse("without a size".to_owned(), "it needs ram=..., disk=... or both, e.g. ram=\"4GB\"");
        }
        let cut = form.map(|form| self.cut_of(form));
        match form {
            Some(CacheForm::Decoded) if cut == Some(Cut(0)) => refuse(
                "of form \"decoded\"".to_owned(),
                "no op decodes before the first random op; take form=\"encoded\"",
            ),
            Some(CacheForm::Resized) if cut <= Some(self.cut_of(CacheForm::Decoded)) => {
                let allowed =
                    "no deterministic op follows the decoder before the first random op; take form=\"decoded\"";
                refuse("of form \"resized\"".to_owned(), allowed)
            }
            _ => Ok(()),
        }
    }
}
