//! Resamples volumes to other sides: trilinear for images, nearest for labels.
//!
//! Trilinear equals torch's `interpolate(mode="trilinear", align_corners=True)`: the first and last elements of both grids
//! coincide. Nearest equals `mode="nearest"`: element `i` of `n` is element `floor(i * m / n)` of `m`. Torch rounds `m / n` to
//! float32 and is sometimes one element off; this code is not.

use crate::memory::{Cancelled, Workspace};

/// For each new element along an axis: its two old neighbours, and the weight of the second.
struct Neighbours {
    first: usize,
    second: usize,
    weight: f32,
}

/// Upper limit of memory for the neighbours along the three axes, in bytes. For labels it is less.
pub(crate) fn place_bytes(new: [usize; 3]) -> usize {
    new.iter().sum::<usize>().saturating_mul(size_of::<Neighbours>())
}

fn neighbours(old: usize, new: usize) -> Vec<Neighbours> {
    // The first and last elements of both grids coincide (align corners), so there is one interval less than elements.
    let step = if new > 1 { (old - 1) as f64 / (new - 1) as f64 } else { 0.0 };
    let at = |number: usize| {
        // Rounding could place the last element just beyond the end.
        let place = (number as f64 * step).min((old - 1) as f64);
        let first = place as usize;
        Neighbours { first, second: (first + 1).min(old - 1), weight: (place - first as f64) as f32 }
    };
    (0..new).map(at).collect()
}

fn lerp(first: f32, second: f32, weight: f32) -> f32 {
    first * (1.0 - weight) + second * weight
}

/// Resamples volumes from the `old` to the `new` sides. Channels are stored one after the other.
pub(crate) struct Resampling {
    pub(crate) old: [usize; 3],
    pub(crate) new: [usize; 3],
}

impl Resampling {
    /// Resamples float32 images.
    pub(crate) fn trilinear(&self, source: &[u8], target: &mut [u8], workspace: &Workspace) -> Result<(), Cancelled> {
        let Self { old, new } = *self;
        let [planes, rows, columns] = [0, 1, 2].map(|axis| neighbours(old[axis], new[axis]));
        let (source, target) = (source.as_chunks::<4>().0, target.as_chunks_mut::<4>().0);
        let mut blended_row = vec![0.0; old[2]];
        self.each_row(source, target, [&planes, &rows], workspace, |source, plane, row, target| {
            let at = |plane: usize, row: usize| &source[(plane * old[1] + row) * old[2]..][..old[2]];
            // The four rows are blended first: three interpolations per old column and one per new element, instead of seven per
            // new element.
            let four = [
                at(plane.first, row.first),
                at(plane.first, row.second),
                at(plane.second, row.first),
                at(plane.second, row.second),
            ];
            lerp_rows(four, row.weight, plane.weight, &mut blended_row);
            for (column, target) in columns.iter().zip(target) {
                *target = lerp(blended_row[column.first], blended_row[column.second], column.weight).to_ne_bytes();
            }
        })
    }

    /// Resamples uint8 labels.
    pub(crate) fn nearest(&self, source: &[u8], target: &mut [u8], workspace: &Workspace) -> Result<(), Cancelled> {
        let Self { old, new } = *self;
        let [planes, rows, columns] = [0, 1, 2].map(|axis| {
            // floor(i * m / n), in 128 bits because the product may exceed 64.
            let at = |number: usize| (number as u128 * old[axis] as u128 / new[axis] as u128) as usize;
            (0..new[axis]).map(at).collect::<Vec<usize>>()
        });
        self.each_row(source, target, [&planes, &rows], workspace, |source, plane, row, target| {
            let source = &source[(plane * old[1] + row) * old[2]..][..old[2]];
            for (column, target) in columns.iter().zip(target) {
                *target = source[*column];
            }
        })
    }

    /// Calls `fill` for each new row, with the old volume, the entries of `planes` and `rows` for this row, and the row itself.
    fn each_row<E, P>(
        &self,
        source: &[E],
        target: &mut [E],
        [planes, rows]: [&[P]; 2],
        workspace: &Workspace,
        mut fill: impl FnMut(&[E], &P, &P, &mut [E]),
    ) -> Result<(), Cancelled> {
        let Self { old, new } = self;
        let volumes = source.chunks_exact(old.iter().product());
        for (source, target) in volumes.zip(target.chunks_exact_mut(new.iter().product())) {
            for (plane, target) in planes.iter().zip(target.chunks_exact_mut(new[1] * new[2])) {
                workspace.cancel().check()?;
                for (row, target) in rows.iter().zip(target.chunks_exact_mut(new[2])) {
                    fill(source, plane, row, target);
                }
            }
        }
        Ok(())
    }
}

fn lerp_rows([a, b, c, d]: [&[[u8; 4]]; 4], weight: f32, plane_weight: f32, out: &mut [f32]) {
    for ((((a, b), c), d), out) in a.iter().zip(b).zip(c).zip(d).zip(out) {
        let [a, b, c, d] = [a, b, c, d].map(|bytes| f32::from_ne_bytes(*bytes));
        *out = lerp(lerp(a, b, weight), lerp(c, d, weight), plane_weight);
    }
}
