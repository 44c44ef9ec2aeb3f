//! The offload policies that a user may choose.

use serde::{Deserialize, Serialize};

/// Which samples a storage server prepares, and how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Policy {
    /// For each sample, the form that saves the most bytes per CPU second of the server, while the link is the bottleneck.
    #[default]
    Auto,
    /// No samples: stored bytes are sent unchanged.
    None,
    /// All samples, with all ops that can run on the server.
    All,
    /// All samples, up to the op after which they have one size.
    Resize,
    /// A share of all samples up to one cut, if the trainer's CPU is the bottleneck and this makes the job faster. This is the rule
    /// of `FastFlow`.
    FastFlow,
    /// For each sample, the op with the smallest result, while the link is the bottleneck. This is the rule of SOPHON.
    Sophon,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 6] = [Self::Auto, Self::None, Self::All, Self::Resize, Self::FastFlow, Self::Sophon];

    /// Whether it depends on measurements.
    pub fn measures(self) -> bool {
        matches!(self, Self::Auto | Self::FastFlow | Self::Sophon)
    }
}
