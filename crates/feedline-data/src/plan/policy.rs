//! What a user may ask of a storage server.

use serde::{Deserialize, Serialize};

/// Which samples a storage server prepares, and how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Policy {
    /// Per sample, the form that saves most bytes per second of the server's processor, while the link is what bounds the job.
    #[default]
    Auto,
    /// None: stored bytes as they are.
    None,
    /// All samples, all ops that can run there.
    All,
    /// All samples, up to the op that gives them one size.
    Resize,
    /// One place in the chain for a share of all samples, where the trainer's processor bounds the job and if that makes it
    /// faster: the rule of `FastFlow`.
    FastFlow,
    /// Per sample, the op with the smallest result, while the link is what bounds the job: the rule of SOPHON.
    Sophon,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Auto, Self::None, Self::All, Self::Resize, Self::FastFlow, Self::Sophon];

    /// Whether it depends on what is measured.
    pub fn measures(self) -> bool {
        matches!(self, Self::Auto | Self::FastFlow | Self::Sophon)
    }
}
