//! Replies of a worker process whose code is the user's.
//!
//! An additional promise: there are at most as many samples as were requested, and every payload lies in the worker's memory. A
//! function returns a limited number of values.

use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use feedline_data::memory::Cancel;
use feedline_engine::supply::{MadeContent, MakeRequest, SampleMaker as _};
use feedline_net::worker::{OnLoss, WorkerPool, values_in_reply};
use feedline_order::{Epoch, Occurrence, SampleId, SampleRequest, Seed};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

const ARENA_BYTES: u64 = 4096;
/// More than this does not fit into the buffer of a socket.
const MAX_REPLY: usize = 16 << 10;

/// Upper limit of the values that a function returns.
const MAX_VALUES: usize = 1024;

/// Answers a request for two samples with the bytes, and a call of a function.
pub fn run(data: &[u8]) {
    let count = values_in_reply(data).unwrap_or_default();
    assert!(count <= MAX_VALUES);
    let data = &data[..data.len().min(MAX_REPLY)];
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    say_hello(&theirs);
    theirs.write_all(&(data.len() as u32).to_le_bytes()).expect("the buffer has room");
    theirs.write_all(data).expect("the buffer has room");
    let pool = WorkerPool::new(vec![ours], Seed(0), OnLoss::Fail);
    let sample = |id| SampleRequest { id: SampleId(id), epoch: Epoch(0), occurrence: Occurrence(0) };
    let samples = [sample(1), sample(2)];
    let request = MakeRequest { worker: 0, samples: &samples, indices: None, slots: None, cancel: &Cancel::default() };
    let Ok(made) = pool.make(request) else { return };
    assert!(made.samples.len() <= 2);
    for made in made.samples {
        if let MadeContent::InSlot(payload) | MadeContent::Payload(payload) = made.content {
            assert!(payload.len() as u64 <= ARENA_BYTES);
        }
    }
}

fn say_hello(stream: &UnixStream) {
    let arena: OwnedFd = rustix::fs::memfd_create("arena", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    rustix::fs::ftruncate(&arena, ARENA_BYTES).expect("it can grow");
    let descriptors = [arena.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let hello = [8, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0];
    rustix::net::sendmsg(stream, &[IoSlice::new(&hello)], &mut control, SendFlags::NOSIGNAL).expect("it is sent");
}

/// The reply of a function that returned an array and a text.
fn function_reply() -> Vec<u8> {
    let array = [&[0, 11, 1, 0][..], &3_u64.to_le_bytes(), &64_u64.to_le_bytes(), &12_u64.to_le_bytes()].concat();
    let text = [&[2, 0, 0, 0][..], &128_u64.to_le_bytes(), &2_u64.to_le_bytes()].concat();
    [&[3, 0, 0, 0][..], &2_u32.to_le_bytes(), &array, &text].concat()
}

/// Replies with samples in slots and payloads, with an exception, and with the form of leaves.
pub fn seeds() -> Vec<Vec<u8>> {
    let record = |offset: u64, len: u64, status: u32| {
        let numbers = [1000, offset, len].map(u64::to_le_bytes).concat();
        [numbers, status.to_le_bytes().to_vec(), vec![0; 4]].concat()
    };
    let reply = |flags: u8, records: &[Vec<u8>], form: &[u8]| {
        let head = [&[0, flags, 0, 0][..], &(records.len() as u32).to_le_bytes()].concat();
        [head, records.concat(), form.to_vec()].concat()
    };
    let leaf = [&[11, 2, 0, 0, 0, 0, 0, 0][..], &3_u64.to_le_bytes(), &4_u64.to_le_bytes()].concat();
    let form = [&1_u32.to_le_bytes()[..], &leaf, &2_u32.to_le_bytes(), b"ab"].concat();
    vec![
        reply(0, &[record(0, 0, 0), record(64, 100, 1)], &[]),
        reply(0, &[record(64, 4032, 2)], &[]),
        reply(0, &[record(0, 0, 3)], &[]),
        reply(1, &[record(64, 7, 1), record(128, 7, 0)], &form),
        function_reply(),
    ]
}
