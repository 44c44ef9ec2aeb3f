//! Which segments are produced, who gets them, and which give way.
//!
//! In: jobs that board, ask, give back and leave; segments that were produced. Out: what to produce next, and leases. A job is
//! given a few segments ahead of the one that it reads: live ones that it needs in a round it has not had, the newest first,
//! because they stay longest; else the one that most other jobs need, produced anew. When there is no room, the oldest that
//! nobody reads gives way. Pure bookkeeping: nothing here runs, waits or looks at the clock.
//!
//! Always true: in an epoch of its own a job gets each segment once, and never the same round of one twice (law 2); there are
//! at most `limit` segments (law 5); one that is leased does not give way; a job that reads nothing keeps no more than what it
//! has leased from the others (law 7).

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::xxh3_64;

use super::{Portion, Ride};
use crate::order::{Epoch, Segments};

/// Segments that a job is given ahead of the one that it reads, so that they are produced before it needs them.
const AHEAD: usize = 2;

/// Segments that a job may have leased at once: the one that it reads, two that it keeps arrays over, one on its way.
const MOST_LEASES: usize = 4;

/// The number of a job at a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Live segments and the jobs that read them.
#[derive(Debug)]
pub struct Ring<T> {
    segments: Segments,
    limit: usize,
    /// By age: numbers are given in the order of production.
    live: BTreeMap<u64, Live<T>>,
    jobs: BTreeMap<JobId, Job>,
    /// The highest round of each segment that anybody has had.
    rounds: Vec<u64>,
    numbers: u64,
}

#[derive(Debug)]
struct Live<T> {
    portion: Portion,
    /// Samples at its beginning that were not produced, because who goes on in it has had them.
    skipped: u64,
    content: Option<T>,
    wanted: BTreeSet<JobId>,
    leased: BTreeSet<JobId>,
}

#[derive(Debug)]
struct Job {
    epoch: Epoch,
    needs: BTreeSet<u64>,
    rounds: Vec<u64>,
    /// What is under way, and how many of its samples were received.
    resume: Option<(Portion, u64)>,
    /// Given and not leased yet, in order.
    given: Vec<Given>,
    /// When it was given something last; smaller is longer ago.
    served: u64,
}

#[derive(Clone, Copy, Debug)]
struct Given {
    number: u64,
    epoch: Epoch,
    /// Set if the job goes on in it.
    resume: Option<(Portion, u64)>,
}

/// Something to be produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// Its number at the ring.
    pub number: u64,
    /// What it is.
    pub portion: Portion,
    /// Samples at its beginning that are left out.
    pub skipped: u64,
}

/// What a job may read until it gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased<T> {
    /// Its number at the ring.
    pub number: u64,
    /// The epoch of the job that it belongs to.
    pub epoch: Epoch,
    /// What it is.
    pub portion: Portion,
    /// Samples at its beginning that are not there.
    pub skipped: u64,
    /// Whether there is so much room that the job may keep arrays over it while it reads others.
    pub can_be_kept: bool,
    /// What was produced.
    pub content: T,
}

impl<T: Clone> Ring<T> {
    /// Nobody is there; at most `limit` segments are live at once.
    pub fn new(segments: Segments, limit: usize) -> Self {
        let rounds = vec![0; segments.count() as usize];
        Self { segments, limit: limit.max(1), live: BTreeMap::new(), jobs: BTreeMap::new(), rounds, numbers: 0 }
    }

    /// Lets a job on, which goes on from where its ride stands.
    pub fn board(&mut self, ride: &Ride) -> JobId {
        self.numbers += 1;
        let job = JobId(self.numbers);
        self.change(job, ride);
        job
    }

    /// Lets a job go on from somewhere else; what it has leased stays its own.
    pub fn change(&mut self, job: JobId, ride: &Ride) {
        self.forget_given(job);
        for (known, had) in self.rounds.iter_mut().zip(&ride.rounds) {
            *known = (*known).max(*had);
        }
        let needs: BTreeSet<u64> = ride.needs(&self.segments).collect();
        let resume = ride.under_way(&self.segments);
        let (epoch, rounds) = (ride.epoch, ride.rounds.clone());
        let mut boarded = Job { epoch, needs, rounds, resume, given: Vec::new(), served: self.numbers };
        boarded.turn_epoch(&self.segments);
        self.jobs.insert(job, boarded);
    }

    /// Lets a job off; all that it had leased is free.
    pub fn leave(&mut self, job: JobId) {
        self.forget_given(job);
        self.jobs.remove(&job);
        for live in self.live.values_mut() {
            live.leased.remove(&job);
        }
    }

    fn forget_given(&mut self, job: JobId) {
        for live in self.live.values_mut() {
            live.wanted.remove(&job);
        }
        if let Some(job) = self.jobs.get_mut(&job) {
            job.given.clear();
        }
    }

    /// Jobs that are on.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.jobs.keys().copied()
    }

    /// Segments that are live or being produced.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Whether another job can be served: there is room for what it reads beside what others hold.
    pub fn has_room_for_job(&self) -> bool {
        let held = self.live.values().filter(|live| !live.leased.is_empty()).count();
        held + 2 <= self.limit
    }

    /// Gives jobs segments as far as there is room, those first that have the fewest; says what has to be produced for it.
    pub fn give(&mut self) -> Vec<Ordered> {
        let mut ordered = Vec::new();
        for given in 0..AHEAD {
            let poor = self.jobs.iter().filter(|(_, job)| job.given.len() == given);
            let mut poor: Vec<(u64, JobId)> = poor.map(|(id, job)| (job.served, *id)).collect();
            poor.sort_unstable();
            for (_, job) in poor {
                ordered.extend(self.give_to(job));
            }
        }
        ordered
    }

    fn give_to(&mut self, id: JobId) -> Option<Ordered> {
        let job = &self.jobs[&id];
        if let Some((portion, received)) = job.resume {
            let same = self.live.iter().find(|(_, live)| live.portion == portion && live.skipped <= received);
            let number = same.map(|(number, _)| *number);
            let ordered = if number.is_none() { Some(self.order(id, portion, received)?) } else { None };
            let number = number.or(ordered.map(|ordered| ordered.number))?;
            self.assign(id, number);
            return ordered;
        }
        let is_new = |live: &Live<T>| {
            let Portion { segment, round } = live.portion;
            live.skipped == 0
                && !live.wanted.contains(&id)
                && job.needs.contains(&segment)
                && round > job.rounds[segment as usize]
        };
        let newest = self.live.iter().rev().find(|(_, live)| is_new(live));
        if let Some((&number, _)) = newest {
            self.assign(id, number);
            return None;
        }
        let segment = self.most_needed(id)?;
        let portion = Portion { segment, round: self.rounds[segment as usize] + 1 };
        let ordered = self.order(id, portion, 0)?;
        self.assign(id, ordered.number);
        Some(ordered)
    }

    /// The segment of those that a job needs which most others need too; of several the one that chance, by count, decides on.
    fn most_needed(&self, id: JobId) -> Option<u64> {
        let others = |segment: &u64| {
            self.jobs.iter().filter(|(other, job)| **other != id && job.needs.contains(segment)).count()
        };
        let chance = |segment: &u64| xxh3_64([self.numbers, *segment].map(u64::to_le_bytes).as_flattened());
        self.jobs[&id].needs.iter().copied().max_by_key(|segment| (others(segment), chance(segment)))
    }

    /// Makes room for a portion and books that it is to be produced.
    fn order(&mut self, job: JobId, portion: Portion, skipped: u64) -> Option<Ordered> {
        while self.live.len() >= self.limit {
            self.make_room(job)?;
        }
        self.numbers += 1;
        let number = self.numbers;
        let (wanted, leased) = (BTreeSet::new(), BTreeSet::new());
        self.live.insert(number, Live { portion, skipped, content: None, wanted, leased });
        let known = &mut self.rounds[portion.segment as usize];
        *known = (*known).max(portion.round);
        Some(Ordered { number, portion, skipped })
    }

    /// Lets the oldest segment go that nobody reads: one that nobody wants or, for a job that has nothing at all, one that was
    /// only given ahead.
    fn make_room(&mut self, job: JobId) -> Option<()> {
        let reads = |job: &JobId| self.live.values().any(|live| live.leased.contains(job));
        // What a job that reads nothing will read first is as good as leased.
        let is_first = |number: u64, job: &JobId| {
            !reads(job)
                && self.jobs.get(job).and_then(|job| job.given.first()).is_some_and(|given| given.number == number)
        };
        let is_starving = self.jobs[&job].given.is_empty() && !reads(&job);
        let is_read = |live: &Live<T>| live.content.is_none() || !live.leased.is_empty();
        let unwanted = self.live.iter().find(|(_, live)| !is_read(live) && live.wanted.is_empty());
        let is_spare = |number: u64, live: &Live<T>| {
            is_starving && !is_read(live) && !live.wanted.iter().any(|job| is_first(number, job))
        };
        let unread = || self.live.iter().find(|(number, live)| is_spare(**number, live));
        let number = *unwanted.or_else(unread)?.0;
        let gone = self.live.remove(&number)?;
        for wanting in gone.wanted {
            self.take_back(wanting, number, gone.portion.segment);
        }
        Some(())
    }

    /// Lets a job need again what it was given, and what it was given to come after that.
    fn take_back(&mut self, id: JobId, number: u64, segment: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(place) = job.given.iter().position(|given| given.number == number) else { return };
        let taken = job.given.remove(place);
        if taken.epoch < job.epoch {
            job.epoch = taken.epoch;
            job.needs.clear();
        }
        // What it goes on in comes before everything else.
        for given in job.given.extract_if(.., |given| given.epoch > taken.epoch || taken.resume.is_some()) {
            let Some(live) = self.live.get_mut(&given.number) else { continue };
            live.wanted.remove(&id);
            if given.epoch == taken.epoch {
                job.needs.insert(live.portion.segment);
            }
        }
        match taken.resume {
            Some(resume) => job.resume = Some(resume),
            None => {
                job.needs.insert(segment);
            }
        }
    }

    fn assign(&mut self, id: JobId, number: u64) {
        let (Some(live), Some(job)) = (self.live.get_mut(&number), self.jobs.get_mut(&id)) else { return };
        live.wanted.insert(id);
        job.served = self.numbers;
        job.given.push(Given { number, epoch: job.epoch, resume: job.resume.take() });
        job.needs.remove(&live.portion.segment);
        job.turn_epoch(&self.segments);
    }

    /// Books what was produced.
    pub fn publish(&mut self, number: u64, content: T) {
        if let Some(live) = self.live.get_mut(&number) {
            live.content = Some(content);
        }
    }

    /// The next segment for a job to read, if one is there: of those that it was given in the epoch under way, the first.
    pub fn lease(&mut self, id: JobId) -> Option<Leased<T>> {
        if self.live.values().filter(|live| live.leased.contains(&id)).count() >= MOST_LEASES {
            return None;
        }
        let can_be_kept = self.limit >= self.jobs.len() * (MOST_LEASES - 1) + 2;
        let job = self.jobs.get_mut(&id)?;
        let Given { epoch, resume, .. } = *job.given.first()?;
        // What was under way comes first.
        let choices = if resume.is_some() { 1 } else { job.given.len() };
        let of_epoch = job.given.iter().take(choices).take_while(|given| given.epoch == epoch);
        let place = of_epoch.enumerate().find(|(_, given)| self.live[&given.number].content.is_some())?.0;
        let number = job.given.remove(place).number;
        let live = self.live.get_mut(&number)?;
        live.wanted.remove(&id);
        live.leased.insert(id);
        let Live { portion, skipped, .. } = *live;
        let had = &mut job.rounds[portion.segment as usize];
        *had = (*had).max(portion.round);
        Some(Leased { number, epoch, portion, skipped, can_be_kept, content: live.content.clone()? })
    }

    /// A job has read a segment, and holds nothing of it any more.
    pub fn give_back(&mut self, job: JobId, number: u64) {
        if let Some(live) = self.live.get_mut(&number) {
            live.leased.remove(&job);
        }
    }
}

impl Job {
    /// Begins the next epoch if nothing of this one is left to be given.
    fn turn_epoch(&mut self, segments: &Segments) {
        if self.needs.is_empty() && self.resume.is_none() {
            self.epoch.0 += 1;
            self.needs = (0..segments.count()).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Seed;
    use proptest::prelude::*;

    /// What one job has been through, checked at each step.
    #[derive(Debug)]
    struct Passenger {
        id: JobId,
        ride: Ride,
        had: BTreeSet<Portion>,
        /// What it holds: number and how many of its samples are still to come.
        holds: Option<(u64, u64)>,
    }

    /// A ring, its jobs and what is being produced.
    struct Model {
        ring: Ring<Portion>,
        segments: Segments,
        producing: Vec<Ordered>,
        passengers: Vec<Passenger>,
        produced: u64,
    }

    impl Model {
        fn new(samples: u64, limit: usize) -> Self {
            let segments = Segments::new(Seed(1), samples, 1);
            let ring = Ring::new(segments, limit);
            Self { ring, segments, producing: Vec::new(), passengers: Vec::new(), produced: 0 }
        }

        fn len(&self, portion: Portion) -> u64 {
            let positions = self.segments.positions(portion.segment);
            positions.end - positions.start
        }

        fn board(&mut self, ride: Ride, had: BTreeSet<Portion>) {
            let id = self.ring.board(&ride);
            self.passengers.push(Passenger { id, ride, had, holds: None });
            self.give();
        }

        fn give(&mut self) {
            let ordered = self.ring.give();
            self.produced += ordered.len() as u64;
            self.producing.extend(ordered);
            assert!(self.ring.live() <= self.ring.limit, "{} segments", self.ring.live());
        }

        fn publish(&mut self, which: usize) {
            if !self.producing.is_empty() {
                let ordered = self.producing.remove(which % self.producing.len());
                self.ring.publish(ordered.number, ordered.portion);
                self.give();
            }
        }

        /// A job takes a segment, or some samples of the one that it holds.
        fn read(&mut self, which: usize, samples: u64) -> bool {
            let which = which % self.passengers.len();
            let id = self.passengers[which].id;
            if let Some((number, left)) = self.passengers[which].holds {
                let taken = samples.clamp(1, left);
                let passenger = &mut self.passengers[which];
                passenger.ride.received += taken;
                passenger.holds = (left > taken).then_some((number, left - taken));
                if left == taken {
                    if passenger.ride.received == self.segments.samples() {
                        passenger.ride.jump(Epoch(passenger.ride.epoch.0 + 1));
                    }
                    self.ring.give_back(id, number);
                    self.give();
                }
                return true;
            }
            let Some(leased) = self.ring.lease(id) else { return false };
            let len = self.len(leased.portion);
            let passenger = &mut self.passengers[which];
            assert_eq!(leased.content, leased.portion);
            assert_eq!(leased.epoch, passenger.ride.epoch);
            let under_way = passenger.ride.under_way(&self.segments);
            let received = if let Some((portion, received)) = under_way {
                assert_eq!(leased.portion, portion, "what was under way comes first");
                assert!(leased.skipped <= received);
                received
            } else {
                let again = passenger.ride.order.iter().any(|p| p.segment == leased.portion.segment);
                assert!(!again, "a segment comes once in an epoch");
                assert!(passenger.had.insert(leased.portion), "a round of a segment comes once");
                assert_eq!(leased.skipped, 0);
                passenger.ride.begin(leased.portion);
                0
            };
            passenger.holds = Some((leased.number, len - received));
            self.give();
            true
        }

        /// A job is gone, and comes back later from its last state.
        fn crash(&mut self, which: usize) -> (Ride, BTreeSet<Portion>) {
            let Passenger { id, ride, had, .. } = self.passengers.remove(which % self.passengers.len());
            self.ring.leave(id);
            self.give();
            (ride, had)
        }
    }

    #[test]
    fn law_7_who_asks_for_more_than_he_reads_gets_no_more_and_others_are_turned_away_in_time() {
        let mut model = Model::new(512, 5);
        model.board(new_ride(&model), BTreeSet::new());
        let id = model.passengers[0].id;
        let mut leases = 0;
        for _ in 0..50 {
            model.publish(0);
            leases += usize::from(model.ring.lease(id).is_some());
            model.give();
        }
        assert_eq!(leases, MOST_LEASES);
        assert!(!model.ring.has_room_for_job());
        model.ring.leave(id);
        assert!(model.ring.has_room_for_job());
    }

    fn new_ride(model: &Model) -> Ride {
        Ride::new(&model.segments)
    }

    proptest! {
        #[test]
        fn law_2_whatever_jobs_do_each_gets_every_segment_once_an_epoch_and_no_round_twice(
            samples in 8..100_u64, limit in 1..8_usize, steps in prop::collection::vec((0..12_u8, any::<usize>(), 1..20_u64), 1..200),
        ) {
            let mut model = Model::new(samples, limit);
            let mut away = Vec::new();
            model.board(new_ride(&model), BTreeSet::new());
            for (step, which, count) in steps {
                match step {
                    0 if model.passengers.len() < 6 => {
                        let (ride, had) = away.pop().unwrap_or_else(|| (new_ride(&model), BTreeSet::new()));
                        model.board(ride, had);
                    }
                    1 if model.passengers.len() > 1 => away.push(model.crash(which)),
                    2..=5 => model.publish(which),
                    _ => {
                        model.read(which, count);
                    }
                }
            }
            // Nobody waits for ever: when all that is held is given back, everybody goes on.
            for job in 0..model.passengers.len() {
                let goal = model.passengers[job].ride.epoch.0 + 2;
                let mut turns = 0;
                while model.passengers[job].ride.epoch.0 < goal {
                    turns += 1;
                    prop_assert!(turns < 20_000, "job {} does not get on: {:?}", job, model.ring);
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
        model.board(new_ride(&model), BTreeSet::new());
        model.publish(0);
        assert!(model.read(0, 1), "it holds a segment from now on, and never reads on");
        model.board(new_ride(&model), BTreeSet::new());
        for _ in 0..1000 {
            model.publish(0);
            model.read(1, 1000);
        }
        assert!(model.passengers[1].ride.epoch.0 > 10, "{:?}", model.passengers[1].ride.epoch);
    }

    #[test]
    fn equal_jobs_are_served_by_one_production() {
        let mut model = Model::new(512, 12);
        (0..9).for_each(|_| model.board(new_ride(&model), BTreeSet::new()));
        while model.passengers.iter().any(|passenger| passenger.ride.epoch.0 < 4) {
            model.publish(0);
            for job in 0..9 {
                model.read(job, 8);
            }
        }
        let epochs = model.produced as f64 / model.segments.count() as f64;
        assert!(epochs < 4.7, "{epochs} epochs were produced for 36");
    }
}
