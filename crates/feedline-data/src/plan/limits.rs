//! Upper limits of the numbers in a plan.
//!
//! They are checked once, when a plan is made. Afterwards positions (samples of a rank x world size), received samples (batches x
//! batch size) and the bytes of a batch fit in 64 bits. Parameters of ops have their limits in `op/`.

use feedline_order::{Rank, Sampler};

use super::{PlanError, ReservoirSize, RunConfig, Settings, Shuffle};

/// Samples of a source, and of an epoch.
pub const MAX_SAMPLES: u64 = 1 << 48;
/// Samples of an epoch whose order is held in memory: with a sampler, in planned order, in a replay.
pub(crate) const MAX_LISTED: u64 = 1 << 30;
/// Samples of a batch.
pub const MAX_BATCH_SIZE: u64 = 1 << 22;
/// Bytes of the arrays of a batch.
pub const MAX_BATCH_BYTES: u64 = 1 << 40;
/// Ranks that share an epoch.
pub const MAX_WORLD_SIZE: u64 = 1 << 20;
/// Threads that prepare samples.
pub const MAX_WORKERS: u64 = 4096;
/// Batches prepared ahead.
pub(crate) const MAX_PREFETCH_BATCHES: u64 = 1 << 16;
/// Bytes of a budget or of a cache.
pub const MAX_BYTES: u64 = 1 << 60;
/// Ops of a plan.
pub(crate) const MAX_OPS: u64 = 1024;

/// Rejects a number above its limit.
pub fn check(setting: &'static str, value: u64, most: u64) -> Result<(), PlanError> {
    if value <= most { Ok(()) } else { Err(PlanError::Limit { setting, value, most }) }
}

/// Checks all numbers of a plan against their limits.
pub(super) fn check_numbers(
    samples: u64,
    ops: usize,
    settings: &Settings,
    config: &RunConfig,
    rank: Rank,
) -> Result<(), PlanError> {
    check("the number of samples", samples, MAX_SAMPLES)?;
    check("the number of ops", ops as u64, MAX_OPS)?;
    check("batch_size", settings.batch_size as u64, MAX_BATCH_SIZE)?;
    check("max_displacement", settings.max_displacement.unwrap_or(0), MAX_SAMPLES)?;
    check("world_size", rank.world.into(), MAX_WORLD_SIZE)?;
    check("num_workers", config.num_workers.count() as u64, MAX_WORKERS)?;
    check("prefetch_batches", config.prefetch_batches.unwrap_or(0) as u64, MAX_PREFETCH_BATCHES)?;
    check("memory_budget", config.memory_budget.map_or(0, |bytes| bytes.0), MAX_BYTES)?;
    if let Some(cache) = &config.cache {
        check("ram of the cache", cache.ram.map_or(0, |bytes| bytes.0), MAX_BYTES)?;
        check("disk of the cache", cache.disk.map_or(0, |bytes| bytes.0), MAX_BYTES)?;
    }
    if let Some(Sampler::Weighted { num_samples, .. } | Sampler::ClassBalanced { num_samples }) = &settings.sampler {
        check("num_samples", num_samples.unwrap_or(0), MAX_LISTED)?;
    }
    // A fraction needs no check here: it is at most 1.
    if let Shuffle::Reservoir(reservoir) = &settings.shuffle {
        check("block", reservoir.block.0, MAX_BYTES)?;
        if let Some(ReservoirSize::Samples(samples)) = reservoir.size {
            check("size of the reservoir", samples, MAX_LISTED)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::open;

    fn refusal(settings: &str, run: &str) -> String {
        let text = format!(
            "{settings}\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [1]\n[run]\n{run}\n",
            settings = if settings.contains("batch_size") {
                settings.to_owned()
            } else {
                format!("batch_size = 2\n{settings}")
            },
        );
        open(&text).map_or_else(|error| error.to_string(), |_| "accepted".to_owned())
    }

    #[test]
    fn each_number_has_a_limit_that_the_error_names() {
        let large = i64::MAX;
        for (settings, run, name) in [
            (format!("batch_size = {large}"), String::new(), "batch_size"),
            (format!("order = \"planned\"\nmax_displacement = {large}"), String::new(), "max_displacement"),
            (
                format!("sampler = {{ kind = \"weighted\", weights = [1,1,1,1,1,1,1,1,1,1], num_samples = {large} }}"),
                String::new(),
                "num_samples",
            ),
            (format!("shuffle = {{ kind = \"reservoir\", size = {large} }}"), String::new(), "size of the reservoir"),
            (String::new(), format!("num_workers = {large}"), "num_workers"),
            (String::new(), format!("prefetch_batches = {large}"), "prefetch_batches"),
            (String::new(), format!("memory_budget = {large}"), "memory_budget"),
            (String::new(), format!("cache = {{ ram = {large} }}"), "ram of the cache"),
        ] {
            let refused = refusal(&settings, &run);
            assert!(refused.starts_with(&format!("{name} is ")) && refused.contains("at most"), "{name}: {refused}");
        }
        let plan = open("batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [1]\n").unwrap();
        let refused = plan.for_rank(Rank { rank: 0, world: u32::MAX }).unwrap_err().to_string();
        assert!(refused.starts_with("world_size is ") && refused.contains("at most"), "{refused}");
    }

    #[test]
    fn sources_and_batches_have_limits_too() {
        let of = |n: u64, shape: &str| {
            let text = format!("batch_size = 1000\n[source]\nkind = \"synthetic\"\nn = {n}\nshape = {shape}\n");
            open(&text).map_or_else(|error| error.to_string(), |_| "accepted".to_owned())
        };
        assert!(of(1 << 60, "[1]").contains("at most"));
        assert!(of(1000, "[1000000, 1000000]").contains("at most"));
        assert_eq!(of(1 << 40, "[3, 224, 224]"), "accepted");
    }
}
