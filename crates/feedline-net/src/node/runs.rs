//! The productions of a node: a carousel for each plan that jobs share, a partition for the ranks of each job.
//!
//! In: the plan of a job. Out: its production, started by the first job and ended with the last. Always true: all segments and the
//! batches of all ranks together stay below the node's memory limit. Memory for preparing samples comes on top.

use std::sync::Arc;

use feedline_data::failure::chain;
use feedline_data::plan::{Document, Plan, Registry, Workers};
use feedline_data::source::Source;
use feedline_engine::carousel::{Carousel, CarouselSnapshot, Memory};
use feedline_engine::machine::Machine;
use feedline_engine::partition::Partition;
use feedline_engine::shared_by_key::SharedByKey;
use feedline_memory::Mutex;
use feedline_order::Ordinal;
use serde::Serialize;

use super::message::{JobPlan, Route};
use super::serving::{CarouselServing, RankServing, Serving, cursor_of};
use super::stats::key_text;

/// The ranks of a job get the free memory divided by this.
const RANKS_DIVISOR: u64 = 2;

/// What a node produces.
#[derive(Debug)]
pub(super) struct Runs {
    registry: Arc<Registry>,
    machine: Machine,
    /// Upper limit of memory for all productions.
    memory_bytes: u64,
    carousels: SharedByKey<Carousel>,
    partitions: SharedByKey<Partition>,
    /// Held while a production starts, so that two productions do not get the same memory.
    starting: Mutex<()>,
}

/// The metrics of one production.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RunStats {
    pub key: String,
    pub samples: u64,
    /// The folder of its data, or else the kind of its source. People recognise the data set by it.
    pub folder: String,
    pub ops: Vec<String>,
    /// Number of ranks that divide its data. 1 if each job gets all of it.
    pub world_size: u32,
    #[serde(flatten)]
    pub carousel: CarouselSnapshot,
}

impl Runs {
    pub(super) fn new(registry: Arc<Registry>, machine: Machine, memory_bytes: u64) -> Self {
        Self {
            registry,
            machine,
            memory_bytes,
            carousels: SharedByKey::default(),
            partitions: SharedByKey::default(),
            starting: Mutex::default(),
        }
    }

    /// The production for a job with this `key`, or why there is none.
    pub(super) fn serve(&self, plan: &JobPlan, key: u128, route: &Route) -> Result<Box<dyn Serving>, String> {
        let weight = plan.weight;
        match route {
            Route::JobProgress(_) => {
                // The common case: the production runs already, so the plan is not opened again, which could list millions of
                // files.
                if let Some(carousel) = self.carousels.find(key) {
                    return Ok(Box::new(CarouselServing::join(carousel, route, weight)?));
                }
                let plan = self.open(plan)?;
                // The node computes the key from its own view of the files. A job that sees other files must not share.
                check_key(plan.shared_key().0, key)?;
                plan.check_shared().map_err(|why| why.to_string())?;
                let starting = self.starting.lock();
                let carousel = self.carousels.get(key, || self.start_carousel(&plan))?;
                drop(starting);
                Ok(Box::new(CarouselServing::join(carousel, route, weight)?))
            }
            Route::Share(_) => {
                let plan = Arc::new(self.open(plan)?);
                check_key(plan.partition_key().0, key)?;
                plan.check_partitioned().map_err(|why| why.to_string())?;
                let starting = self.starting.lock();
                let partition = self.partitions.get(key, || self.start_partition(&plan))?;
                drop(starting);
                let share = partition.start(Arc::clone(&plan), cursor_of(&plan, route)?, weight);
                Ok(Box::new(RankServing::new(plan, share.map_err(|error| chain(&error))?)))
            }
        }
    }

    /// Opens the plan of a job. The node decides how it is executed.
    fn open(&self, plan: &JobPlan) -> Result<Plan, String> {
        let opened = Document::parse(&plan.text).and_then(|mut document| {
            let config = &mut document.config;
            // These settings change no sample. The node decides about them, because its threads and memory serve all jobs.
            (config.num_workers, config.prefetch_batches, config.memory_budget) = (Workers::Auto, None, None);
            document.for_rank(plan.rank).open(&self.registry)
        });
        opened.map_err(|error| format!("the node cannot open the plan: {}", chain(&error)))
    }

    fn start_carousel(&self, plan: &Plan) -> Result<Carousel, String> {
        let free_bytes = self.free_bytes();
        // Half of the free memory first, so that another plan still finds some. All of it only if half is too little.
        let start = |bytes| Carousel::start(plan, &self.machine, Memory::Shared, bytes);
        start(free_bytes / 2).or_else(|_| start(free_bytes)).map_err(|error| chain(&error))
    }

    fn start_partition(&self, plan: &Arc<Plan>) -> Result<Partition, String> {
        let bytes = self.free_bytes() / RANKS_DIVISOR;
        Partition::new(Arc::clone(plan), &self.machine, bytes).map_err(|error| chain(&error))
    }

    /// Unassigned memory in bytes.
    fn free_bytes(&self) -> u64 {
        // Called with `starting` locked, so no other production takes the same memory.
        let carousels: u64 = self.carousels.live().iter().map(|(_, carousel)| carousel.memory_bytes()).sum();
        let partitions: u64 = self.partitions.live().iter().map(|(_, partition)| partition.memory_bytes()).sum();
        self.memory_bytes.saturating_sub(carousels + partitions)
    }

    /// The metrics of all productions.
    pub(super) fn stats(&self) -> Vec<RunStats> {
        let carousels = self.carousels.live().into_iter().map(|(key, run)| stats(key, run.plan(), run.snapshot()));
        let partitions = self.partitions.live().into_iter().map(|(key, run)| {
            let engine = run.snapshot();
            let numbers = CarouselSnapshot {
                jobs: run.ranks(),
                // Ranks have batches, not segments.
                live_segments: 0,
                leased_segments: 0,
                segments: 0,
                segment_bytes: 0,
                live_bytes: run.live_bytes(),
                produced_samples: engine.samples,
                leased_samples: engine.samples,
                leased_per_produced: 1.0,
                engine,
            };
            stats(key, run.plan(), numbers)
        });
        let mut all: Vec<RunStats> = carousels.chain(partitions).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }
}

fn check_key(found: u128, key: u128) -> Result<(), String> {
    let text = "the node finds other samples or ops than the job: files have changed, or the node sees another folder at \
                the same path";
    if found == key { Ok(()) } else { Err(text.to_owned()) }
}

fn stats(key: u128, plan: &Plan, carousel: CarouselSnapshot) -> RunStats {
    RunStats {
        key: key_text(key),
        samples: plan.source().len(),
        folder: folder_of(plan),
        ops: plan.ops().iter().map(|op| op.name().to_string()).collect(),
        world_size: plan.config().rank.world,
        carousel,
    }
}

/// The folder of a source: the one that it names, otherwise that of its first sample.
fn folder_of(plan: &Plan) -> String {
    let mut source: &dyn Source = &**plan.source();
    // A subset or split has no folder of its own. The source that it is part of has one.
    while let Some(parent) = source.parent() {
        source = parent;
    }
    let spec = source.spec().unwrap_or_default();
    let text = |value: &toml::Value| value.as_str().map(str::to_owned);
    if let Some(root) = spec.get("root").and_then(text) {
        return root;
    }
    let shards = spec.get("shards").and_then(|shards| text(shards).or_else(|| text(shards.as_array()?.first()?)));
    // Sources without a folder, such as lists of files, are named after the folder of their first file.
    let first = (!source.is_empty()).then(|| source.address(source.id_at(Ordinal(0)))).flatten();
    let file = shards.or_else(|| first.map(|(path, _)| path));
    let folder = file.and_then(|file| file.rsplit_once('/').map(|(folder, _)| folder.to_owned()));
    folder.or_else(|| spec.get("kind").and_then(text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use feedline_data::testing::{open, write_pictures};

    use super::*;

    #[test]
    fn a_run_is_named_by_the_folder_of_its_data() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("imagenet/train");
        write_pictures(&root, 4, 2).unwrap();
        let root = root.to_str().unwrap();
        let named = |source: &str| {
            let ops = if source.contains("synthetic") { "" } else { "[[ops]]\nop = \"DecodeImage\"\n" };
            folder_of(&open(&format!("batch_size = 1\nragged = [\"image\"]\n[source]\n{source}\n{ops}")).unwrap())
        };
        assert_eq!(named(&format!("kind = \"folder\"\nroot = \"{root}\"")), root);
        let subset = format!("kind = \"subset\"\nindices = [1]\nof = {{ kind = \"folder\", root = \"{root}\" }}");
        assert_eq!(named(&subset), root);
        let file = format!("{root}/class-0/00000.jpg");
        assert_eq!(named(&format!("kind = \"files\"\nfields = {{ image = [\"{file}\"] }}")), format!("{root}/class-0"));
        let plan = open("batch_size = 1\n[source]\nkind = \"synthetic\"\nn = 4\nshape = [2]\n").unwrap();
        assert_eq!(folder_of(&plan), "synthetic");
    }
}
