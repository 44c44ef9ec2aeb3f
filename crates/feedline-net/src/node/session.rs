//! One job, as the node sees it.
//!
//! Two threads: one hears the job, the other sends it segments as it asks for them, and a sign of life each second. When the
//! connection ends, whatever the reason, the job is off and what it had leased is free (law 7).

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use feedline_core::carousel::{Carousel, Content, JobId, Leased};
use feedline_core::error::chain;
use feedline_core::sink::STREAM_POLL;

use super::channel::{Receiver, Sender, split};
use super::message::{BadMessage, FromJob, FromNode, PROTOCOL, SegmentMessage};
use super::meter::{JobMeter, Nth};
use super::runs::Runs;
use crate::wire::{WireError, engine_version};

/// How long a connection may take to say what it wants.
const GREETING: Duration = Duration::from_secs(10);
/// How often the job is told that the node is there.
const ALIVE_EVERY: Duration = Duration::from_secs(1);

/// A job that is on.
struct Session {
    sender: Sender,
    carousel: Arc<Carousel>,
    job: JobId,
    meter: Arc<JobMeter>,
    /// Held from a look at the generation until a segment is leased for it, and while that changes.
    wishes: Mutex<Wishes>,
    has_ended: AtomicBool,
}

struct Wishes {
    generation: u64,
    /// Segments asked for and not sent.
    wanted: u64,
    nth: Nth,
}

/// Serves one connection until it ends.
pub(super) fn serve(
    stream: UnixStream,
    runs: &Runs,
    meter: impl FnOnce(u32, u128) -> Arc<JobMeter>,
    stats: impl Fn() -> String,
) -> Result<(), WireError> {
    let (sender, mut receiver) = split(stream)?;
    let (user, process) = receiver.peer()?;
    if user != rustix::process::geteuid().as_raw() {
        return refuse(&sender, format!("the node belongs to another user than {user}"));
    }
    receiver.set_patience(Some(GREETING))?;
    let (protocol, engine, plan, key, ride) = loop {
        match receiver.receive()? {
            Some((FromJob::Attach { protocol, engine, plan, key, ride }, _)) => {
                break (protocol, engine, plan, key, ride);
            }
            Some((FromJob::Look { protocol: PROTOCOL }, _)) => sender.send(&FromNode::Stats { json: stats() }, None)?,
            Some((FromJob::Look { protocol }, _)) => {
                return refuse(&sender, format!("the node speaks protocol {PROTOCOL}, not {protocol}"));
            }
            Some(_) => return refuse(&sender, "a job begins by attaching".to_owned()),
            None => return Ok(()),
        }
    };
    receiver.set_patience(None)?;
    if (protocol, &engine) != (PROTOCOL, &engine_version()) {
        let (theirs, ours) = (format!("{engine}, protocol {protocol}"), engine_version());
        return refuse(&sender, format!("the job has version {theirs}, the node has {ours}, protocol {PROTOCOL}"));
    }
    let carousel = match runs.open(&plan, key) {
        Ok(carousel) => carousel,
        Err(reason) => return refuse(&sender, reason),
    };
    let ride = match ride.to_ride(carousel.plan(), &carousel.segments()) {
        Ok(ride) => ride,
        Err(error) => return refuse(&sender, error.to_string()),
    };
    let job = match carousel.board(&ride) {
        Ok(job) => job,
        Err(error) => return refuse(&sender, error.to_string()),
    };
    sender.send(&FromNode::Attached, None).inspect_err(|_| carousel.leave(job))?;
    let meter = meter(process, key);
    let wishes = Mutex::new(Wishes { generation: 0, wanted: 0, nth: Nth::First });
    let session = Session { sender, carousel, job, meter, wishes, has_ended: AtomicBool::new(false) };
    let heard = thread::scope(|scope| {
        let sending = thread::Builder::new().name("feedline-lease".to_owned()).spawn_scoped(scope, || {
            if let Err(error) = session.send_segments() {
                tracing::debug!(%error, "a job takes no more");
            }
            session.end();
        });
        let heard = sending.map_err(WireError::from).and_then(|_| session.hear(&mut receiver));
        session.end();
        heard
    });
    session.carousel.leave(session.job);
    heard
}

fn refuse(sender: &Sender, reason: String) -> Result<(), WireError> {
    sender.send(&FromNode::Refused { reason }, None)
}

impl Session {
    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.sender.end();
    }

    fn hear(&self, receiver: &mut Receiver) -> Result<(), WireError> {
        while let Some((message, _)) = receiver.receive()? {
            match message {
                FromJob::Attach { .. } | FromJob::Look { .. } => {
                    return refuse(&self.sender, "the job is on already".to_owned());
                }
                FromJob::Next => {
                    self.meter.begin_wait();
                    self.wishes().wanted += 1;
                    self.carousel.wake();
                }
                FromJob::GiveBack { number } => self.carousel.give_back(self.job, number),
                FromJob::Change { generation, ride } => {
                    let ride = match ride.to_ride(self.carousel.plan(), &self.carousel.segments()) {
                        Ok(ride) => ride,
                        Err(error) => return refuse(&self.sender, error.to_string()),
                    };
                    let mut wishes = self.wishes();
                    self.carousel.change(self.job, &ride);
                    wishes.generation = generation;
                    wishes.nth = Nth::First;
                }
            }
        }
        Ok(())
    }

    /// Sends segments as they are asked for, until the end.
    fn send_segments(&self) -> Result<(), WireError> {
        let mut spoken = Instant::now();
        let mut seen = 0;
        while !self.has_ended.load(Ordering::Relaxed) {
            match self.next() {
                Ok(Some((generation, leased))) => self.send(generation, leased)?,
                Ok(None) if spoken.elapsed() >= ALIVE_EVERY => self.sender.send(&FromNode::Alive, None)?,
                Ok(None) => {
                    seen = self.carousel.wait_change(seen, STREAM_POLL);
                    continue;
                }
                Err(reason) => return self.sender.send(&FromNode::Failed { reason }, None),
            }
            spoken = Instant::now();
        }
        Ok(())
    }

    /// The next segment, if one is asked for and there, and for which generation.
    fn next(&self) -> Result<Option<(u64, Leased<Content>)>, String> {
        let mut wishes = self.wishes();
        if wishes.wanted == 0 {
            return Ok(None);
        }
        let leased = self.carousel.lease_within(self.job, Duration::ZERO).map_err(|error| chain(&*error))?;
        let Some(leased) = leased else { return Ok(None) };
        wishes.wanted -= 1;
        let nth = std::mem::replace(&mut wishes.nth, Nth::Later);
        for (cause, waited) in self.meter.end_wait(nth, leased.content.making) {
            self.carousel.book_stall(cause, waited);
        }
        Ok(Some((wishes.generation, leased)))
    }

    fn send(&self, generation: u64, leased: Leased<Content>) -> Result<(), WireError> {
        let Leased { number, epoch, portion, skipped, can_be_kept, content: Content { slab, bad, .. } } = leased;
        let positions = self.carousel.segments().positions(portion.segment);
        self.meter.add_segment(epoch, positions.end - positions.start - skipped);
        let bytes = slab.layout().total_bytes() as u64;
        let bad = bad.iter().map(BadMessage::from).collect();
        let message = SegmentMessage { generation, number, epoch, portion, skipped, can_be_kept, bytes, bad };
        self.sender.send(&FromNode::Segment(message), slab.descriptor())
    }
}
