//! Tests the scheduler against a model: jobs join, read, crash and return in any order.

use feedline_order::Seed;
use proptest::prelude::*;

use super::*;

/// The history of one job, checked at each step.
#[derive(Debug)]
struct Passenger {
    id: JobId,
    job_progress: JobProgress,
    had: BTreeSet<SegmentRound>,
    /// The segment it holds: its number, and how many samples are unread.
    holds: Option<(u64, u64)>,
}

/// A scheduler, its jobs and the segments in production.
struct Model {
    scheduler: SegmentScheduler<SegmentRound>,
    segments: Segments,
    producing: Vec<ProductionOrder>,
    passengers: Vec<Passenger>,
    produced: u64,
}

impl Model {
    fn new(samples: u64, limit: usize) -> Self {
        let segments = Segments::new(Seed(1), samples, 1);
        let scheduler = SegmentScheduler::new(segments.clone(), limit);
        Self { scheduler, segments, producing: Vec::new(), passengers: Vec::new(), produced: 0 }
    }

    fn len(&self, segment_round: SegmentRound) -> u64 {
        let positions = self.segments.positions(segment_round.segment);
        positions.end - positions.start
    }

    fn join(&mut self, job_progress: JobProgress, had: BTreeSet<SegmentRound>) {
        let id = self.scheduler.join(&job_progress);
        self.passengers.push(Passenger { id, job_progress, had, holds: None });
        self.assign_ahead();
    }

    fn assign_ahead(&mut self) {
        let ordered = self.scheduler.assign_ahead();
        self.produced += ordered.len() as u64;
        self.producing.extend(ordered);
        assert!(self.scheduler.live() <= self.scheduler.limit, "{} segments", self.scheduler.live());
    }

    fn publish(&mut self, which: usize) {
        if !self.producing.is_empty() {
            let ordered = self.producing.remove(which % self.producing.len());
            self.scheduler.publish(ordered.number, ordered.segment_round);
            self.assign_ahead();
        }
    }

    /// A job takes a segment, or reads some samples of the one it holds.
    fn read(&mut self, which: usize, samples: u64) -> bool {
        let which = which % self.passengers.len();
        let id = self.passengers[which].id;
        if let Some((number, left)) = self.passengers[which].holds {
            let taken = samples.clamp(1, left);
            let passenger = &mut self.passengers[which];
            passenger.job_progress.received += taken;
            passenger.holds = (left > taken).then_some((number, left - taken));
            if left == taken {
                if passenger.job_progress.received == self.segments.samples() {
                    passenger.job_progress.jump(Epoch(passenger.job_progress.epoch.0 + 1));
                }
                self.scheduler.give_back(id, number);
                self.assign_ahead();
            }
            return true;
        }
        let Some(leased) = self.scheduler.lease(id) else { return false };
        let len = self.len(leased.segment_round);
        let passenger = &mut self.passengers[which];
        assert_eq!(leased.content, leased.segment_round);
        assert_eq!(leased.epoch, passenger.job_progress.epoch);
        let under_way = passenger.job_progress.under_way(&self.segments);
        let received = if let Some((segment_round, received)) = under_way {
            assert_eq!(leased.segment_round, segment_round, "what was under way comes first");
            assert!(leased.skipped <= received);
            received
        } else {
            let again = passenger.job_progress.order.iter().any(|p| p.segment == leased.segment_round.segment);
            assert!(!again, "a segment comes once in an epoch");
            assert!(passenger.had.insert(leased.segment_round), "a round of a segment comes once");
            let before = passenger.job_progress.rounds[leased.segment_round.segment as usize];
            assert!(leased.segment_round.round > before, "rounds of a segment come in their order");
            assert_eq!(leased.skipped, 0);
            passenger.job_progress.begin(leased.segment_round);
            0
        };
        passenger.holds = Some((leased.number, len - received));
        self.assign_ahead();
        true
    }

    /// A job crashes. It will return from its last state.
    fn crash(&mut self, which: usize) -> (JobProgress, BTreeSet<SegmentRound>) {
        let Passenger { id, job_progress, had, .. } = self.passengers.remove(which % self.passengers.len());
        self.scheduler.leave(id);
        self.assign_ahead();
        (job_progress, had)
    }
}

#[test]
fn law_7_who_asks_for_more_than_he_reads_gets_no_more_and_others_are_turned_away_in_time() {
    let mut model = Model::new(512, 5);
    model.join(new_progress(&model), BTreeSet::new());
    let id = model.passengers[0].id;
    let mut leases = 0;
    for _ in 0..50 {
        model.publish(0);
        leases += usize::from(model.scheduler.lease(id).is_some());
        model.assign_ahead();
    }
    assert_eq!(leases, MAX_LEASES);
    assert!(!model.scheduler.has_room_for_job());
    model.scheduler.leave(id);
    assert!(model.scheduler.has_room_for_job());
}

fn new_progress(model: &Model) -> JobProgress {
    JobProgress::new(&model.segments)
}

proptest! {
    #[test]
    fn law_2_whatever_jobs_do_each_gets_every_segment_once_an_epoch_and_no_round_twice(
        samples in 8..100_u64, limit in 1..8_usize, steps in prop::collection::vec((0..12_u8, any::<usize>(), 1..20_u64), 1..200),
    ) {
        let mut model = Model::new(samples, limit);
        let mut away = Vec::new();
        model.join(new_progress(&model), BTreeSet::new());
        for (step, which, count) in steps {
            match step {
                0 if model.passengers.len() < 6 => {
                    let (job_progress, had) = away.pop().unwrap_or_else(|| (new_progress(&model), BTreeSet::new()));
                    model.join(job_progress, had);
                }
                1 if model.passengers.len() > 1 => away.push(model.crash(which)),
                2..=5 => model.publish(which),
                _ => {
                    model.read(which, count);
                }
            }
        }
        // No job waits for ever: once all held segments are given back, every job continues.
        for job in 0..model.passengers.len() {
            let goal = model.passengers[job].job_progress.epoch.0 + 2;
            let mut turns = 0;
            while model.passengers[job].job_progress.epoch.0 < goal {
                turns += 1;
                prop_assert!(turns < 20_000, "job {} does not get on: {:?}", job, model.scheduler);
                model.publish(0);
                if !model.read(job, 1000) {
                    for other in 0..model.passengers.len() {
                        model.read(other, 1000);
                    }
                }
            }
        }
    }
}

#[test]
fn law_7_a_job_that_reads_nothing_holds_nobody_up() {
    let mut model = Model::new(64, 3);
    model.join(new_progress(&model), BTreeSet::new());
    model.publish(0);
    assert!(model.read(0, 1), "it holds a segment from now on, and never reads on");
    model.join(new_progress(&model), BTreeSet::new());
    for _ in 0..1000 {
        model.publish(0);
        model.read(1, 1000);
    }
    assert!(model.passengers[1].job_progress.epoch.0 > 10, "{:?}", model.passengers[1].job_progress.epoch);
}

#[test]
fn equal_jobs_are_served_by_one_production() {
    let mut model = Model::new(512, 12);
    (0..9).for_each(|_| model.join(new_progress(&model), BTreeSet::new()));
    while model.passengers.iter().any(|passenger| passenger.job_progress.epoch.0 < 4) {
        model.publish(0);
        for job in 0..9 {
            model.read(job, 8);
        }
    }
    let epochs = model.produced as f64 / model.segments.count() as f64;
    assert!(epochs < 4.7, "{epochs} epochs were produced for 36");
}

#[test]
fn law_7_an_idle_job_stops_nobody_where_segments_are_short() {
    for limit in 3..14 {
        let mut model = Model::new(24, limit);
        let idle = model.scheduler.join(&new_progress(&model));
        model.assign_ahead();
        model.publish(0);
        assert!(model.scheduler.lease(idle).is_some(), "it reads on no more");
        let active = model.scheduler.join(&new_progress(&model));
        let (mut held, mut taken) = (None, 0);
        for _ in 0..500 {
            model.assign_ahead();
            model.publish(0);
            // Its last batch exists until it has the next one.
            if let Some(leased) = model.scheduler.lease(active) {
                taken += 1;
                if let Some(before) = held.replace(leased.number) {
                    model.scheduler.give_back(active, before);
                }
            }
        }
        assert!(taken > 3 * model.segments.count(), "{taken} segments with room for {limit}");
    }
}

#[test]
fn law_5_a_segment_that_is_leased_twice_is_free_when_both_are_given_back() {
    let mut model = Model::new(64, 4);
    let job = model.scheduler.join(&new_progress(&model));
    model.assign_ahead();
    model.publish(0);
    let first = model.scheduler.lease(job).unwrap();
    let mut job_progress = new_progress(&model);
    job_progress.begin(first.segment_round);
    job_progress.received = 1;
    model.scheduler.change(job, &job_progress);
    model.assign_ahead();
    let again = model.scheduler.lease(job).unwrap();
    assert_eq!((again.number, again.segment_round), (first.number, first.segment_round));
    model.scheduler.give_back(job, first.number);
    assert_eq!(model.scheduler.leased(), 1, "it is read once more");
    model.scheduler.give_back(job, again.number);
    assert_eq!(model.scheduler.leased(), 0);
    assert!(model.scheduler.leave(job).is_empty());
}
