//! Frames: a message and bytes, with lengths and checksums.
//!
//! On the wire, a frame is a head of 40 bytes, its message and its bytes. All numbers are little-endian.
//!
//! | place in the head | |
//! |---|---|
//! | 0..4 | `FLN2` |
//! | 4..8 | length of the message |
//! | 8..16 | length of the bytes |
//! | 16..24 | number of the request |
//! | 24..32 | checksum of message and bytes |
//! | 32..40 | checksum of the head before it, with the number of the frame in its connection as the seed |
//!
//! The head has a checksum of its own, so that no one waits for the bytes of a damaged length. Its seed counts the frames, so a
//! lost or repeated frame is noticed at the next one.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::WireError;

/// Upper limit of a frame that a server accepts.
pub(crate) const MAX_REQUEST_BYTES: u64 = 16 << 20;
/// Upper limit of a frame that a client accepts: the listing of some ten million files.
pub(crate) const MAX_REPLY_BYTES: u64 = 1 << 30;

const MAGIC: [u8; 4] = *b"FLN2";
const HEAD_BYTES: usize = 40;
/// The part of a head that its checksum covers.
const CHECKED_BYTES: usize = HEAD_BYTES - size_of::<u64>();
/// Frames up to this length are written at once.
const SMALL_BYTES: usize = 16 << 10;
/// Bytes to read of a long frame before more memory is allocated, so that a false length costs little.
const STEP_BYTES: u64 = 1 << 20;

/// Counts the frames in one direction of a connection. Both sides start at zero.
#[derive(Debug, Default)]
pub struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        let number = self.0;
        self.0 += 1;
        number
    }
}

/// A message and its bytes.
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
        let len = postcard::experimental::serialized_size(message)?;
        let mut room = Vec::new();
        room.try_reserve_exact(len).map_err(|_| WireError::Memory { bytes: len as u64 })?;
        Ok(Self { request, message: postcard::to_extend(message, room)?, bytes })
    }

    /// Its message.
    pub fn message<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        Ok(postcard::from_bytes(&self.message)?)
    }

    /// Bytes on the wire.
    pub(crate) fn wire_bytes(&self) -> u64 {
        (HEAD_BYTES + self.message.len() + self.bytes.len()) as u64
    }

    /// Sends it as the next frame of a connection.
    pub fn write(&self, to: &mut impl Write, sequence: &mut Sequence) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&MAGIC);
        // Layout: see the table above.
        let message_len = u32::try_from(self.message.len()).map_err(io::Error::other)?;
        head[4..8].copy_from_slice(&message_len.to_le_bytes());
        head[8..16].copy_from_slice(&(self.bytes.len() as u64).to_le_bytes());
        head[16..24].copy_from_slice(&self.request.to_le_bytes());
        head[24..32].copy_from_slice(&checksum(&self.message, &self.bytes).to_le_bytes());
        let of_head = xxh3_64_with_seed(&head[..CHECKED_BYTES], sequence.next());
        head[CHECKED_BYTES..].copy_from_slice(&of_head.to_le_bytes());
        // Most frames are short and fit into one packet.
        if self.message.len() + self.bytes.len() <= SMALL_BYTES {
            return to.write_all(&[&head, self.message.as_slice(), &self.bytes].concat());
        }
        to.write_all(&head)?;
        to.write_all(&self.message)?;
        to.write_all(&self.bytes)
    }

    /// Receives the next frame, of at most `most` bytes. `None` if the connection ended between two frames.
    pub fn read(from: &mut impl Read, sequence: &mut Sequence, most: u64) -> Result<Option<Self>, WireError> {
        let Some(head) = FrameHead::read(from, sequence, most)? else { return Ok(None) };
        Ok(Some(head.rest(from)?.0))
    }
}

/// The head of a frame that is being received.
#[derive(Clone, Debug)]
pub struct FrameHead {
    /// The number of the request.
    pub request: u64,
    message_len: u64,
    bytes_len: u64,
    checksum: u64,
}

/// How the bytes of a frame arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arrival {
    /// Bytes after the first piece, which may have waited for the reader.
    pub later_bytes: u64,
    /// Time from the first piece to the last.
    pub later_time: Duration,
    /// Time from the head to the last piece.
    pub time: Duration,
}

impl FrameHead {
    /// Receives the head of the next frame, of at most `most` bytes. `None` if the connection ended before it.
    pub fn read(from: &mut impl Read, sequence: &mut Sequence, most: u64) -> Result<Option<Self>, WireError> {
        let mut bytes = [0; HEAD_BYTES];
        let mut len = read_some(from, &mut bytes)?;
        if len == 0 {
            return Ok(None);
        }
        // A client of another protocol may have sent everything it will send.
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
        // The lengths are only used after the checksum of the head is right.
        if long(CHECKED_BYTES) != xxh3_64_with_seed(&bytes[..CHECKED_BYTES], sequence.next()) {
            return Err(WireError::FrameHead);
        }
        let (message_len, bytes_len) = (u64::from(u32::from_le_bytes(word(&bytes, 4))), long(8));
        // Saturating: both lengths come from the other side.
        let len = message_len.saturating_add(bytes_len);
        if len > most {
            return Err(WireError::TooLong { bytes: len, most });
        }
        Ok(Some(Self { request: long(16), message_len, bytes_len, checksum: long(24) }))
    }

    /// Number of bytes that follow it.
    pub(crate) fn rest_bytes(&self) -> u64 {
        self.message_len + self.bytes_len
    }

    /// Receives the rest of the frame.
    pub fn rest(&self, from: &mut impl Read) -> Result<(Frame, Arrival), WireError> {
        let began = Instant::now();
        let (message, _) = read_len(from, self.message_len)?;
        let (bytes, arrival) = read_len(from, self.bytes_len)?;
        let arrival = Arrival { time: began.elapsed(), ..arrival };
        let (expected, found) = (self.checksum, checksum(&message, &bytes));
        if found != expected {
            return Err(WireError::Checksum { expected, found });
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

fn read_len(from: &mut impl Read, len: u64) -> Result<(Vec<u8>, Arrival), WireError> {
    let (mut bytes, mut filled) = (Vec::new(), 0);
    let (mut first, mut arrival) = (None, Arrival::default());
    while (filled as u64) < len {
        if filled == bytes.len() {
            // Doubles the memory each time, so that long frames are not copied often.
            let step = STEP_BYTES.max(filled as u64).min(len - filled as u64) as usize;
            bytes.try_reserve_exact(step).map_err(|_| WireError::Memory { bytes: len })?;
            bytes.resize(filled + step, 0);
        }
        let read = read_some(from, &mut bytes[filled..])?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
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

fn checksum(message: &[u8], bytes: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    // The length separates the message from the bytes.
    hasher.update(&(message.len() as u64).to_le_bytes());
    hasher.update(message);
    hasher.update(bytes);
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(frame: &Frame) -> Vec<u8> {
        let mut wire = Vec::new();
        frame.write(&mut wire, &mut Sequence::default()).unwrap();
        wire
    }

    fn read(mut wire: &[u8], most: u64) -> Result<Option<Frame>, WireError> {
        Frame::read(&mut wire, &mut Sequence::default(), most)
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
            let found = read(&wire, 1000).unwrap().unwrap();
            prop_assert_eq!(found.message::<String>().unwrap(), text);
            prop_assert_eq!(found, frame);
            let place = at.index(wire.len());
            wire[place] ^= flip;
            prop_assert!(read(&wire, 1000).is_err(), "byte {place} is another");
        }
    }

    /// Fails the test if more is read than there is: a real connection would block there.
    struct NoMore<'a>(&'a [u8]);

    impl Read for NoMore<'_> {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            assert!(!self.0.is_empty(), "it waits for what will not come");
            self.0.read(target)
        }
    }

    #[test]
    fn a_damaged_head_is_noticed_without_waiting_for_what_it_announces() {
        let frame = Frame::new(7, &"text", vec![1; 50]).unwrap();
        for bit in 0..HEAD_BYTES * 8 {
            let mut wire = sent(&frame);
            wire[bit / 8] ^= 1 << (bit % 8);
            let found = Frame::read(&mut NoMore(&wire), &mut Sequence::default(), MAX_REPLY_BYTES);
            assert!(matches!(found, Err(WireError::FrameHead | WireError::Magic { .. })), "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn a_frame_that_is_lost_comes_twice_or_too_early_is_noticed() {
        let (mut sequence, mut frames) = (Sequence::default(), Vec::new());
        for number in 0..3 {
            let mut wire = Vec::new();
            Frame::new(number, &(), vec![]).unwrap().write(&mut wire, &mut sequence).unwrap();
            frames.push(wire);
        }
        for (order, is_sound) in [([0, 1], true), ([0, 2], false), ([0, 0], false), ([1, 0], false)] {
            let (wire, mut sequence) = (order.map(|number| frames[number].clone()).concat(), Sequence::default());
            let mut wire = wire.as_slice();
            let found = [(); 2].map(|()| Frame::read(&mut wire, &mut sequence, 99).is_ok());
            assert_eq!(found == [true; 2], is_sound, "{order:?}");
        }
    }

    #[test]
    fn a_frame_cut_short_or_too_long_is_an_error_and_none_is_the_end() {
        assert!(read(&[], 10).unwrap().is_none());
        let wire = sent(&Frame::new(1, &(), vec![7; 100]).unwrap());
        for len in 1..wire.len() {
            assert!(matches!(read(&wire[..len], 1000), Err(WireError::Broken(_))), "{len} bytes");
        }
        assert!(matches!(read(&wire, 99), Err(WireError::TooLong { .. })));
        assert!(matches!(read(&[b'G'; 40], 99), Err(WireError::Magic { .. })));
    }

    #[test]
    fn a_length_that_is_a_lie_takes_little_memory() {
        // A head that is sound, of a frame whose bytes do not come.
        let head = FrameHead { request: 1, message_len: 0, bytes_len: 3 << 40, checksum: 0 };
        assert!(matches!(head.rest(&mut [].as_slice()), Err(WireError::Broken(_))));
        let step = usize::try_from(STEP_BYTES).unwrap();
        assert!(matches!(head.rest(&mut vec![0; 3 * step].as_slice()), Err(WireError::Broken(_))));
    }
}
