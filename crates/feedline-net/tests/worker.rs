//! Worker processes, played by threads that speak their protocol.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use feedline_data::memory::Cancel;
use feedline_engine::supply::{MadeContent, MadeSamples, MakeError, MakeRequest, SampleMaker as _};
use feedline_net::worker::{CallError, OnLoss, WorkerException, WorkerPool};
use feedline_order::{Epoch, Occurrence, SampleId, SampleRequest, Seed};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

const ARENA_BYTES: u64 = 4096;

/// The worker's end of a connection.
struct Played {
    stream: UnixStream,
    arena: OwnedFd,
}

impl Played {
    /// Says hello, with memory for payloads.
    fn new(stream: UnixStream) -> Self {
        let arena = rustix::fs::memfd_create("arena", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&arena, ARENA_BYTES).unwrap();
        let descriptors = [arena.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let hello = [8, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0];
        rustix::net::sendmsg(&stream, &[IoSlice::new(&hello)], &mut control, SendFlags::NOSIGNAL).unwrap();
        Self { stream, arena }
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).unwrap();
        let mut body = vec![0; u32::from_le_bytes(len) as usize];
        self.stream.read_exact(&mut body).unwrap();
        body
    }

    fn send(&mut self, body: &[u8]) {
        self.stream.write_all(&(body.len() as u32).to_le_bytes()).unwrap();
        self.stream.write_all(body).unwrap();
    }

    /// Answers with one record per (offset, length, status).
    fn answer(&mut self, records: &[(u64, u64, u32)]) {
        let mut body = vec![0, 0, 0, 0];
        body.extend((records.len() as u32).to_le_bytes());
        for (offset, len, status) in records {
            for number in [7, *offset, *len] {
                body.extend(number.to_le_bytes());
            }
            body.extend(status.to_le_bytes());
            body.extend([0; 4]);
        }
        self.send(&body);
    }
}

fn sample(id: u64) -> SampleRequest {
    SampleRequest { id: SampleId(id), epoch: Epoch(3), occurrence: Occurrence(0) }
}

fn make(pool: &WorkerPool, ids: &[u64], cancel: &Cancel) -> Result<MadeSamples, MakeError> {
    let samples: Vec<_> = ids.iter().copied().map(sample).collect();
    pool.make(MakeRequest { worker: 0, samples: &samples, indices: None, slots: None, cancel })
}

fn pool(on_loss: OnLoss, play: impl FnOnce(Played) + Send + 'static) -> WorkerPool {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || play(Played::new(theirs)));
    WorkerPool::new(vec![ours], Seed(5), on_loss)
}

#[test]
fn a_worker_gets_indices_and_seeds_and_its_payloads_are_read() {
    let pool = pool(OnLoss::Fail, |mut worker| {
        let body = worker.receive();
        let numbers: Vec<u64> = body[24..].as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let seed = |id| WorkerPool::seed_of(Seed(5), sample(id));
        assert_eq!(numbers, [17, seed(17), 4, seed(4)]);
        assert_ne!(seed(17), seed(4));
        rustix::io::pwrite(&worker.arena, b"sample", 64).unwrap();
        worker.answer(&[(64, 6, 1), (0, 0, 3)]);
    });
    let made = make(&pool, &[17, 4], &Cancel::default()).unwrap().samples;
    assert!(matches!(&made[0].content, MadeContent::Payload(bytes) if bytes == b"sample"));
    assert!(matches!(made[1].content, MadeContent::Ended));
    assert_eq!(made[0].time, Duration::from_nanos(7));
}

#[test]
fn law_6_an_exception_of_the_dataset_travels_as_its_pickle() {
    let pool = pool(OnLoss::Fail, |mut worker| {
        worker.receive();
        rustix::io::pwrite(&worker.arena, b"\x05\0\0\0E: xypickle", 64).unwrap();
        worker.answer(&[(0, 0, 0), (64, 15, 2)]);
    });
    let made = make(&pool, &[1, 2, 3], &Cancel::default()).unwrap().samples;
    assert_eq!(made.len(), 2, "the rest was not made");
    let MadeContent::Failed(error) = &made[1].content else { panic!("it raised") };
    assert_eq!(error.downcast_ref::<WorkerException>().unwrap().pickled, b"pickle");
    assert_eq!(error.to_string(), "the dataset raised E: xy");
}

#[test]
fn an_exception_without_its_text_is_a_wrong_answer() {
    let pool = pool(OnLoss::Fail, |mut worker| {
        worker.receive();
        rustix::io::pwrite(&worker.arena, b"\xff\0\0\0text", 64).unwrap();
        worker.answer(&[(64, 8, 2)]);
    });
    assert!(make(&pool, &[1], &Cancel::default()).is_err());
}

#[test]
fn law_6_a_lost_worker_is_reported_with_the_sample_that_it_made() {
    let pool = pool(OnLoss::Fail, |mut worker| {
        worker.receive();
        // It has begun with the third sample.
        rustix::io::pwrite(&worker.arena, &2_u64.to_le_bytes(), 0).unwrap();
    });
    let lost = make(&pool, &[10, 11, 12, 13], &Cancel::default()).unwrap_err();
    assert!(matches!(lost, MakeError::WorkerLost { worker: 0, sample: 2 }), "{lost:?}");
    assert!(pool.lost().is_empty(), "nobody waits for another worker");
}

#[test]
fn a_replaced_worker_makes_the_samples_of_the_lost_one() {
    let pool = pool(OnLoss::Replace, |mut worker| drop(worker.receive()));
    thread::scope(|scope| {
        let asking = scope.spawn(|| make(&pool, &[5, 6], &Cancel::default()));
        while pool.lost().is_empty() {
            thread::yield_now();
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        pool.replace(0, ours);
        let mut second = Played::new(theirs);
        assert_eq!(second.receive()[4..8], 2_u32.to_le_bytes(), "both samples");
        second.answer(&[(0, 0, 0), (0, 0, 0)]);
        assert_eq!(asking.join().unwrap().unwrap().samples.len(), 2);
    });
    assert!(pool.lost().is_empty());
}

#[test]
fn law_7_a_caller_that_is_told_to_end_does_not_wait_for_the_worker() {
    let (never, keep) = std::sync::mpsc::channel::<()>();
    let pool = pool(OnLoss::Fail, move |mut worker| {
        worker.receive();
        // Ends when the test does.
        assert!(keep.recv().is_err());
    });
    let cancel = Cancel::default();
    thread::scope(|scope| {
        let asking = scope.spawn(|| make(&pool, &[5, 6], &cancel));
        while pool.current(0).is_none() {
            thread::yield_now();
        }
        assert_eq!(pool.current(0), Some(sample(5)));
        cancel.cancel();
        assert!(matches!(asking.join().unwrap(), Err(MakeError::Cancelled)));
    });
    drop(never);
}

#[test]
fn a_payload_outside_the_workers_memory_is_refused() {
    for record in [(64, ARENA_BYTES, 1), (u64::MAX, 2, 1), (0, u64::MAX, 1), (ARENA_BYTES + 1, 1, 0)] {
        let pool = pool(OnLoss::Fail, move |mut worker| {
            worker.receive();
            worker.answer(&[record]);
        });
        let refused = make(&pool, &[1], &Cancel::default()).unwrap_err();
        assert!(matches!(refused, MakeError::Answer { .. }), "{refused:?}");
    }
}

#[test]
fn a_call_returns_the_result_or_the_exception() {
    let pool = pool(OnLoss::Fail, |mut worker| {
        assert_eq!(worker.receive(), b"\x01\0\0\0first");
        worker.send(b"\x01\x01\0\0result");
        worker.receive();
        worker.send(b"\x01\0\0\0exception");
    });
    assert_eq!(pool.call(0, b"first", &|| false).unwrap(), b"result");
    let raised = pool.call(0, b"second", &|| false).unwrap_err();
    assert!(matches!(raised, CallError::Raised { worker: 0, exception } if exception == b"exception"));
    assert!(matches!(pool.call(0, b"third", &|| false), Err(CallError::Lost(0))));
}
