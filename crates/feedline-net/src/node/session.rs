//! The connection of one job, on the side of the node.
//!
//! Two threads: one receives the job's messages, the other sends segments or batches, and a heartbeat if it has sent
//! nothing for a second.
//! When the connection ends for any reason, the job is removed and its leases end (law 7).

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use feedline_data::failure::chain;
use feedline_engine::loader::STREAM_POLL;
use feedline_memory::{Condvar, Mutex};

use super::channel::{Receiver, Sender, split};
use super::message::{FromJob, FromNode, PROTOCOL};
use super::meter::{JobMeter, Nth};
use super::runs::Runs;
use super::serving::{Outgoing, Serving};
use crate::wire::{WireError, engine_version};

/// How long a connection may take to send its first message.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// Upper limit of pending requests. Feedline's own client has one or two.
const MAX_UNANSWERED: u64 = 32;
/// How long a job may leave messages unread. Feedline's own client reads them at once.
const UNREAD_TIME: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
/// The node sends a heartbeat if it has sent nothing for this long.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// A connected job.
struct Session {
    sender: Sender,
    serving: Box<dyn Serving>,
    meter: Arc<JobMeter>,
    /// Held while an item is taken and labelled, and while the generation changes, so that an item never gets the wrong generation.
    requests: Mutex<RequestState>,
    changed: Condvar,
    has_ended: AtomicBool,
}

struct RequestState {
    generation: u64,
    /// Number of requests without an answer.
    unanswered: u64,
    /// When the unread segments and batches were sent, oldest first.
    unread: VecDeque<Instant>,
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
    // The permissions of the socket already exclude other users. The kernel's credentials confirm it.
    if user != rustix::process::geteuid().as_raw() {
        return refuse(&sender, format!("the node belongs to another user than {user}"));
    }
    receiver.set_patience(Some(GREETING_TIME))?;
    let (protocol, engine, plan, key, route) = loop {
        match receiver.receive()? {
            Some((FromJob::Attach { protocol, engine, plan, key, route }, _)) => {
                break (protocol, engine, plan, key, route);
            }
            // A request for statistics does not attach a job, so the connection may send more.
            Some((FromJob::GetStats { protocol: PROTOCOL }, _)) => {
                sender.send(&FromNode::Stats { json: stats() }, None)?;
            }
            Some((FromJob::GetStats { protocol }, _)) => {
                return refuse(&sender, format!("the node has protocol {PROTOCOL}, not {protocol}"));
            }
            Some(_) => return refuse(&sender, "the first message of a job must be Attach".to_owned()),
            None => return Ok(()),
        }
    };
    // From now on a job may be silent as long as it likes: a training step can take minutes.
    receiver.set_patience(None)?;
    if (protocol, &engine) != (PROTOCOL, &engine_version()) {
        let (theirs, ours) = (format!("{engine}, protocol {protocol}"), engine_version());
        return refuse(&sender, format!("the job has version {theirs}, the node has {ours}, protocol {PROTOCOL}"));
    }
    let serving = match runs.serve(&plan, key, &route) {
        Ok(serving) => serving,
        Err(reason) => return refuse(&sender, reason),
    };
    sender.send(&FromNode::Attached, None)?;
    let meter = meter(process, key);
    let requests = Mutex::new(RequestState { generation: 0, unanswered: 0, unread: VecDeque::new(), nth: Nth::First });
    let (changed, has_ended) = (Condvar::new(), AtomicBool::new(false));
    let session = Session { sender, serving, meter, requests, changed, has_ended };
    thread::scope(|scope| {
        let sending = thread::Builder::new().name("feedline-lease".to_owned()).spawn_scoped(scope, || {
            // Both threads hold such a guard: when either ends, the other is woken and ends too.
            let _ending = Ending(&session);
            if let Err(error) = session.send_all() {
                tracing::warn!(error = %chain(&error), "stopped serving a job that does not read its messages");
            }
        });
        let _ending = Ending(&session);
        sending.map_err(WireError::from).and_then(|_| session.receive_all(&mut receiver))
    })
}

/// Ends a session as soon as one of its threads ends, even by a panic. Otherwise the other thread would go on alone, and the job
/// would wait for ever.
struct Ending<'a>(&'a Session);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn refuse(sender: &Sender, reason: String) -> Result<(), WireError> {
    sender.send(&FromNode::Refused { reason }, None)
}

impl Session {
    fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.sender.end();
        self.changed.notify_all();
        self.serving.wake();
    }

    fn receive_all(&self, receiver: &mut Receiver) -> Result<(), WireError> {
        while let Some((message, _)) = receiver.receive()? {
            match message {
                FromJob::Attach { .. } | FromJob::GetStats { .. } => {
                    return refuse(&self.sender, "the job is attached already".to_owned());
                }
                FromJob::Next => {
                    let mut requests = self.requests.lock();
                    // A job that only requests and never reads must not make this number grow without limit.
                    requests.unanswered += 1;
                    if requests.unanswered > MAX_UNANSWERED {
                        let reason =
                            format!("the job has {MAX_UNANSWERED} requests without an answer, which is the limit");
                        return refuse(&self.sender, reason);
                    }
                    // A client keeps `requests_in_flight` requests open. Only if all of them are unanswered does the job really
                    // wait.
                    if requests.unanswered >= self.serving.requests_in_flight() {
                        self.meter.begin_wait();
                    }
                    drop(requests);
                    self.changed.notify_all();
                }
                FromJob::Received => {
                    if self.requests.lock().unread.pop_front().is_none() {
                        return refuse(
                            &self.sender,
                            "the job reports more messages as received than the node sent".to_owned(),
                        );
                    }
                    self.changed.notify_all();
                }
                FromJob::GiveBack { number } => self.serving.give_back(number),
                FromJob::Change { generation, route } => {
                    let mut requests = self.requests.lock();
                    // Under the lock: the sending thread must not take an item of the old route and label it with the new
                    // generation.
                    if let Err(reason) = self.serving.change(&route) {
                        return refuse(&self.sender, reason);
                    }
                    requests.generation = generation;
                    requests.nth = Nth::First;
                }
            }
        }
        Ok(())
    }

    /// Sends requested items until the session ends.
    fn send_all(&self) -> Result<(), WireError> {
        let mut last_sent = Instant::now();
        while !self.has_ended.load(Ordering::Relaxed) {
            // Unread messages hold leases. A job that stopped reading would block memory that others need.
            if self.requests.lock().unread.front().is_some_and(|sent| sent.elapsed() > UNREAD_TIME) {
                let text = format!("the job has not read from its connection for {} s", UNREAD_TIME.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text).into());
            }
            match self.next() {
                Ok(Some((generation, outgoing))) => self.send(generation, outgoing)?,
                Ok(None) if last_sent.elapsed() >= HEARTBEAT_INTERVAL => self.sender.send(&FromNode::Alive, None)?,
                Ok(None) => {
                    self.wait();
                    continue;
                }
                Err(reason) => return self.sender.send(&FromNode::Failed { reason }, None),
            }
            last_sent = Instant::now();
        }
        Ok(())
    }

    /// Whether the job requests more, and has fewer unread items than it may request.
    fn can_take(&self, requests: &RequestState) -> bool {
        requests.unanswered > 0 && (requests.unread.len() as u64) < self.serving.requests_in_flight()
    }

    /// Waits for a request, or for an item if there is a request.
    fn wait(&self) {
        let mut requests = self.requests.lock();
        if self.can_take(&requests) {
            drop(requests);
            self.serving.wait(STREAM_POLL);
        } else {
            self.changed.wait_for(&mut requests, STREAM_POLL);
        }
    }

    /// The next item and its generation, if one is requested and ready.
    fn next(&self) -> Result<Option<(u64, Outgoing)>, String> {
        let mut requests = self.requests.lock();
        if !self.can_take(&requests) {
            return Ok(None);
        }
        // Taken while locked, so that the item and the generation belong together. `take` does not wait.
        let Some(outgoing) = self.serving.take()? else { return Ok(None) };
        requests.unanswered -= 1;
        requests.unread.push_back(Instant::now());
        let nth = std::mem::replace(&mut requests.nth, Nth::Later);
        for (cause, waited) in self.meter.end_wait(nth, outgoing.provenance) {
            self.serving.add_stall(cause, waited);
        }
        Ok(Some((requests.generation, outgoing)))
    }

    fn send(&self, generation: u64, outgoing: Outgoing) -> Result<(), WireError> {
        let Outgoing { epoch, samples, slab, message, .. } = outgoing;
        self.meter.add_segment(epoch, samples);
        self.sender.send(&message(generation), slab.descriptor())
    }
}

#[cfg(test)]
mod tests {
    use feedline_order::Rank;

    use super::super::message::{JobPlan, Route};
    use super::*;
    use feedline_data::plan::Registry;
    use feedline_engine::machine::{CoreWeight, Machine};

    /// The node's answer to a first message.
    fn answer(hello: &FromJob) -> FromNode {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let runs = Runs::new(Arc::new(Registry::core()), Machine::default(), 1 << 20);
        let node = thread::spawn(move || {
            let meter = |_, _| unreachable!("nobody attaches");
            serve(ours, &runs, meter, || "{}".to_owned())
        });
        let (sender, mut receiver) = split(theirs).unwrap();
        sender.send(hello, None).unwrap();
        let answer = receiver.receive().unwrap().unwrap().0;
        drop((sender, receiver));
        node.join().unwrap().unwrap();
        answer
    }

    fn attach(protocol: u32, engine: &str) -> FromJob {
        let (plan, route) =
            (JobPlan { text: String::new(), rank: Rank::ALONE, weight: CoreWeight::ONE }, Route::Share(String::new()));
        FromJob::Attach { protocol, engine: engine.to_owned(), plan, key: 0, route }
    }

    #[test]
    fn a_job_of_another_version_is_refused_with_both_versions() {
        for hello in [attach(PROTOCOL, "feedline 9.9.9, other decoders"), attach(99, &engine_version())] {
            let FromNode::Refused { reason } = answer(&hello) else { panic!("it is refused") };
            assert!(reason.contains(&engine_version()) && reason.contains(&PROTOCOL.to_string()), "{reason}");
            let theirs = if reason.contains("9.9.9") { "9.9.9, other decoders" } else { "protocol 99" };
            assert!(reason.contains(theirs), "{reason}");
        }
        let FromNode::Refused { reason } = answer(&FromJob::GetStats { protocol: 99 }) else { panic!("it is refused") };
        assert!(reason.contains("99") && reason.contains(&PROTOCOL.to_string()), "{reason}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let FromNode::Refused { reason } = answer(&FromJob::Next) else { panic!("it is refused") };
        assert!(reason.contains("must be Attach"), "{reason}");
        let FromNode::Refused { reason } = answer(&attach(PROTOCOL, &engine_version())) else { panic!("refused") };
        assert!(reason.contains("cannot open the plan"), "{reason}");
    }
}
