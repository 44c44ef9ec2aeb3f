//! Messages: requests of clients, replies of the server.

use feedline_data::store::{PeerRequest, ServerCost, Version};
use serde::{Deserialize, Serialize};

/// The version of everything in this folder. Both sides have the same.
pub const PROTOCOL: u32 = 2;

/// The versions of the engine and of the decoders. Both sides have the same, else they might make different samples.
pub fn engine_version() -> String {
    format!("{} {}", env!("CARGO_PKG_VERSION"), feedline_codec::VERSION)
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first message: the client's versions.
    Hello {
        /// The version of the protocol.
        protocol: u32,
        /// The versions of engine and decoders. Other versions might produce other samples.
        engine: String,
    },
    /// The answer to a challenge.
    Proof {
        /// A keyed hash of the server's challenge.
        proof: [u8; 32],
    },
    /// The names of the files below a folder.
    List {
        /// The folder, below the root.
        folder: String,
        /// Whether to leave out folders in it.
        is_flat: bool,
    },
    /// The length of a file, and when it was changed.
    Open {
        /// Its name below the root.
        name: String,
    },
    /// A part of a file.
    Read {
        /// Its name below the root.
        name: String,
        /// The first byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// The expected version. The server refuses another one.
        version: Option<Version>,
    },
    /// A plan whose samples will be requested.
    Plan {
        /// Its document.
        text: String,
        /// A hash of the samples' names and of shards, as the client knows them.
        listing: u128,
    },
    /// A sample of a plan, prepared as far as the client wants.
    Prepare {
        /// The number of the plan: a hash of document and listing.
        plan: u128,
        /// The sample and its form.
        peer_request: PeerRequest,
    },
    /// A whole file.
    ReadAll {
        /// Its name below the root.
        name: String,
    },
    /// A sign of life. It gets no answer, but shows whether an earlier frame was lost.
    Alive,
}

impl Request {
    /// Its kind, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Proof { .. } => "proof",
            Self::List { .. } => "list",
            Self::Open { .. } => "open",
            Self::Read { .. } => "read",
            Self::ReadAll { .. } => "read_all",
            Self::Plan { .. } => "plan",
            Self::Prepare { .. } => "prepare",
            Self::Alive => "alive",
        }
    }
}

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The client must prove that it knows the token.
    Challenge {
        /// The bytes to hash with the token.
        challenge: [u8; 32],
    },
    /// The client is accepted.
    Welcome,
    /// A sign of life, sent if there was nothing else to send for a while.
    Alive,
    /// The connection ends. A retry would not help.
    Refused {
        /// Why.
        reason: String,
    },
    /// The connection ends. A later one may be accepted.
    Busy {
        /// Why.
        reason: String,
    },
    /// The files of a folder.
    Names {
        /// Names, sorted by bytes, with the versions that are known without opening the files.
        names: Vec<(String, Option<Version>)>,
        /// Number of links that lead out of the root.
        left_out: u64,
    },
    /// A file.
    Opened(Version),
    /// The bytes beside this message.
    Bytes,
    /// The plan is open.
    Planned,
    /// The sample in the bytes of this frame, and its cost.
    Prepared(ServerCost),
    /// The request failed.
    Failed {
        /// In what way.
        failure: Failure,
        /// The reason, for people.
        reason: String,
    },
}

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// There is no such file or folder.
    NotFound,
    /// The file is not the version that was opened.
    Changed,
    /// The file is shorter than the requested range.
    Truncated,
    /// The answer is too long for one reply. It can be read in parts.
    TooLong,
    /// The plan has to be sent first.
    UnknownPlan,
    /// Anything else.
    Other,
}

/// Upper limit of a text from the other side in a message, in bytes.
const MAX_TEXT: usize = 1000;

/// The start of a text from the other side, which may be of any length.
pub(crate) fn shortened(text: &str) -> &str {
    // Cut at the border of a character: slicing inside of one would panic.
    &text[..text.floor_char_boundary(MAX_TEXT)]
}
