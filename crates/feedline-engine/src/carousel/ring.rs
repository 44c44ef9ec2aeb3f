//! Which segments are produced, who gets them, and which give way.
//!
//! In: jobs that board, ask, give back and leave; segments that were produced. Out: what to produce next, and leases. A job is
//! given a few segments ahead of the one that it reads: live ones that it needs in a round it has not had, the newest first,
//! because they stay longest; else the one that most other jobs need, produced anew. A segment shorter than the others comes
//! last where there is a choice, because batches after it run across the ends of segments. When there is no room, the oldest
//! that nobody reads gives way. Pure bookkeeping: nothing here runs, waits or looks at the clock.
//!
//! Always true: in an epoch of its own a job gets each segment once, and never the same round of one twice (law 2); there are
//! at most `limit` segments (law 5); one that is leased does not give way; a job that reads nothing keeps no more than what it
//! has leased from the others (law 7).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use feedline_order::{Epoch, Segments};
use xxhash_rust::xxh3::xxh3_64;

use crate::state::{JobProgress, SegmentRound};

/// Segments that a job is given ahead of the one that it reads, so that they are produced before it needs them: so many, or more
/// where they are short, for as many samples.
const AHEAD: Range<usize> = 2..8;
const SAMPLES_AHEAD: u64 = 16;

/// Segments that a job may have leased at once: the one that it reads, two that it keeps arrays over, one on its way.
const MOST_LEASES: usize = 4;

/// Segments that stay for jobs which may come, though all that are there have had them.
const SPARE: usize = 4;

/// The number of a job at a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Live segments and the jobs that read them.
#[derive(Debug)]
pub(super) struct Ring<T> {
    segments: Segments,
    limit: usize,
    ahead: usize,
    /// By age: numbers are given in the order of production.
    live: BTreeMap<u64, Live<T>>,
    jobs: BTreeMap<JobId, RingJob>,
    /// The highest round of each segment that anybody has had.
    rounds: Vec<u64>,
    numbers: u64,
}

#[derive(Debug)]
struct Live<T> {
    segment_round: SegmentRound,
    /// Samples at its beginning that were not produced, because who goes on in it has had them.
    skipped: u64,
    content: Option<T>,
    wanted: BTreeSet<JobId>,
    /// Who reads it, how many times: a job that goes back may read it again while it keeps arrays of the first time.
    leased: BTreeMap<JobId, u32>,
}

#[derive(Debug)]
struct RingJob {
    epoch: Epoch,
    needs: BTreeSet<u64>,
    /// The highest round of each segment that it was given.
    rounds: Vec<u64>,
    /// What is under way, and how many of its samples were received.
    resume: Option<(SegmentRound, u64)>,
    /// Given and not leased yet, in order.
    given: Vec<Given>,
    /// When it was given something last; smaller is longer ago.
    served: u64,
    /// Whether it asked for more than there was.
    waits: bool,
}

#[derive(Clone, Copy, Debug)]
struct Given {
    number: u64,
    epoch: Epoch,
    /// Set if the job goes on in it.
    resume: Option<(SegmentRound, u64)>,
}

/// Something to be produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ordered {
    /// Its number at the ring.
    pub number: u64,
    /// What it is.
    pub segment_round: SegmentRound,
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
    pub segment_round: SegmentRound,
    /// Samples at its beginning that are not there.
    pub skipped: u64,
    /// Whether there is so much room that the job may keep arrays over it while it reads others.
    pub can_be_kept: bool,
    /// What was produced.
    pub content: T,
}

impl<T: Clone> Ring<T> {
    /// Nobody is there; at most `limit` segments are live at once.
    pub(super) fn new(segments: Segments, limit: usize) -> Self {
        let rounds = vec![0; segments.count() as usize];
        let ahead = SAMPLES_AHEAD.div_ceil(segments.segment_len()) as usize;
        let (ahead, limit) = (ahead.clamp(AHEAD.start, AHEAD.end), limit.max(1));
        Self { segments, limit, ahead, live: BTreeMap::new(), jobs: BTreeMap::new(), rounds, numbers: 0 }
    }

    /// Lets a job on, which goes on from where its ride stands.
    pub(super) fn board(&mut self, job_progress: &JobProgress) -> JobId {
        self.numbers += 1;
        let job = JobId(self.numbers);
        self.change(job, job_progress);
        job
    }

    /// Lets a job go on from somewhere else; what it has leased stays its own.
    pub(super) fn change(&mut self, job: JobId, job_progress: &JobProgress) {
        self.forget_given(job);
        for (known, had) in self.rounds.iter_mut().zip(&job_progress.rounds) {
            *known = (*known).max(*had);
        }
        let needs: BTreeSet<u64> = job_progress.needs(&self.segments).collect();
        let resume = job_progress.under_way(&self.segments);
        let (epoch, rounds) = (job_progress.epoch, job_progress.rounds.clone());
        let mut boarded =
            RingJob { epoch, needs, rounds, resume, given: Vec::new(), served: self.numbers, waits: false };
        boarded.turn_epoch(&self.segments);
        self.jobs.insert(job, boarded);
    }

    /// Lets a job off; all that it had leased is free. Gives that: arrays over it may be there for longer than the job.
    pub(super) fn leave(&mut self, job: JobId) -> Vec<T> {
        self.forget_given(job);
        self.jobs.remove(&job);
        let held = self.live.values_mut().filter_map(|live| live.leased.remove(&job).and(live.content.clone()));
        held.collect()
    }

    fn forget_given(&mut self, job: JobId) {
        for live in self.live.values_mut() {
            live.wanted.remove(&job);
        }
        if let Some(job) = self.jobs.get_mut(&job) {
            job.given.clear();
        }
    }

    /// The jobs that a segment is produced for, and how many others each of them will read before it.
    pub(crate) fn wanted_by(&self, number: u64) -> impl Iterator<Item = (JobId, usize)> {
        let wanted = self.live.get(&number).into_iter().flat_map(|live| live.wanted.iter().copied());
        let place = move |job: &JobId| self.jobs.get(job)?.given.iter().position(|given| given.number == number);
        wanted.filter_map(move |job| Some((job, place(&job)?)))
    }

    /// Jobs that are on.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.jobs.keys().copied()
    }

    /// Segments that are live or being produced.
    pub(super) fn live(&self) -> usize {
        self.live.len()
    }

    /// Segments that jobs hold.
    pub(super) fn leased(&self) -> usize {
        self.live.values().filter(|live| !live.leased.is_empty()).count()
    }

    /// Whether another job can be served: there is room for what it reads beside what others hold.
    pub(crate) fn has_room_for_job(&self) -> bool {
        self.leased() + 2 <= self.limit
    }

    /// Gives jobs segments as far as there is room, those first that have the fewest; says what has to be produced for it.
    pub(super) fn give(&mut self) -> Vec<Ordered> {
        let mut ordered = Vec::new();
        for given in 0..self.ahead {
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
        if let Some((segment_round, received)) = job.resume {
            let same =
                self.live.iter().find(|(_, live)| live.segment_round == segment_round && live.skipped <= received);
            let number = same.map(|(number, _)| *number);
            let ordered = if number.is_none() { Some(self.order(id, segment_round, received)?) } else { None };
            let number = number.or(ordered.map(|ordered| ordered.number))?;
            self.assign(id, number);
            return ordered;
        }
        let is_new = |live: &Live<T>| {
            let SegmentRound { segment, round } = live.segment_round;
            live.skipped == 0
                && !live.wanted.contains(&id)
                && job.needs.contains(&segment)
                && round > job.rounds[segment as usize]
        };
        let is_short = |live: &Live<T>| !self.segments.is_full(live.segment_round.segment);
        let newest = self.live.iter().rev().filter(|(_, live)| is_new(live)).min_by_key(|(_, live)| is_short(live));
        if let Some((&number, _)) = newest {
            self.assign(id, number);
            return None;
        }
        let segment = self.most_needed(id)?;
        let segment_round = SegmentRound { segment, round: self.rounds[segment as usize] + 1 };
        let ordered = self.order(id, segment_round, 0)?;
        self.assign(id, ordered.number);
        Some(ordered)
    }

    /// The segment of those that a job needs which most others need too; of several the one that chance, by count, decides on.
    fn most_needed(&self, id: JobId) -> Option<u64> {
        let others = |segment: &u64| {
            self.jobs.iter().filter(|(other, job)| **other != id && job.needs.contains(segment)).count()
        };
        let chance = |segment: &u64| xxh3_64([self.numbers, *segment].map(u64::to_le_bytes).as_flattened());
        self.jobs[&id]
            .needs
            .iter()
            .copied()
            .max_by_key(|segment| (others(segment), self.segments.is_full(*segment), chance(segment)))
    }

    /// Makes room for a portion and books that it is to be produced.
    fn order(&mut self, job: JobId, segment_round: SegmentRound, skipped: u64) -> Option<Ordered> {
        self.drop_useless();
        while self.live.len() >= self.limit {
            self.make_room(job)?;
        }
        self.numbers += 1;
        let number = self.numbers;
        let (wanted, leased) = (BTreeSet::new(), BTreeMap::new());
        self.live.insert(number, Live { segment_round, skipped, content: None, wanted, leased });
        let known = &mut self.rounds[segment_round.segment as usize];
        *known = (*known).max(segment_round.round);
        Some(Ordered { number, segment_round, skipped })
    }

    /// Lets segments go that all jobs have had, but for the newest few: memory that is used again costs less than new memory.
    fn drop_useless(&mut self) {
        let is_had = |SegmentRound { segment, round }: SegmentRound| {
            self.jobs.values().all(|job| round <= job.rounds[segment as usize])
        };
        let is_useless = |live: &Live<T>| {
            live.content.is_some() && live.leased.is_empty() && live.wanted.is_empty() && is_had(live.segment_round)
        };
        let useless = self.live.iter().rev().filter(|(_, live)| is_useless(live)).skip(SPARE);
        let useless: Vec<u64> = useless.map(|(number, _)| *number).collect();
        for number in useless {
            self.live.remove(&number);
        }
    }

    /// Lets the oldest segment go that nobody reads: one that nobody wants or, for a job that has nothing at all, one that was
    /// only given ahead.
    fn make_room(&mut self, job: JobId) -> Option<()> {
        // A job that asks for more has read what it has, though it may keep arrays of it.
        let reads = |job: &JobId| {
            !self.jobs.get(job).is_some_and(|job| job.waits)
                && self.live.values().any(|live| live.leased.contains_key(job))
        };
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
            self.take_back(wanting, number, gone.segment_round.segment);
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
                job.needs.insert(live.segment_round.segment);
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
        let SegmentRound { segment, round } = live.segment_round;
        job.needs.remove(&segment);
        // What it gets in the next epoch is newer than what it is given in this one.
        let had = &mut job.rounds[segment as usize];
        *had = (*had).max(round);
        job.turn_epoch(&self.segments);
    }

    /// Books what was produced.
    pub(crate) fn publish(&mut self, number: u64, content: T) {
        if let Some(live) = self.live.get_mut(&number) {
            live.content = Some(content);
        }
    }

    /// The next segment for a job to read, if one is there: of those that it was given in the epoch under way, the first.
    pub(super) fn lease(&mut self, id: JobId) -> Option<Leased<T>> {
        let leased = self.lease_next(id);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.waits = leased.is_none();
        }
        leased
    }

    fn lease_next(&mut self, id: JobId) -> Option<Leased<T>> {
        if self.live.values().filter(|live| live.leased.contains_key(&id)).count() >= MOST_LEASES {
            return None;
        }
        // Beside all that are held there is one for each job to read on, and two to be produced.
        let can_be_kept = self.leased() + self.jobs.len() + 2 <= self.limit;
        let job = self.jobs.get_mut(&id)?;
        let Given { epoch, resume, .. } = *job.given.first()?;
        // What was under way comes first.
        let choices = if resume.is_some() { 1 } else { job.given.len() };
        let of_epoch = job.given.iter().take(choices).take_while(|given| given.epoch == epoch);
        let place = of_epoch.enumerate().find(|(_, given)| self.live[&given.number].content.is_some())?.0;
        let number = job.given.remove(place).number;
        let live = self.live.get_mut(&number)?;
        live.wanted.remove(&id);
        *live.leased.entry(id).or_default() += 1;
        let Live { segment_round, skipped, .. } = *live;
        Some(Leased { number, epoch, segment_round, skipped, can_be_kept, content: live.content.clone()? })
    }

    /// A job has read a segment, and holds nothing of it any more.
    pub(super) fn give_back(&mut self, job: JobId, number: u64) {
        let Some(live) = self.live.get_mut(&number) else { return };
        if let Some(count) = live.leased.get_mut(&job) {
            *count -= 1;
            if *count == 0 {
                live.leased.remove(&job);
            }
        }
    }
}

impl RingJob {
    /// Begins the next epoch if nothing of this one is left to be given.
    fn turn_epoch(&mut self, segments: &Segments) {
        if self.needs.is_empty() && self.resume.is_none() {
            self.epoch.0 += 1;
            self.needs = (0..segments.count()).collect();
        }
    }
}

#[cfg(test)]
mod tests;
