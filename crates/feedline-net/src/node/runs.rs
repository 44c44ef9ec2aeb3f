//! The carousels of a node, one for each plan that jobs have in common.
//!
//! In: the plan of a job. Out: the carousel that serves it, started if nobody has asked for it before; it ends with its last
//! job. Always true: all carousels together take no more memory than the node has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use feedline_core::carousel::{Carousel, CarouselSnapshot, Memory};
use feedline_core::error::chain;
use feedline_core::{Document, Machine, Registry};
use serde::Serialize;

use super::stats::key_text;

/// The carousels of a node.
#[derive(Debug)]
pub(super) struct Runs {
    registry: Arc<Registry>,
    machine: Machine,
    memory_bytes: u64,
    /// Each is locked while it is started, so that jobs which come together get the same.
    known: Mutex<HashMap<u128, Arc<Mutex<Weak<Carousel>>>>>,
}

/// One carousel in numbers.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RunStats {
    pub key: String,
    pub samples: u64,
    /// Where the first sample is, to tell one data set from another.
    pub first_sample: String,
    pub ops: Vec<String>,
    #[serde(flatten)]
    pub carousel: CarouselSnapshot,
}

impl Runs {
    pub fn new(registry: Arc<Registry>, machine: Machine, memory_bytes: u64) -> Self {
        Self { registry, machine, memory_bytes, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Arc<Mutex<Weak<Carousel>>>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are being started are locked.
        known.retain(|_, run| run.try_lock().map_or(true, |run| run.strong_count() > 0) || Arc::strong_count(run) > 1);
        known
    }

    fn live(&self) -> Vec<(u128, Arc<Carousel>)> {
        let known: Vec<_> = self.lock().iter().map(|(key, run)| (*key, Arc::clone(run))).collect();
        let upgrade = |run: Arc<Mutex<Weak<Carousel>>>| run.try_lock().ok().and_then(|run| run.upgrade());
        known.into_iter().filter_map(|(key, run)| Some((key, upgrade(run)?))).collect()
    }

    /// The carousel for a plan whose values and fields are `key`; if there is none, why.
    pub fn open(&self, plan: &str, key: u128) -> Result<Arc<Carousel>, String> {
        let run = Arc::clone(self.lock().entry(key).or_default());
        let mut run = run.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(carousel) = run.upgrade() {
            return Ok(carousel);
        }
        let opened = Document::parse(plan).and_then(|document| document.open(&self.registry));
        let plan = opened.map_err(|error| format!("the node cannot open the plan: {}", chain(&error)))?;
        if plan.shared_key().0 != key {
            return Err("the node finds other samples or ops than the job: files have changed, or it sees another \
                        folder at the same path"
                .to_owned());
        }
        plan.check_shared().map_err(|why| why.to_string())?;
        let taken: u64 = self.live().iter().map(|(_, carousel)| carousel.memory_bytes()).sum();
        let left = self.memory_bytes.saturating_sub(taken);
        // Room for another plan, if this one can do with half.
        let shares = [left / 2, left].into_iter();
        let mut started = shares.map(|bytes| Carousel::start(&plan, &self.machine, Memory::Shared, bytes));
        let first = started.next().expect("there are two");
        let carousel = first.or_else(|error| started.next().unwrap_or(Err(error)));
        let carousel = Arc::new(carousel.map_err(|error| chain(&error))?);
        *run = Arc::downgrade(&carousel);
        Ok(carousel)
    }

    /// All carousels in numbers.
    pub fn stats(&self) -> Vec<RunStats> {
        let stats = |(key, carousel): (u128, Arc<Carousel>)| RunStats {
            key: key_text(key),
            samples: carousel.segments().samples(),
            first_sample: first_of(&carousel),
            ops: carousel.plan().ops().iter().map(|op| op.name().to_string()).collect(),
            carousel: carousel.snapshot(),
        };
        let mut all: Vec<RunStats> = self.live().into_iter().map(stats).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }
}

fn first_of(carousel: &Carousel) -> String {
    let source = carousel.plan().source();
    let id = source.id_at(0);
    source.address(id).map_or_else(|| source.key(id).into_owned(), |(path, _)| path)
}
