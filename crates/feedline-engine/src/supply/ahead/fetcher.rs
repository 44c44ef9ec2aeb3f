//! The thread that fetches: decides what is under way, and says which tasks are ready.
//!
//! In: tasks, answers of the peer, news of tasks that are gone. Out: fetches in the order of need, and tasks whose bytes are
//! here. All that is decided is decided in one thread, message by message, so there is nothing to lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use feedline_data::store::{Answer, Fetch};
use feedline_order::SampleRequest;

use super::super::reader::{Fetched, Part};
use super::super::{Reading, Ready};
use super::Needs;
use super::coalesce::{Cargo, Flight, Need, Wish, coalesce};
use super::held::Held;
use crate::metrics::TrafficMeter;
use crate::supply::Task;

/// The thread and the way to it.
#[derive(Debug)]
pub(super) struct Fetcher {
    messages: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

enum Message {
    Requested(Vec<Task>, Reading, Arc<dyn Ready>),
    Answered(u64, Answer),
    /// A task that was ready is gone.
    Gone(u64, Need),
    /// Fetched bytes are used up.
    Freed(u64),
    Forget,
    Close,
}

impl Fetcher {
    pub fn start(
        needs: Arc<dyn Needs>,
        held: Arc<Held>,
        traffic: Arc<TrafficMeter>,
        limit: u64,
    ) -> std::io::Result<Self> {
        let (messages, received) = mpsc::channel();
        let state = State {
            most_requests: needs.most_requests(),
            needs,
            held,
            traffic,
            limit,
            messages: messages.clone(),
            used: 0,
            numbers: 0,
            waiting: HashMap::new(),
            queue: BTreeMap::new(),
            under_way: HashMap::new(),
            holding: BTreeSet::new(),
        };
        let thread = thread::Builder::new().name("feedline-fetch".to_owned()).spawn(move || state.run(&received))?;
        Ok(Self { messages, thread: Some(thread) })
    }

    pub fn request(&self, tasks: Vec<Task>, reading: Reading, ready: &Arc<dyn Ready>) {
        send(&self.messages, Message::Requested(tasks, reading, Arc::clone(ready)));
    }

    pub fn forget(&self) {
        send(&self.messages, Message::Forget);
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        send(&self.messages, Message::Close);
        // The last task that it drops may hold the last run, and so this.
        let thread = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id());
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that fetches panicked");
        }
    }
}

/// Sends to the thread; one that has ended needs to know nothing.
fn send(messages: &Sender<Message>, message: Message) {
    drop(messages.send(message));
}

struct State {
    needs: Arc<dyn Needs>,
    held: Arc<Held>,
    traffic: Arc<TrafficMeter>,
    /// Bytes that may be fetched and under way, and those that are.
    limit: u64,
    used: u64,
    /// Requests that may be under way.
    most_requests: usize,
    messages: Sender<Message>,
    /// Numbers given to tasks and flights.
    numbers: u64,
    waiting: HashMap<u64, Waiting>,
    /// Flights that have not begun.
    queue: BTreeMap<(Need, u64), Flight>,
    under_way: HashMap<u64, UnderWay>,
    /// Tasks for which bytes are here or under way.
    holding: BTreeSet<(Need, u64)>,
}

/// A task whose bytes are not all here.
struct Waiting {
    task: Task,
    wanted: Vec<SampleRequest>,
    ready: Arc<dyn Ready>,
    missing: usize,
    parts: Vec<Part>,
}

struct UnderWay {
    flight: Flight,
    room: Room,
    _fetch: Fetch,
}

/// Bytes that are booked until this is dropped.
#[derive(Debug)]
pub(in super::super) struct Room {
    bytes: u64,
    messages: Sender<Message>,
}

impl Drop for Room {
    fn drop(&mut self) {
        send(&self.messages, Message::Freed(self.bytes));
    }
}

/// Goes with a task that is ready, and ends what is held for it.
struct Holding {
    number: u64,
    need: Need,
    wanted: Vec<SampleRequest>,
    held: Arc<Held>,
    messages: Sender<Message>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.held.remove(self.number, &self.wanted);
        send(&self.messages, Message::Gone(self.number, self.need));
    }
}

impl State {
    fn run(mut self, messages: &Receiver<Message>) {
        for message in messages {
            match message {
                Message::Requested(tasks, reading, ready) => self.plan(tasks, reading, &ready),
                Message::Answered(number, answer) => self.answer(number, answer),
                Message::Gone(number, need) => {
                    self.holding.remove(&(need, number));
                }
                Message::Freed(bytes) => self.used -= bytes,
                Message::Forget => self.forget(),
                Message::Close => return,
            }
            self.begin_flights();
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Queues what tasks need from peers; those that need nothing are ready.
    fn plan(&mut self, tasks: Vec<Task>, reading: Reading, ready: &Arc<dyn Ready>) {
        let (mut at_once, mut wishes) = (Vec::new(), Vec::new());
        // Whoever sent them may not have known of a jump or a close.
        for task in tasks.into_iter().filter(|task| ready.expects(task)) {
            let (number, before) = (self.number(), wishes.len());
            let wanted = task.wanted(self.needs.plan());
            for wanted in &wanted {
                let (need, epoch) = (task.need(), wanted.epoch);
                let needs = self.needs_of(*wanted, reading).into_iter();
                wishes.extend(needs.map(|cargo| Wish { task: number, need, epoch, cargo }));
            }
            if wishes.len() == before {
                at_once.push(task);
                continue;
            }
            let ready = Arc::clone(ready);
            self.waiting.insert(number, Waiting { task, wanted, ready, missing: 0, parts: Vec::new() });
        }
        for flight in coalesce(wishes) {
            for task in &flight.tasks {
                self.waiting.get_mut(task).expect("a wish is that of a task that waits").missing += 1;
            }
            let number = self.number();
            self.queue.insert((flight.need, number), flight);
        }
        if !at_once.is_empty() {
            ready.ready(at_once);
        }
    }

    /// What a sample needs. Where that cannot be said, nothing: to load it will say why.
    fn needs_of(&self, wanted: SampleRequest, reading: Reading) -> Vec<Cargo> {
        let needs = catch_unwind(AssertUnwindSafe(|| self.needs.needs(wanted, reading)));
        needs.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// Begins fetches while there are requests and memory to spare.
    fn begin_flights(&mut self) {
        while self.under_way.len() < self.most_requests {
            let Some(entry) = self.queue.first_entry() else { return };
            let (need, number) = *entry.key();
            let fits = self.used.saturating_add(entry.get().cargo.bytes()) <= self.limit;
            // What is needed sooner than all that is here cannot wait for that to be used up.
            if !fits && self.holding.first().is_some_and(|(soonest, _)| *soonest < need) {
                return;
            }
            let mut flight = entry.remove();
            self.needs.renew(&mut flight.cargo);
            let bytes = flight.cargo.bytes();
            self.used += bytes;
            let room = Room { bytes, messages: self.messages.clone() };
            for task in &flight.tasks {
                if let Some(waiting) = self.waiting.get(task) {
                    self.holding.insert((waiting.task.need(), *task));
                }
            }
            let messages = self.messages.clone();
            let done = Box::new(move |answer| send(&messages, Message::Answered(number, answer)));
            let fetch = self.needs.fetch(&flight.cargo, done);
            self.under_way.insert(number, UnderWay { flight, room, _fetch: fetch });
        }
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        let Some(UnderWay { flight, mut room, .. }) = self.under_way.remove(&number) else { return };
        self.traffic.add(flight.epoch, answer.traffic);
        let bytes = answer.bytes.map_err(Arc::new);
        // What a sample takes is known only now.
        let came = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.used = (self.used + came).saturating_sub(room.bytes);
        room.bytes = came;
        let fetched = Arc::new(Fetched { cargo: flight.cargo, bytes, _room: Some(room) });
        for number in flight.tasks {
            let Some(waiting) = self.waiting.get_mut(&number) else { continue };
            waiting.parts.push(Arc::clone(&fetched));
            waiting.missing -= 1;
            if waiting.missing == 0
                && let Some(complete) = self.waiting.remove(&number)
            {
                self.hand_over(number, complete);
            }
        }
    }

    fn hand_over(&self, number: u64, complete: Waiting) {
        let Waiting { mut task, wanted, ready, parts, .. } = complete;
        self.held.put(number, &wanted, &Arc::from(parts));
        let (held, messages, need) = (Arc::clone(&self.held), self.messages.clone(), task.need());
        task.hold(Holding { number, need, wanted, held, messages });
        ready.ready(vec![task]);
    }

    /// Drops tasks that nobody expects any more, and what is fetched for them alone.
    fn forget(&mut self) {
        let gone: Vec<u64> = {
            let is_gone = |(_, waiting): &(&u64, &Waiting)| !waiting.ready.expects(&waiting.task);
            self.waiting.iter().filter(is_gone).map(|(number, _)| *number).collect()
        };
        for number in gone {
            if let Some(waiting) = self.waiting.remove(&number) {
                self.holding.remove(&(waiting.task.need(), number));
            }
        }
        let Self { waiting, queue, under_way, .. } = self;
        let is_wanted = |flight: &Flight| flight.tasks.iter().any(|task| waiting.contains_key(task));
        queue.retain(|_, flight| is_wanted(flight));
        under_way.retain(|_, under_way| is_wanted(&under_way.flight));
    }
}
