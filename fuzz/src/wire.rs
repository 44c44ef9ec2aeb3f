//! Frames and messages of a hostile client or server.
//!
//! An additional promise: an accepted frame or message is the same after it is written and read again.

use feedline_net::wire::{Failure, Frame, Reply, Request, Sequence};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::ser::{SerializeTuple, Serializer};

const MAX_BYTES: u64 = 16 << 20;

/// Reads the bytes as frames, and as a message in a valid frame. The checksum of a frame would stop most mutations before they
/// reach the reader of messages.
pub fn run(data: &[u8]) {
    let mut rest = data;
    let mut sequence = Sequence::default();
    while let Ok(Some(frame)) = Frame::read(&mut rest, &mut sequence, MAX_BYTES) {
        let mut written = Vec::new();
        frame.write(&mut written, &mut Sequence::default()).expect("memory takes all");
        let again = Frame::read(&mut written.as_slice(), &mut Sequence::default(), MAX_BYTES)
            .expect("what was written can be read");
        assert_eq!(Some(&frame), again.as_ref());
        check_message::<Request>(&frame);
        check_message::<Reply>(&frame);
    }
    let frame = Frame::new(1, &Raw(data), Vec::new()).expect("bytes can be written");
    check_message::<Request>(&frame);
    check_message::<Reply>(&frame);
}

fn check_message<T: Serialize + DeserializeOwned>(frame: &Frame) {
    if let Ok(message) = frame.message::<T>() {
        let written = Frame::new(1, &message, Vec::new()).expect("what was read can be written");
        let again: T = written.message().expect("what was written can be read");
        assert_eq!(Frame::new(1, &again, Vec::new()).expect("and written again"), written);
    }
}

/// Serialises bytes without a length.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        for byte in self.0 {
            tuple.serialize_element(byte)?;
        }
        tuple.end()
    }
}

/// Frames of each kind, one after the other, and messages alone.
pub fn seeds() -> Vec<Vec<u8>> {
    let name = || "train/a.jpg".to_owned();
    let requests = [
        Request::Hello { protocol: 1, engine: "engine".to_owned() },
        Request::Proof { proof: [7; 32] },
        Request::List { folder: "train".to_owned(), is_flat: true },
        Request::Open { name: name() },
        Request::Read { name: name(), offset: 5, len: 1 << 40, version: None },
        Request::ReadAll { name: name() },
    ];
    let replies = [
        Reply::Challenge { challenge: [9; 32] },
        Reply::Welcome,
        Reply::Refused { reason: "no".to_owned() },
        Reply::Names { names: vec![(name(), None), ("b".to_owned(), None)], left_out: 1 },
        Reply::Bytes,
        Reply::Failed { failure: Failure::Changed, reason: "other".to_owned() },
    ];
    let mut seeds: Vec<Vec<u8>> = requests.iter().map(alone).chain(replies.iter().map(alone)).collect();
    let (mut wire, mut sequence) = (Vec::new(), Sequence::default());
    for (number, request) in (0..).zip(&requests) {
        let frame = Frame::new(number, request, vec![1; 20]).expect("a seed can be written");
        frame.write(&mut wire, &mut sequence).expect("memory takes all");
    }
    seeds.push(wire);
    seeds
}

/// A message without its frame.
fn alone(message: &impl Serialize) -> Vec<u8> {
    let mut wire = Vec::new();
    let frame = Frame::new(0, message, Vec::new()).expect("a seed can be written");
    frame.write(&mut wire, &mut Sequence::default()).expect("memory takes all");
    wire.split_off(HEAD_BYTES)
}

/// Length of the head of a frame.
const HEAD_BYTES: usize = 40;
