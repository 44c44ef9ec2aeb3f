//! Decides which segments are produced, which jobs get them, and which are dropped.
//!
//! In: jobs that join, ask, give back and leave; produced segments. Out: segments to produce, and leases.
//!
//! A job is assigned a few segments ahead of the one it reads. The first choice is a live segment that the job needs, in a round
//! that the job has not received. The newest is preferred, because it will be dropped last. If there is none, the segment that most
//! other jobs need is produced in a new round. The last segment of the data may be shorter than the others. A job gets it last if
//! there is a choice, because all batches after it would cross the ends of segments. If there is no room, the oldest segment
//! without a reader is dropped. This is pure bookkeeping: nothing here runs, blocks or reads the clock.
//!
//! Always true: in each of its epochs a job gets every segment once, and never the same round twice (law 2). At most `limit`
//! segments are live or in production (law 5). A leased segment is never dropped. A job that reads nothing takes room from
//! other jobs only with its leases and the first segment assigned to it (law 7).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use feedline_order::{Epoch, Segments};
use xxhash_rust::xxh3::xxh3_64;

use crate::state::{JobProgress, SegmentRound};

/// Segments to assign ahead, so that they are produced before the job needs them: enough for [`SAMPLES_AHEAD`], but at least the
/// first number and at most the second.
const AHEAD: Range<usize> = 2..8;
const SAMPLES_AHEAD: u64 = 16;

/// Upper limit of leased segments per job: one being read, two with arrays in use, one on its way.
const MAX_LEASES: usize = 4;

/// Number of segments to keep although all present jobs have received them: other jobs may join, and reused memory costs less than
/// new memory.
const MAX_SPARE_SEGMENTS: usize = 4;

/// The number of a job in a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// The live segments and their jobs.
#[derive(Debug)]
pub(super) struct SegmentScheduler<T> {
    segments: Segments,
    limit: usize,
    ahead: usize,
    /// By number. A later production order has a higher number, so the oldest comes first. Includes segments in production.
    live: BTreeMap<u64, LiveSegment<T>>,
    jobs: BTreeMap<JobId, ScheduledJob>,
    /// For each segment, the highest round that was ordered or that a joining job has received.
    rounds: Vec<u64>,
    last_number: u64,
}

#[derive(Debug)]
struct LiveSegment<T> {
    segment_round: SegmentRound,
    /// Number of samples at its start that were not produced, because the job that resumes in it has received them.
    skipped: u64,
    content: Option<T>,
    assigned_to: BTreeSet<JobId>,
    /// Its readers, and how many leases each has. A job that jumps back may lease it again while it keeps arrays from the first
    /// time.
    leased: BTreeMap<JobId, u32>,
}

#[derive(Debug)]
struct ScheduledJob {
    epoch: Epoch,
    needs: BTreeSet<u64>,
    /// The highest round of each segment that it was assigned.
    rounds: Vec<u64>,
    /// The segment that it resumes in, and how many of its samples it has received.
    resume: Option<(SegmentRound, u64)>,
    /// Assigned segments that are not leased yet, in order.
    assigned: Vec<Assignment>,
    /// The value of `last_number` at its last assignment. Smaller is longer ago.
    last_assigned_at: u64,
    /// Whether its last request for a lease got none.
    is_waiting: bool,
}

#[derive(Clone, Copy, Debug)]
struct Assignment {
    number: u64,
    epoch: Epoch,
    /// Set if the job resumes in this segment.
    resume: Option<(SegmentRound, u64)>,
}

/// A segment to produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProductionOrder {
    /// Its number in the scheduler.
    pub number: u64,
    /// Which segment, in which round.
    pub segment_round: SegmentRound,
    /// Number of samples to leave out at its start.
    pub skipped: u64,
}

/// A segment that a job may read until it gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased<T> {
    /// Its number in the scheduler.
    pub number: u64,
    /// The job's epoch that it belongs to.
    pub epoch: Epoch,
    /// Which segment, in which round.
    pub segment_round: SegmentRound,
    /// Number of samples that are missing at its start.
    pub skipped: u64,
    /// Whether there is enough room for the job to keep arrays over it while it reads others.
    pub can_be_kept: bool,
    /// The produced samples.
    pub content: T,
}

impl<T: Clone> SegmentScheduler<T> {
    /// A scheduler without jobs. At most `limit` segments are live at once.
    pub(super) fn new(segments: Segments, limit: usize) -> Self {
        let rounds = vec![0; segments.count() as usize];
        let ahead = SAMPLES_AHEAD.div_ceil(segments.segment_len()) as usize;
        let (ahead, limit) = (ahead.clamp(AHEAD.start, AHEAD.end), limit.max(1));
        Self { segments, limit, ahead, live: BTreeMap::new(), jobs: BTreeMap::new(), rounds, last_number: 0 }
    }

    /// Adds a job that continues from its progress.
    pub(super) fn join(&mut self, job_progress: &JobProgress) -> JobId {
        self.last_number += 1;
        let job = JobId(self.last_number);
        self.change(job, job_progress);
        job
    }

    /// Moves a job to another progress. It keeps its leases.
    pub(super) fn change(&mut self, job: JobId, job_progress: &JobProgress) {
        self.forget_assigned(job);
        for (known, had) in self.rounds.iter_mut().zip(&job_progress.rounds) {
            // New rounds must be higher than any that a job has received, so that no job gets a round twice.
            *known = (*known).max(*had);
        }
        let needs: BTreeSet<u64> = job_progress.needs(&self.segments).collect();
        let resume = job_progress.under_way(&self.segments);
        let (epoch, rounds) = (job_progress.epoch, job_progress.rounds.clone());
        let mut joined = ScheduledJob {
            epoch,
            needs,
            rounds,
            resume,
            assigned: Vec::new(),
            last_assigned_at: self.last_number,
            is_waiting: false,
        };
        joined.start_next_epoch_if_assigned(&self.segments);
        self.jobs.insert(job, joined);
    }

    /// Removes a job and ends its leases. Returns the content of these, because arrays over it may outlive the job.
    pub(super) fn leave(&mut self, job: JobId) -> Vec<T> {
        self.forget_assigned(job);
        self.jobs.remove(&job);
        // The job's process may still map these segments, so the caller must not reuse their memory.
        let held = self.live.values_mut().filter_map(|live| live.leased.remove(&job).and(live.content.clone()));
        held.collect()
    }

    fn forget_assigned(&mut self, job: JobId) {
        for live in self.live.values_mut() {
            live.assigned_to.remove(&job);
        }
        if let Some(job) = self.jobs.get_mut(&job) {
            job.assigned.clear();
        }
    }

    /// The jobs that a segment is produced for, and how many other segments each of them will read first.
    pub(crate) fn assigned_jobs(&self, number: u64) -> impl Iterator<Item = (JobId, usize)> {
        let assigned_to = self.live.get(&number).into_iter().flat_map(|live| live.assigned_to.iter().copied());
        let place =
            move |job: &JobId| self.jobs.get(job)?.assigned.iter().position(|assigned| assigned.number == number);
        assigned_to.filter_map(move |job| Some((job, place(&job)?)))
    }

    /// All jobs.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.jobs.keys().copied()
    }

    /// Number of live segments, including those in production.
    pub(super) fn live(&self) -> usize {
        self.live.len()
    }

    /// Number of leased segments.
    pub(super) fn leased(&self) -> usize {
        self.live.values().filter(|live| !live.leased.is_empty()).count()
    }

    /// Whether there is room to serve another job beside the leases of the others.
    pub(crate) fn has_room_for_job(&self) -> bool {
        // One segment for the new job to read and one in production.
        self.leased() + 2 <= self.limit
    }

    /// Assigns segments to jobs while there is room, starting with the job that has the fewest. Returns the segments to produce.
    pub(super) fn assign_ahead(&mut self) -> Vec<ProductionOrder> {
        let mut ordered = Vec::new();
        // Each pass gives a job at most one more segment, so that a job far ahead cannot use up the room of others.
        for assigned in 0..self.ahead {
            let behind = self.jobs.iter().filter(|(_, job)| job.assigned.len() == assigned);
            let mut behind: Vec<(u64, JobId)> = behind.map(|(id, job)| (job.last_assigned_at, *id)).collect();
            behind.sort_unstable();
            for (_, job) in behind {
                ordered.extend(self.assign_next(job));
            }
        }
        ordered
    }

    fn assign_next(&mut self, id: JobId) -> Option<ProductionOrder> {
        let job = &self.jobs[&id];
        if let Some((segment_round, received)) = job.resume {
            // A live copy will do if it skips no sample that the job still needs.
            let same =
                self.live.iter().find(|(_, live)| live.segment_round == segment_round && live.skipped <= received);
            let number = same.map(|(number, _)| *number);
            let ordered = if number.is_none() { Some(self.order(id, segment_round, received)?) } else { None };
            let number = number.or(ordered.map(|ordered| ordered.number))?;
            self.assign(id, number);
            return ordered;
        }
        let is_new = |live: &LiveSegment<T>| {
            let SegmentRound { segment, round } = live.segment_round;
            live.skipped == 0
                && !live.assigned_to.contains(&id)
                && job.needs.contains(&segment)
                && round > job.rounds[segment as usize]
        };
        let is_short = |live: &LiveSegment<T>| !self.segments.is_full(live.segment_round.segment);
        let newest = self.live.iter().rev().filter(|(_, live)| is_new(live)).min_by_key(|(_, live)| is_short(live));
        if let Some((&number, _)) = newest {
            self.assign(id, number);
            return None;
        }
        let segment = self.most_needed(id)?;
        // A new round draws new augmentations. No job can have received it.
        let segment_round = SegmentRound { segment, round: self.rounds[segment as usize] + 1 };
        let ordered = self.order(id, segment_round, 0)?;
        self.assign(id, ordered.number);
        Some(ordered)
    }

    /// Of the segments that a job needs, the one that most other jobs need too. On a tie, full segments come first, then a hash
    /// decides.
    fn most_needed(&self, id: JobId) -> Option<u64> {
        let others = |segment: &u64| {
            self.jobs.iter().filter(|(other, job)| **other != id && job.needs.contains(segment)).count()
        };
        // A hash instead of a random number: the scheduler stays a pure function of its calls. Only the order of segments depends
        // on it, which is not promised.
        let chance = |segment: &u64| xxh3_64([self.last_number, *segment].map(u64::to_le_bytes).as_flattened());
        self.jobs[&id]
            .needs
            .iter()
            .copied()
            .max_by_key(|segment| (others(segment), self.segments.is_full(*segment), chance(segment)))
    }

    /// Makes room for a segment round and records that it is to be produced.
    fn order(&mut self, job: JobId, segment_round: SegmentRound, skipped: u64) -> Option<ProductionOrder> {
        self.drop_useless();
        while self.live.len() >= self.limit {
            self.make_room(job)?;
        }
        self.last_number += 1;
        let number = self.last_number;
        let (assigned_to, leased) = (BTreeSet::new(), BTreeMap::new());
        self.live.insert(number, LiveSegment { segment_round, skipped, content: None, assigned_to, leased });
        let known = &mut self.rounds[segment_round.segment as usize];
        *known = (*known).max(segment_round.round);
        Some(ProductionOrder { number, segment_round, skipped })
    }

    /// Drops segments that all jobs have received, except for the newest few: reused memory costs less than new memory.
    fn drop_useless(&mut self) {
        let is_had = |SegmentRound { segment, round }: SegmentRound| {
            self.jobs.values().all(|job| round <= job.rounds[segment as usize])
        };
        let is_useless = |live: &LiveSegment<T>| {
            live.content.is_some()
                && live.leased.is_empty()
                && live.assigned_to.is_empty()
                && is_had(live.segment_round)
        };
        // Newest first, so `skip` keeps the newest.
        let useless = self.live.iter().rev().filter(|(_, live)| is_useless(live)).skip(MAX_SPARE_SEGMENTS);
        let useless: Vec<u64> = useless.map(|(number, _)| *number).collect();
        for number in useless {
            self.live.remove(&number);
        }
    }

    /// Makes room for a segment that `job` needs: drops the oldest segment without a reader. First choice is a segment that no job
    /// wants. For a job that has nothing at all, a segment that was only assigned ahead may go too. `None` if nothing can be
    /// dropped.
    fn make_room(&mut self, job: JobId) -> Option<()> {
        // A job that asks for more has read what it has, although it may still hold arrays over it.
        let reads = |job: &JobId| {
            !self.jobs.get(job).is_some_and(|job| job.is_waiting)
                && self.live.values().any(|live| live.leased.contains_key(job))
        };
        // The first segment that an idle job will read counts as leased.
        let is_first = |number: u64, job: &JobId| {
            !reads(job)
                && self
                    .jobs
                    .get(job)
                    .and_then(|job| job.assigned.first())
                    .is_some_and(|assigned| assigned.number == number)
        };
        let is_starving = self.jobs[&job].assigned.is_empty() && !reads(&job);
        let is_pinned = |live: &LiveSegment<T>| live.content.is_none() || !live.leased.is_empty();
        let unwanted = self.live.iter().find(|(_, live)| !is_pinned(live) && live.assigned_to.is_empty());
        let is_spare = |number: u64, live: &LiveSegment<T>| {
            is_starving && !is_pinned(live) && !live.assigned_to.iter().any(|job| is_first(number, job))
        };
        let assigned_ahead = || self.live.iter().find(|(number, live)| is_spare(**number, live));
        let number = *unwanted.or_else(assigned_ahead)?.0;
        let gone = self.live.remove(&number)?;
        for other in gone.assigned_to {
            self.take_back(other, number, gone.segment_round.segment);
        }
        Some(())
    }

    /// Takes an assigned segment back. Segments of later epochs are taken back too. If the job resumes in this segment, all its
    /// assignments are. `rounds` stay as they are: a dropped round is never assigned again.
    fn take_back(&mut self, id: JobId, number: u64, segment: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(place) = job.assigned.iter().position(|assigned| assigned.number == number) else { return };
        let taken = job.assigned.remove(place);
        // The job was already assigned segments of its next epoch. It is moved back, because this epoch is no longer fully
        // assigned.
        if taken.epoch < job.epoch {
            job.epoch = taken.epoch;
            job.needs.clear();
        }
        // The segment that it resumes in comes before all others.
        for assigned in job.assigned.extract_if(.., |assigned| assigned.epoch > taken.epoch || taken.resume.is_some()) {
            let Some(live) = self.live.get_mut(&assigned.number) else { continue };
            live.assigned_to.remove(&id);
            if assigned.epoch == taken.epoch {
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
        // From here on the segment is not dropped, unless another job has nothing to read at all.
        live.assigned_to.insert(id);
        job.last_assigned_at = self.last_number;
        job.assigned.push(Assignment { number, epoch: job.epoch, resume: job.resume.take() });
        let SegmentRound { segment, round } = live.segment_round;
        job.needs.remove(&segment);
        // The round in the next epoch must be newer than the one assigned in this epoch.
        let had = &mut job.rounds[segment as usize];
        *had = (*had).max(round);
        job.start_next_epoch_if_assigned(&self.segments);
    }

    /// Records a produced segment.
    pub(crate) fn publish(&mut self, number: u64, content: T) {
        if let Some(live) = self.live.get_mut(&number) {
            live.content = Some(content);
        }
    }

    /// Leases the next segment to a job: the first of its assigned segments that is already produced. A segment of the next epoch
    /// is leased only after all of this epoch. A job that resumes first gets the segment it resumes in. `None` if nothing is
    /// assigned or produced yet, or at the limit of leases.
    pub(super) fn lease(&mut self, id: JobId) -> Option<Leased<T>> {
        let leased = self.lease_next(id);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.is_waiting = leased.is_none();
        }
        leased
    }

    fn lease_next(&mut self, id: JobId) -> Option<Leased<T>> {
        if self.live.values().filter(|live| live.leased.contains_key(&id)).count() >= MAX_LEASES {
            return None;
        }
        // There must be room for all leases, one segment for each job to read on, and two in production.
        let can_be_kept = self.leased() + self.jobs.len() + 2 <= self.limit;
        let job = self.jobs.get_mut(&id)?;
        let Assignment { epoch, resume, .. } = *job.assigned.first()?;
        // The segment that it resumes in comes first.
        let choices = if resume.is_some() { 1 } else { job.assigned.len() };
        let of_epoch = job.assigned.iter().take(choices).take_while(|assigned| assigned.epoch == epoch);
        let place = of_epoch.enumerate().find(|(_, assigned)| self.live[&assigned.number].content.is_some())?.0;
        let number = job.assigned.remove(place).number;
        let live = self.live.get_mut(&number)?;
        live.assigned_to.remove(&id);
        // From `assigned_to` to `leased`: a leased segment is never dropped (law 5).
        *live.leased.entry(id).or_default() += 1;
        let LiveSegment { segment_round, skipped, .. } = *live;
        Some(Leased { number, epoch, segment_round, skipped, can_be_kept, content: live.content.clone()? })
    }

    /// Ends a lease.
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

impl ScheduledJob {
    /// Starts the job's next epoch if all segments of this one are assigned.
    fn start_next_epoch_if_assigned(&mut self, segments: &Segments) {
        if self.needs.is_empty() && self.resume.is_none() {
            self.epoch.0 += 1;
            self.needs = (0..segments.count()).collect();
        }
    }
}

#[cfg(test)]
mod tests;
