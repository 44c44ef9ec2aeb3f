//! Why a connection cannot continue.

/// What is wrong with a connection or its data.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum WireError {
    #[error("the connection broke")]
    Broken(#[from] std::io::Error),
    #[error("this is not feedline's protocol: a frame begins with {found:02x?}")]
    Magic { found: [u8; 4] },
    #[error("the header of a frame arrived damaged, or an earlier frame was lost")]
    FrameHead,
    #[error("the other side announced a frame of {bytes} bytes, but the limit is {most}")]
    TooLong { bytes: u64, most: u64 },
    #[error("a frame arrived damaged: its checksum is {found:016x}, not {expected:016x}")]
    Checksum { expected: u64, found: u64 },
    #[error("the system has no {bytes} bytes left for a frame")]
    Memory { bytes: u64 },
    #[error("a message cannot be decoded: {0}")]
    Message(#[from] postcard::Error),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Busy(String),
    #[error("{0}")]
    Tls(String),
    #[error("the other side sent an unexpected kind of message")]
    Unexpected,
}
