//! Frames: a message and bytes, with length and checksum.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::Xxh3;

use super::WireError;

/// The longest frame that a server takes.
pub const MOST_REQUEST_BYTES: u64 = 16 << 20;
/// The longest frame that a client takes.
pub const MOST_REPLY_BYTES: u64 = 4 << 30;

const MAGIC: [u8; 4] = *b"FLN1";
const HEAD_BYTES: usize = 32;
/// As much is read of a long frame before memory for more is taken: a length that is a lie costs little.
const STEP_BYTES: u64 = 1 << 20;

/// A message and the bytes it speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number of the request.
    pub request: u64,
    message: Vec<u8>,
    /// The bytes beside the message.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// A frame of a message.
    pub fn new(request: u64, message: &impl Serialize, bytes: Vec<u8>) -> Result<Self, WireError> {
        Ok(Self { request, message: postcard::to_stdvec(message)?, bytes })
    }

    /// Its message.
    pub fn message<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        Ok(postcard::from_bytes(&self.message)?)
    }

    /// Bytes on the wire.
    pub fn wire_bytes(&self) -> u64 {
        (HEAD_BYTES + self.message.len() + self.bytes.len()) as u64
    }

    /// Sends it.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut head = Vec::with_capacity(HEAD_BYTES + self.message.len());
        head.extend(MAGIC);
        head.extend((self.message.len() as u32).to_le_bytes());
        head.extend((self.bytes.len() as u64).to_le_bytes());
        head.extend(self.request.to_le_bytes());
        let checksum = checksum(&head, &self.message, &self.bytes);
        head.extend(checksum.to_le_bytes());
        head.extend(&self.message);
        to.write_all(&head)?;
        to.write_all(&self.bytes)
    }

    /// Receives one of at most `most` bytes; `None` if the other side has ended the connection between two frames.
    pub fn read(from: &mut impl Read, most: u64) -> Result<Option<Self>, WireError> {
        let Some(head) = Head::read(from, most)? else { return Ok(None) };
        Ok(Some(head.rest(from)?.0))
    }
}

/// The beginning of a frame that is being received.
#[derive(Clone, Debug)]
pub struct Head {
    bytes: [u8; HEAD_BYTES],
    /// The number of the request.
    pub request: u64,
    message_len: u64,
    bytes_len: u64,
}

/// How the bytes of a frame came.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arrival {
    /// Those that came after the first piece, which may have waited for the reader.
    pub later_bytes: u64,
    /// From the first piece to the last.
    pub later_time: Duration,
    /// From the head to the last.
    pub time: Duration,
}

impl Head {
    /// Receives the head of a frame of at most `most` bytes; `None` if the connection has ended before it.
    pub fn read(from: &mut impl Read, most: u64) -> Result<Option<Self>, WireError> {
        let mut bytes = [0; HEAD_BYTES];
        let mut len = read_some(from, &mut bytes)?;
        if len == 0 {
            return Ok(None);
        }
        // Somebody who speaks something else may have said all that he will.
        if len < MAGIC.len() {
            from.read_exact(&mut bytes[len..MAGIC.len()])?;
            len = MAGIC.len();
        }
        let word = |bytes: &[u8], at: usize| bytes[at..at + 4].try_into().expect("four bytes");
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(WireError::Magic { found: word(&bytes, 0) });
        }
        from.read_exact(&mut bytes[len..])?;
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (message_len, bytes_len) = (u64::from(u32::from_le_bytes(word(&bytes, 4))), long(8));
        let len = message_len.saturating_add(bytes_len);
        if len > most {
            return Err(WireError::TooLong { bytes: len, most });
        }
        Ok(Some(Self { bytes, request: long(16), message_len, bytes_len }))
    }

    /// Receives what belongs to it.
    pub fn rest(&self, from: &mut impl Read) -> Result<(Frame, Arrival), WireError> {
        let (start, told) = self.bytes.split_last_chunk().expect("a head is longer than a checksum");
        let told = u64::from_le_bytes(*told);
        let began = Instant::now();
        let (message, _) = read_len(from, self.message_len)?;
        let (bytes, arrival) = read_len(from, self.bytes_len)?;
        let arrival = Arrival { time: began.elapsed(), ..arrival };
        let found = checksum(start, &message, &bytes);
        if found != told {
            return Err(WireError::Checksum { told, found });
        }
        Ok((Frame { request: self.request, message, bytes }, arrival))
    }
}

fn read_some(from: &mut impl Read, target: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(target) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn read_len(from: &mut impl Read, len: u64) -> io::Result<(Vec<u8>, Arrival)> {
    let (mut bytes, mut filled) = (Vec::new(), 0);
    let (mut first, mut arrival) = (None, Arrival::default());
    while (filled as u64) < len {
        if filled == bytes.len() {
            // Doubles what is there, so that long frames are not copied often.
            let step = STEP_BYTES.max(filled as u64).min(len - filled as u64);
            bytes.resize(filled + step as usize, 0);
        }
        let read = read_some(from, &mut bytes[filled..])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += read;
        let now = Instant::now();
        match first {
            None => first = Some(now),
            Some(first) => {
                arrival.later_bytes += read as u64;
                arrival.later_time = now - first;
            }
        }
    }
    Ok((bytes, arrival))
}

fn checksum(head: &[u8], message: &[u8], bytes: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    for part in [head, message, bytes] {
        hasher.update(part);
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(frame: &Frame) -> Vec<u8> {
        let mut wire = Vec::new();
        frame.write(&mut wire).unwrap();
        wire
    }

    proptest! {
        #[test]
        fn frames_arrive_as_they_were_sent_and_damage_is_noticed(
            request in any::<u64>(), text in ".{0,40}", bytes in prop::collection::vec(any::<u8>(), 0..300),
            at in any::<prop::sample::Index>(), flip in 1..=255_u8,
        ) {
            let frame = Frame::new(request, &text, bytes).unwrap();
            let mut wire = sent(&frame);
            prop_assert_eq!(wire.len() as u64, frame.wire_bytes());
            let read = Frame::read(&mut wire.as_slice(), 1000).unwrap().unwrap();
            prop_assert_eq!(read.message::<String>().unwrap(), text);
            prop_assert_eq!(read, frame);
            let place = at.index(wire.len());
            wire[place] ^= flip;
            prop_assert!(Frame::read(&mut wire.as_slice(), 1000).is_err(), "byte {place} is another");
        }
    }

    #[test]
    fn a_frame_cut_short_or_too_long_is_an_error_and_none_is_the_end() {
        assert!(Frame::read(&mut [].as_slice(), 10).unwrap().is_none());
        let wire = sent(&Frame::new(1, &(), vec![7; 100]).unwrap());
        for len in 1..wire.len() {
            assert!(matches!(Frame::read(&mut &wire[..len], 1000), Err(WireError::Broken(_))), "{len} bytes");
        }
        assert!(matches!(Frame::read(&mut wire.as_slice(), 99), Err(WireError::TooLong { .. })));
        assert!(matches!(Frame::read(&mut [b'G'; 40].as_slice(), 99), Err(WireError::Magic { .. })));
    }

    #[test]
    fn a_length_that_is_a_lie_takes_little_memory() {
        let mut wire = sent(&Frame::new(1, &(), vec![]).unwrap());
        wire[8..16].copy_from_slice(&(3_u64 << 30).to_le_bytes());
        assert!(matches!(Frame::read(&mut wire.as_slice(), MOST_REPLY_BYTES), Err(WireError::Broken(_))));
    }
}
