//! Jobs that share one production: exactly once for each, whatever the others do.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use feedline_data::batch::{Batch, FieldData};
use feedline_data::plan::Plan;
use feedline_data::testing::open;
use feedline_engine::carousel::{Carousel, Memory};
use feedline_engine::loader::{Feed, Loader, LocalFeed, Next};
use feedline_engine::machine::Machine;
use feedline_engine::state::{JobProgress, JobProgressState};

const SAMPLES: u64 = 200;
const PATIENCE: Duration = Duration::from_mins(1);

fn plan(settings: &str) -> Arc<Plan> {
    open(&format!(
        "batch_size = 16\nshuffle = true\n{settings}\n[source]\nkind = \"synthetic\"\nn = {SAMPLES}\nshape = [24, 24, 3]\n\
         [[ops]]\nop = \"RandomCrop\"\nsize = 8\non = \"data\"\n"
    ))
    .unwrap()
}

fn carousel(plan: &Plan) -> Arc<Carousel> {
    Arc::new(Carousel::start(plan, &Machine::default(), Memory::Heap, 1 << 20).unwrap())
}

fn job(plan: &Arc<Plan>, carousel: &Arc<Carousel>) -> Loader {
    let carousel = Arc::clone(carousel);
    let connect = Box::new(move |job_progress: &JobProgress| {
        Ok(Arc::new(LocalFeed::join(&carousel, job_progress)?) as Arc<dyn Feed>)
    });
    Loader::shared(plan, connect, None).unwrap()
}

fn next(loader: &Loader, iteration: feedline_engine::loader::Iteration) -> Option<Batch> {
    assert!(loader.wait_within(iteration, PATIENCE).unwrap(), "no batch within {PATIENCE:?}");
    match loader.take(iteration).unwrap() {
        Next::Batch(batch) => Some(*batch),
        Next::End => None,
        Next::NotYet => panic!("a batch that was ready is gone"),
    }
}

fn epoch(loader: &Loader) -> Vec<Batch> {
    let iteration = loader.begin().unwrap();
    std::iter::from_fn(|| next(loader, iteration)).collect()
}

fn ids(batches: &[Batch]) -> Vec<i64> {
    batches.iter().flat_map(Batch::ids).collect()
}

fn bytes(batch: &Batch) -> Vec<u8> {
    batch.field("data").map(FieldData::bytes).unwrap().to_vec()
}

#[test]
fn law_2_jobs_of_other_speeds_batch_sizes_and_starts_see_every_sample_once_an_epoch() {
    let plans: Vec<_> = [16, 24, 50, 7]
        .iter()
        .map(|size| {
            plan("")
                .document()
                .map(|mut document| {
                    document.settings.batch_size = *size;
                    document.settings.seed = feedline_order::Seed(*size as u64);
                    Arc::new(document.open(&feedline_data::plan::Registry::core()).unwrap())
                })
                .unwrap()
        })
        .collect();
    let carousel = carousel(&plans[0]);
    std::thread::scope(|scope| {
        for (number, plan) in plans.iter().enumerate() {
            let carousel = &carousel;
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(7 * number as u64));
                let loader = job(plan, carousel);
                for _ in 0..4 {
                    let batches = epoch(&loader);
                    let seen: BTreeSet<i64> = ids(&batches).into_iter().collect();
                    assert!(seen.into_iter().eq(0..SAMPLES as i64));
                    assert_eq!(ids(&batches).len() as u64, SAMPLES);
                    assert!(batches[..batches.len() - 1].iter().all(|b| b.len == plan.settings().batch_size));
                    std::thread::sleep(Duration::from_millis(3 * number as u64));
                }
            });
        }
    });
}

#[test]
fn law_1_what_a_job_gets_is_what_its_round_says_whoever_asked_for_it() {
    let plan = plan("");
    let values = || -> Vec<BTreeMap<i64, Vec<u8>>> {
        let loader = job(&plan, &carousel(&plan));
        let samples = |batch: &Batch| {
            let all = bytes(batch);
            let each = all.chunks(all.len() / batch.len).map(<[u8]>::to_vec);
            batch.ids().into_iter().zip(each).collect::<Vec<_>>()
        };
        (0..3).map(|_| epoch(&loader).iter().flat_map(samples).collect()).collect()
    };
    // A job that is alone gets rounds 1, 2, 3, in whatever order of segments.
    let (one, other) = (values(), values());
    assert!(one == other);
    assert!(one[0] != one[1] && one[1] != one[2], "draws are new in each round");
}

#[test]
fn law_4_a_job_resumes_at_every_batch_with_another_carousel_and_gets_precisely_the_rest() {
    let plan = plan("");
    for taken in 0..=13 {
        let loader = job(&plan, &carousel(&plan));
        let iteration = loader.begin().unwrap();
        let before: Vec<Batch> = (0..taken).map_while(|_| next(&loader, iteration)).collect();
        let state = loader.state();
        let rest = rest_of_segment(&plan, state.job_progress().unwrap());
        let next_here = if rest > 0 { next(&loader, iteration) } else { None };
        drop(loader);
        let other = carousel(&plan);
        let resumed = job(&plan, &other);
        resumed.load_state(&state).unwrap();
        let after = epoch(&resumed);
        if let Some(expected) = next_here {
            let (same, each) = (rest.min(expected.len), bytes(&expected).len() / expected.len);
            assert_eq!(after[0].ids()[..same], expected.ids()[..same], "the segment under way goes on in its order");
            assert!(bytes(&after[0])[..same * each] == bytes(&expected)[..same * each], "with the same bytes");
        }
        let mut all = ids(&before);
        all.extend(ids(&after));
        // At the end of an epoch a state is the beginning of the next.
        let expected = if taken == 13 { 2 * SAMPLES } else { SAMPLES };
        assert_eq!(all.len() as u64, expected, "{taken} batches before");
        all.sort_unstable();
        all.dedup();
        assert!(all.into_iter().eq(0..SAMPLES as i64), "{taken} batches before");
    }
}

/// Samples of the segment under way that were not received.
fn rest_of_segment(plan: &Plan, state: &JobProgressState) -> usize {
    let begun: u64 =
        state.order.iter().map(|segment_round| plan.segments().positions(segment_round.segment).count() as u64).sum();
    (begun - state.received) as usize
}

#[test]
fn law_5_delivered_batches_stay_as_they_are_however_many_a_job_keeps() {
    let plan = plan("");
    let carousel = carousel(&plan);
    let loader = job(&plan, &carousel);
    let kept: Vec<Batch> = (0..3).flat_map(|_| epoch(&loader)).collect();
    let copies: Vec<Vec<u8>> = kept.iter().map(bytes).collect();
    let others = job(&plan, &carousel);
    (0..3).for_each(|_| drop(epoch(&others)));
    assert!(kept.iter().map(bytes).eq(copies));
}

#[test]
fn one_production_serves_jobs_that_run_together() {
    let plan = plan("");
    let carousel = carousel(&plan);
    let jobs: Vec<Loader> = (0..4).map(|_| job(&plan, &carousel)).collect();
    std::thread::scope(|scope| {
        for loader in &jobs {
            scope.spawn(move || {
                for _ in 0..5 {
                    for batch in epoch(loader) {
                        std::thread::sleep(Duration::from_millis(2));
                        drop(batch);
                    }
                }
            });
        }
    });
    let snapshot = carousel.snapshot();
    assert!(snapshot.leased_samples >= 20 * SAMPLES);
    assert!(snapshot.produced_samples < 10 * SAMPLES, "{} samples for 20 epochs", snapshot.produced_samples);
}
