//! Messages: requests of clients, replies of the server.

use feedline_data::store::{Asked, ServerCost, Version};
use serde::{Deserialize, Serialize};

/// The version of everything in this folder. Both sides have the same.
pub const PROTOCOL: u32 = 2;

/// The versions of the engine and of the decoders. Both sides have the same, else they might make different samples.
pub fn engine_version() -> String {
    format!("{} {}", env!("CARGO_PKG_VERSION"), feedline_codec::VERSION)
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first of all: who the client is.
    Hello {
        /// The version of the protocol.
        protocol: u32,
        /// The versions of engine and decoders: others might give other samples.
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
    /// How long a file is, and when it was changed.
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
        /// Bytes.
        len: u64,
        /// What the file has to be; another one is not read.
        version: Option<Version>,
    },
    /// A plan of which samples will be asked for.
    Plan {
        /// Its document.
        text: String,
        /// The hash of the samples' names, and of shards, that the client knows.
        listing: u128,
    },
    /// A sample of a plan, prepared as far as the client wants it.
    Prepare {
        /// The number of the plan: a hash of document and listing.
        plan: u128,
        /// What is wanted.
        asked: Asked,
    },
    /// A whole file.
    ReadAll {
        /// Its name below the root.
        name: String,
    },
    /// The client is there and waits. It gets no answer, but shows whether a frame before it was lost.
    Alive,
}

impl Request {
    /// What kind it is, for counts.
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

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The client has to know the token.
    Challenge {
        /// To be hashed with it.
        challenge: [u8; 32],
    },
    /// The client may ask.
    Welcome,
    /// The server is there and works. Comes when there was nothing else to say for a while.
    Alive,
    /// The connection ends here.
    Refused {
        /// Why.
        reason: String,
    },
    /// The connection ends here, but another may be taken later.
    Busy {
        /// Why.
        reason: String,
    },
    /// The files of a folder.
    Names {
        /// Names, sorted by bytes, with what is known of the files without opening them.
        names: Vec<(String, Option<Version>)>,
        /// Links that lead out of the root.
        left_out: u64,
    },
    /// A file.
    Opened(Version),
    /// The bytes beside this message.
    Bytes,
    /// The plan is known now.
    Planned,
    /// The sample beside this message, and what it took.
    Prepared(ServerCost),
    /// What was asked for cannot be had.
    Failed {
        /// In what way.
        failure: Failure,
        /// The reason, for people.
        reason: String,
    },
}

/// In what way something cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// There is no such file or folder.
    NotFound,
    /// The file is not the one that was opened.
    Changed,
    /// The file has fewer bytes than were asked for.
    Truncated,
    /// There are more bytes than a reply takes; they can be had in parts.
    TooLong,
    /// The plan has to be sent first.
    UnknownPlan,
    /// Anything else.
    Other,
}

/// The longest text of the other side that is passed on in a message, in bytes.
const MOST_TEXT: usize = 1000;

/// The beginning of a text that came from the other side, which may be of any length.
pub(crate) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT)]
}
