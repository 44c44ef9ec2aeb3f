//! Why a connection cannot continue.

/// What is wrong with a connection or its data.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum WireError {
    #[error("the connection broke")]
    Broken(#[from] std::io::Error),
    #[error("this is not feedline's protocol: a frame begins with {found:02x?}")]
    Magic { found: [u8; 4] },
    #[error("the head of a frame arrived damaged, or a frame before it was lost")]
    FrameHead,
    #[error("a frame of {bytes} bytes was announced, but at most {most} are taken")]
    TooLong { bytes: u64, most: u64 },
    #[error("a frame arrived damaged: its checksum is {found:016x}, not {told:016x}")]
    Checksum { told: u64, found: u64 },
    #[error("the system has no {bytes} bytes left for a frame")]
    Memory { bytes: u64 },
    #[error("a message cannot be read: {0}")]
    Message(#[from] postcard::Error),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Busy(String),
    #[error("{0}")]
    Tls(String),
    #[error("an answer of another kind came than was asked for")]
    Unexpected,
}
