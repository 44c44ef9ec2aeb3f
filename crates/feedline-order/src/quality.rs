//! Measures the quality of a shuffle: how much of the stored order it retains.
//!
//! In: the ordinals of two epochs by position, their division into batches, and the class of each sample. Out: a [`Quality`], to be
//! compared with that of a full shuffle. Nothing here reads data.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

/// How the positions of an epoch are divided into batches.
#[derive(Clone, Copy, Debug)]
pub struct Division {
    /// Number of ranks, which take turns.
    pub world: u64,
    /// Samples per batch of each rank.
    pub batch_size: u64,
}

/// The quality of an order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quality {
    /// Distance of samples from their stored place.
    pub displacement: Distances,
    /// Distance between samples that are stored side by side.
    pub neighbours: Distances,
    /// How classes are distributed, if samples have classes.
    pub labels: Option<Labels>,
    /// Pairs of samples that share a batch in both epochs.
    pub meet_again: u64,
    /// The expected number of such pairs if both epochs were fully shuffled.
    pub meet_again_by_chance: f64,
}

/// Distances as fractions of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Distances {
    pub mean: f64,
    pub p5: f64,
    pub median: f64,
    pub p95: f64,
}

/// How classes are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Labels {
    /// Number of classes.
    pub classes: usize,
    /// How often the next sample has the same class.
    pub same_next: f64,
    /// `same_next` on a scale from chance (0) to always (1).
    pub correlation: f64,
    /// Average length of a run of samples with one class.
    pub mean_run: f64,
    /// Length of the longest run.
    pub longest_run: u64,
    /// Average number of classes in a batch.
    pub classes_per_batch: f64,
}

impl Distances {
    /// Summarises distances. Sorts them.
    fn of(mut distances: Vec<u64>, len: u64) -> Self {
        distances.sort_unstable();
        let part = |distance: u64| distance as f64 / len.max(1) as f64;
        let at = |share: f64| {
            let place = (distances.len().saturating_sub(1) as f64 * share).round() as usize;
            part(distances.get(place).copied().unwrap_or_default())
        };
        let sum: u64 = distances.iter().sum();
        Self { mean: part(sum) / distances.len().max(1) as f64, p5: at(0.05), median: at(0.5), p95: at(0.95) }
    }
}

impl Quality {
    /// Measures an epoch and the next one. `classes` are the classes of the ordinals, if all have one.
    pub fn of(epoch: &[u64], next: &[u64], division: Division, classes: Option<&[i64]>) -> Self {
        let places = places(epoch);
        let displaced =
            epoch.iter().enumerate().map(|(position, &ordinal)| ordinal.abs_diff(position as u64)).collect();
        let len = epoch.len() as u64;
        let meetings = Meetings::of(epoch, next, division);
        Self {
            displacement: Distances::of(displaced, len),
            neighbours: Distances::of(neighbour_distances(&places), len),
            labels: classes.map(|classes| Labels::of(epoch, division, classes)),
            meet_again: meetings.again,
            meet_again_by_chance: meetings.by_chance,
        }
    }
}

/// The position of each ordinal.
fn places(epoch: &[u64]) -> Vec<u64> {
    let mut places = vec![0; epoch.len()];
    for (position, &ordinal) in epoch.iter().enumerate() {
        places[ordinal as usize] = position as u64;
    }
    places
}

/// The distances between neighbouring ordinals.
fn neighbour_distances(places: &[u64]) -> Vec<u64> {
    places.array_windows().map(|[one, next]| one.abs_diff(*next)).collect()
}

/// For a curve in `points` steps: the share of neighbours whose distance is at most a given fraction of an epoch.
pub fn neighbour_curve(epoch: &[u64], points: u32) -> Vec<(f64, f64)> {
    let mut distances = neighbour_distances(&places(epoch));
    distances.sort_unstable();
    let at = |step: u32| {
        let share = f64::from(step) / f64::from(points);
        let within = distances.partition_point(|&distance| distance as f64 <= share * epoch.len() as f64);
        (share, within as f64 / distances.len().max(1) as f64)
    };
    (0..=points).map(at).collect()
}

impl Division {
    /// The rank and the batch number of a position.
    fn batch(&self, position: usize) -> (u64, u64) {
        // Ranks take turns, so rank and number within the rank are remainder and quotient.
        let (rank, number) = (position as u64 % self.world, position as u64 / self.world);
        (rank, number / self.batch_size)
    }

    /// The positions of each rank, in its order.
    fn of_ranks(&self, len: usize) -> impl Iterator<Item = impl Iterator<Item = usize>> {
        let world = self.world as usize;
        (0..world.min(len)).map(move |rank| (rank..len).step_by(world))
    }
}

/// Pairs of samples that share a batch.
struct Meetings {
    again: u64,
    by_chance: f64,
}

impl Meetings {
    fn of(epoch: &[u64], next: &[u64], division: Division) -> Self {
        // n choose 2.
        let pairs = |count: u64| count * count.saturating_sub(1) / 2;
        let batches: HashMap<u64, (u64, u64)> =
            epoch.iter().enumerate().map(|(position, &ordinal)| (ordinal, division.batch(position))).collect();
        let mut together: HashMap<_, u64> = HashMap::new();
        let mut sizes: HashMap<_, u64> = HashMap::new();
        for (position, ordinal) in next.iter().enumerate() {
            let batch = division.batch(position);
            *sizes.entry(batch).or_default() += 1;
            if let Some(before) = batches.get(ordinal) {
                *together.entry((batch, *before)).or_default() += 1;
            }
        }
        let in_batches: u64 = sizes.into_values().map(pairs).sum();
        let all = pairs(next.len() as u64).max(1);
        Self {
            again: together.into_values().map(pairs).sum(),
            // By chance a pair shares a batch with probability in_batches / all, independently in both epochs.
            by_chance: in_batches as f64 * (in_batches as f64 / all as f64),
        }
    }
}

impl Labels {
    /// Measures the classes of each rank's samples, in sequence and in batches.
    fn of(epoch: &[u64], division: Division, classes: &[i64]) -> Self {
        let class = |position: usize| classes[epoch[position] as usize];
        let (mut same, mut pairs, mut runs, mut longest) = (0_u64, 0_u64, 0_u64, 0_u64);
        for positions in division.of_ranks(epoch.len()) {
            let (mut last, mut run) = (None, 0);
            for class in positions.map(class) {
                pairs += u64::from(last.is_some());
                if last.replace(class) == Some(class) {
                    same += 1;
                    run += 1;
                } else {
                    runs += 1;
                    run = 1;
                }
                longest = longest.max(run);
            }
        }
        let mut in_batches: HashMap<_, HashSet<i64>> = HashMap::new();
        let mut counts: HashMap<i64, u64> = HashMap::new();
        for position in 0..epoch.len() {
            in_batches.entry(division.batch(position)).or_default().insert(class(position));
            *counts.entry(class(position)).or_default() += 1;
        }
        let len = epoch.len().max(1) as f64;
        // Two random samples have the same class with probability sum(p^2).
        let by_chance: f64 = counts.values().map(|&count| (count as f64 / len).powi(2)).sum();
        let same_next = same as f64 / pairs.max(1) as f64;
        let distinct: usize = in_batches.values().map(HashSet::len).sum();
        Self {
            classes: counts.len(),
            same_next,
            // With a single class nothing can be said: the expected value is already 1.
            correlation: if by_chance < 1.0 { (same_next - by_chance) / (1.0 - by_chance) } else { 0.0 },
            mean_run: len / runs.max(1) as f64,
            longest_run: longest,
            classes_per_batch: distinct as f64 / in_batches.len().max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, StreamKey};
    use crate::{Epoch, Permutation, Seed};

    const ALONE: Division = Division { world: 1, batch_size: 10 };

    fn full(epoch: u64, len: u64) -> Vec<u64> {
        let permutation = Permutation::new(StreamKey::new(Seed(1), Epoch(epoch), Purpose::Shuffle), len);
        (0..len).map(|position| permutation.at(position)).collect()
    }

    #[test]
    fn a_full_shuffle_is_what_chance_gives() {
        let classes: Vec<i64> = (0..4000).map(|ordinal| ordinal / 200).collect();
        let quality = Quality::of(&full(0, 4000), &full(1, 4000), ALONE, Some(&classes));
        assert!((quality.displacement.mean - 1.0 / 3.0).abs() < 0.02, "{quality:?}");
        assert!((quality.neighbours.mean - 1.0 / 3.0).abs() < 0.02, "{quality:?}");
        let labels = quality.labels.unwrap();
        assert!(labels.correlation.abs() < 0.03 && labels.classes == 20, "{labels:?}");
        assert!((labels.classes_per_batch - 8.0).abs() < 0.3, "20 (1 - 0.95^10): {labels:?}");
        let again = quality.meet_again as f64 / quality.meet_again_by_chance;
        assert!((0.5..2.0).contains(&again), "{quality:?}");
    }

    #[test]
    fn stored_order_keeps_neighbours_classes_and_pairs_together() {
        let stored: Vec<u64> = (0..1000).collect();
        let classes: Vec<i64> = (0..1000).map(|ordinal| ordinal / 100).collect();
        let quality = Quality::of(&stored, &stored, ALONE, Some(&classes));
        assert_eq!((quality.displacement.mean, quality.neighbours.mean), (0.0, 0.001));
        let labels = quality.labels.unwrap();
        assert!(
            labels.correlation > 0.98 && labels.longest_run == 100 && labels.classes_per_batch < 1.001,
            "{labels:?}"
        );
        assert_eq!(quality.meet_again, 100 * 45);
    }

    #[test]
    fn ranks_have_batches_of_their_own() {
        let division = Division { world: 2, batch_size: 2 };
        assert_eq!(
            (0..6).map(|position| division.batch(position)).collect::<Vec<_>>(),
            [(0, 0), (1, 0), (0, 0), (1, 0), (0, 1), (1, 1)]
        );
        let classes = [0, 1, 0, 1, 0, 1];
        let labels = Labels::of(&[0, 1, 2, 3, 4, 5], division, &classes);
        assert_eq!((labels.same_next, labels.longest_run, labels.classes_per_batch), (1.0, 3, 1.0));
    }

    #[test]
    fn the_curve_of_a_full_shuffle_is_that_of_two_places_at_random() {
        let curve = neighbour_curve(&full(0, 4000), 10);
        for (share, within) in curve {
            assert!((within - share * (2.0 - share)).abs() < 0.05, "{within} within {share}");
        }
    }
}
