//! Volumes at other sides: trilinear for images, nearest for labels.
//!
//! Trilinear is that of torch's `interpolate(mode="trilinear", align_corners=True)`: the first and last elements of the two
//! grids lie on each other. Nearest is that of `mode="nearest"`: element `i` of `n` is element `floor(i * m / n)` of `m`,
//! here without the rounding of `m / n` to float32, by which torch is one element off at times.

use crate::memory::{Cancelled, Workspace};

/// Along one axis: for each new element the two old ones around it, and the weight of the second.
struct Between {
    first: usize,
    second: usize,
    weight: f32,
}

/// Most bytes that the places along the three axes take.
pub(crate) fn place_bytes(new: [usize; 3]) -> usize {
    new.iter().sum::<usize>().saturating_mul(size_of::<Between>())
}

fn between(old: usize, new: usize) -> Vec<Between> {
    let step = if new > 1 { (old - 1) as f64 / (new - 1) as f64 } else { 0.0 };
    let at = |number: usize| {
        let place = (number as f64 * step).min((old - 1) as f64);
        let first = place as usize;
        Between { first, second: (first + 1).min(old - 1), weight: (place - first as f64) as f32 }
    };
    (0..new).map(at).collect()
}

fn mixed(first: f32, second: f32, weight: f32) -> f32 {
    first * (1.0 - weight) + second * weight
}

/// Resamples volumes of float32 that follow each other.
pub(crate) fn trilinear(
    source: &[u8],
    old: [usize; 3],
    target: &mut [u8],
    new: [usize; 3],
    workspace: &Workspace,
) -> Result<(), Cancelled> {
    let [planes, rows, columns] = [0, 1, 2].map(|axis| between(old[axis], new[axis]));
    let source = source.as_chunks::<4>().0;
    let volumes = source.chunks_exact(old.iter().product());
    let mut row = vec![0.0; old[2]];
    for (source, target) in volumes.zip(target.as_chunks_mut::<4>().0.chunks_exact_mut(new.iter().product())) {
        for (plane, target) in planes.iter().zip(target.chunks_exact_mut(new[1] * new[2])) {
            workspace.cancel().check()?;
            for (place, target) in rows.iter().zip(target.chunks_exact_mut(new[2])) {
                let at = |plane: usize, row: usize| &source[(plane * old[1] + row) * old[2]..][..old[2]];
                let four = [
                    at(plane.first, place.first),
                    at(plane.first, place.second),
                    at(plane.second, place.first),
                    at(plane.second, place.second),
                ];
                mix_rows(four, place.weight, plane.weight, &mut row);
                for (column, target) in columns.iter().zip(target) {
                    *target = mixed(row[column.first], row[column.second], column.weight).to_ne_bytes();
                }
            }
        }
    }
    Ok(())
}

fn mix_rows([a, b, c, d]: [&[[u8; 4]]; 4], weight: f32, plane_weight: f32, out: &mut [f32]) {
    for ((((a, b), c), d), out) in a.iter().zip(b).zip(c).zip(d).zip(out) {
        let [a, b, c, d] = [a, b, c, d].map(|bytes| f32::from_ne_bytes(*bytes));
        *out = mixed(mixed(a, b, weight), mixed(c, d, weight), plane_weight);
    }
}

/// Resamples volumes of bytes that follow each other.
pub(crate) fn nearest(
    source: &[u8],
    old: [usize; 3],
    target: &mut [u8],
    new: [usize; 3],
    workspace: &Workspace,
) -> Result<(), Cancelled> {
    let [planes, rows, columns] = [0, 1, 2].map(|axis| {
        let at = |number: usize| (number as u128 * old[axis] as u128 / new[axis] as u128) as usize;
        (0..new[axis]).map(at).collect::<Vec<usize>>()
    });
    let volumes = source.chunks_exact(old.iter().product());
    for (source, target) in volumes.zip(target.chunks_exact_mut(new.iter().product())) {
        for (plane, target) in planes.iter().zip(target.chunks_exact_mut(new[1] * new[2])) {
            workspace.cancel().check()?;
            for (row, target) in rows.iter().zip(target.chunks_exact_mut(new[2])) {
                let source = &source[(plane * old[1] + row) * old[2]..][..old[2]];
                for (column, target) in columns.iter().zip(target) {
                    *target = source[*column];
                }
            }
        }
    }
    Ok(())
}
