//! Finds where the classes of a label are, for balanced crops.
//!
//! In: a label with one byte per element, 0 for the background. Out: for each class the boxes around its two largest connected
//! components, as `scipy.ndimage.label` (with faces touching) and `find_objects` give them. The size of a component is that of its
//! box.
//!
//! Components are joined over runs of equal elements, plane by plane. A component that does not reach the next plane is finished.
//! So memory is proportional to one plane, whatever the label contains.

use std::collections::BTreeMap;

use super::Region;

/// Boxes to keep per class.
const BOXES: usize = 2;

/// The boxes of each class, in ascending order of class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreground(Vec<(u8, Vec<Region>)>);

impl Foreground {
    /// Searches the first channel of a label with these sides. `poll` is called once per plane; its error ends the search.
    pub(crate) fn of<E>(label: &[u8], sides: [usize; 3], mut poll: impl FnMut() -> Result<(), E>) -> Result<Self, E> {
        let [_, height, width] = sides;
        let mut search = Search::default();
        for (z, plane) in label.chunks_exact((height * width).max(1)).take(sides[0]).enumerate() {
            poll()?;
            search.add_plane(z, plane, width);
        }
        Ok(search.finish())
    }

    /// Upper limit of memory for a search, in bytes.
    pub(crate) fn search_bytes([_, height, width]: [usize; 3]) -> usize {
        // Per element at most: a run in this plane and one in the previous plane; for each of both a component and its new number;
        // and a copy of a component that continues.
        let element = 2 * size_of::<RowRun>() + 3 * size_of::<Component>() + 2 * size_of::<u32>();
        height * (width * element + 2 * size_of::<usize>())
    }

    /// The boxes of each class.
    pub(crate) fn classes(&self) -> &[(u8, Vec<Region>)] {
        &self.0
    }

    /// The foreground as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (class, boxes) in &self.0 {
            out.extend([*class, boxes.len() as u8]);
            let numbers = boxes.iter().flat_map(|region| region.start.into_iter().chain(region.sides));
            out.extend(numbers.flat_map(|number| (number as u64).to_le_bytes()));
        }
        out
    }

    /// Reads the result of [`Foreground::to_bytes`]. `None` if the bytes are not valid for these sides.
    pub fn from_bytes(mut bytes: &[u8], sides: [usize; 3]) -> Option<Self> {
        let mut classes: Vec<(u8, Vec<Region>)> = Vec::new();
        while let Some((&[class, count], rest)) = bytes.split_first_chunk() {
            bytes = rest;
            // Classes ascend, and 0 is the background.
            let is_next = class > classes.last().map_or(0, |(last, _)| *last);
            if !is_next || count == 0 || usize::from(count) > BOXES {
                return None;
            }
            let mut boxes = Vec::new();
            for _ in 0..count {
                let mut numbers = [0; 6];
                for number in &mut numbers {
                    let (first, rest) = bytes.split_first_chunk()?;
                    *number = usize::try_from(u64::from_le_bytes(*first)).ok()?;
                    bytes = rest;
                }
                let [z, y, x, depth, height, width] = numbers;
                let region = Region { start: [z, y, x], sides: [depth, height, width] };
                boxes.push(Some(region).filter(|region| region.is_inside(sides) && region.elements() > 0)?);
            }
            classes.push((class, boxes));
        }
        bytes.is_empty().then_some(Self(classes))
    }
}

/// A run of equal elements in a row.
#[derive(Clone, Copy, Debug)]
struct RowRun {
    start: u32,
    end: u32,
    class: u8,
    component: u32,
}

/// A component so far, or a link to the one it was joined to.
#[derive(Clone, Copy, Debug)]
struct Component {
    parent: u32,
    class: u8,
    /// The box so far: its first element, and the end along each axis.
    low: [u32; 3],
    high: [u32; 3],
}

#[derive(Debug, Default)]
struct Search {
    components: Vec<Component>,
    /// The previous plane.
    before: Plane,
    /// The largest boxes of finished components, by class.
    best: BTreeMap<u8, Vec<Region>>,
}

#[derive(Debug, Default)]
struct Plane {
    /// The runs of all rows, row by row.
    runs: Vec<RowRun>,
    /// For each row, the end of its runs in `runs`.
    row_ends: Vec<usize>,
}

impl Plane {
    fn row(&self, row: usize) -> &[RowRun] {
        let start = row.checked_sub(1).map_or(0, |before| self.row_ends.get(before).copied().unwrap_or_default());
        &self.runs[start..self.row_ends.get(row).copied().unwrap_or(start)]
    }
}

impl Search {
    fn add_plane(&mut self, z: usize, plane: &[u8], width: usize) {
        let mut now = Plane::default();
        for (y, row) in plane.chunks_exact(width).enumerate() {
            let row_start = now.runs.len();
            find_runs(row, |start, end, class| {
                let (low, high) = ([z as u32, y as u32, start], [z as u32 + 1, y as u32 + 1, end]);
                let component = self.components.len() as u32;
                self.components.push(Component { parent: component, class, low, high });
                now.runs.push(RowRun { start, end, class, component });
            });
            let (earlier, current) = now.runs.split_at(row_start);
            // The row above starts where row `y - 2` ends, and ends where this row starts.
            let above_start = y.checked_sub(2).map_or(0, |row| now.row_ends[row]);
            let above = if y == 0 { &[][..] } else { &earlier[above_start..] };
            // With faces touching, an element has two earlier neighbours besides the one in its run: above it, and in the plane
            // before.
            join(&mut self.components, current, above);
            join(&mut self.components, current, self.before.row(y));
            now.row_ends.push(now.runs.len());
        }
        self.keep_only(&mut now);
        self.before = now;
    }

    /// Finishes components that do not reach this plane, and renumbers the others.
    fn keep_only(&mut self, now: &mut Plane) {
        let mut kept: Vec<Component> = Vec::new();
        let mut numbers = vec![u32::MAX; self.components.len()];
        for run in &mut now.runs {
            // A root that a run of this plane leads to may still grow, so it gets a new number. The others are finished.
            let root = find(&mut self.components, run.component);
            let number = &mut numbers[root as usize];
            if *number == u32::MAX {
                *number = kept.len() as u32;
                kept.push(Component { parent: *number, ..self.components[root as usize] });
            }
            run.component = *number;
        }
        for (number, component) in self.components.iter().enumerate() {
            // Only roots have a complete box.
            if component.parent as usize == number && numbers[number] == u32::MAX {
                offer(&mut self.best, component);
            }
        }
        self.components = kept;
    }

    fn finish(mut self) -> Foreground {
        for component in &self.components {
            offer(&mut self.best, component);
        }
        Foreground(self.best.into_iter().collect())
    }
}

/// Keeps the largest boxes, the largest first. Of equal ones, the one that starts first.
fn offer(best: &mut BTreeMap<u8, Vec<Region>>, component: &Component) {
    let Component { class, low, high, .. } = component;
    let sides = std::array::from_fn(|axis| (high[axis] - low[axis]) as usize);
    let boxes = best.entry(*class).or_default();
    boxes.push(Region { start: low.map(|side| side as usize), sides });
    // At most three boxes, so sorting costs nothing.
    boxes.sort_by_key(|region| (std::cmp::Reverse(region.elements()), *region));
    boxes.truncate(BOXES);
}

fn find_runs(row: &[u8], mut found: impl FnMut(u32, u32, u8)) {
    /// Most of a label is background. It is skipped in steps of this many elements.
    const STRIDE: usize = 64;
    let mut place = 0;
    while place < row.len() {
        if row[place] == 0 {
            let rest = &row[place..];
            // An OR over the whole chunk has no branches, so the compiler vectorises it.
            let empty = rest.chunks_exact(STRIDE).take_while(|chunk| chunk.iter().fold(0, |any, byte| any | byte) == 0);
            place += empty.count() * STRIDE;
            place += row[place..].iter().take_while(|&&byte| byte == 0).count();
            continue;
        }
        let (start, class) = (place, row[place]);
        place += row[place..].iter().take_while(|&&byte| byte == class).count();
        found(start as u32, place as u32, class);
    }
}

/// Joins the components of touching runs in two neighbouring rows.
fn join(components: &mut [Component], row: &[RowRun], other: &[RowRun]) {
    let mut rest = other;
    for run in row {
        // Both rows are sorted, so runs that end before this one cannot touch a later one either.
        while rest.first().is_some_and(|other| other.end <= run.start) {
            rest = &rest[1..];
        }
        for other in rest.iter().take_while(|other| other.start < run.end).filter(|other| other.class == run.class) {
            let (one, two) = (find(components, run.component), find(components, other.component));
            if one != two {
                // The lower number becomes the root. Its box is extended by that of the other.
                let (root, child) = (one.min(two), one.max(two));
                let Component { low, high, .. } = components[child as usize];
                components[child as usize].parent = root;
                let joined = &mut components[root as usize];
                for axis in 0..3 {
                    joined.low[axis] = joined.low[axis].min(low[axis]);
                    joined.high[axis] = joined.high[axis].max(high[axis]);
                }
            }
        }
    }
}

fn find(components: &mut [Component], mut number: u32) -> u32 {
    loop {
        let parent = components[number as usize].parent;
        if parent == number {
            return number;
        }
        // Union-find with path halving: each visited component is linked to its grandparent.
        let above = components[parent as usize].parent;
        components[number as usize].parent = above;
        number = above;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::convert::Infallible;

    fn found(label: &[u8], sides: [usize; 3]) -> Foreground {
        Foreground::of(label, sides, || Ok::<(), Infallible>(())).unwrap()
    }

    /// The definition: each component is flood-filled from its first element.
    fn filled(label: &[u8], sides: [usize; 3]) -> Foreground {
        let place = |at: [usize; 3]| (at[0] * sides[1] + at[1]) * sides[2] + at[2];
        let mut seen = vec![false; label.len()];
        let mut best = BTreeMap::new();
        for z in 0..sides[0] {
            for y in 0..sides[1] {
                for x in 0..sides[2] {
                    let class = label[place([z, y, x])];
                    if class == 0 || std::mem::replace(&mut seen[place([z, y, x])], true) {
                        continue;
                    }
                    let (mut low, mut high) = ([z, y, x], [z, y, x]);
                    let mut queue = VecDeque::from([[z, y, x]]);
                    while let Some(at) = queue.pop_front() {
                        for axis in 0..3 {
                            (low[axis], high[axis]) = (low[axis].min(at[axis]), high[axis].max(at[axis]));
                            for step in [-1, 1] {
                                let mut next = at;
                                next[axis] = at[axis].wrapping_add_signed(step);
                                let is_part = next[axis] < sides[axis] && label[place(next)] == class;
                                if is_part && !std::mem::replace(&mut seen[place(next)], true) {
                                    queue.push_back(next);
                                }
                            }
                        }
                    }
                    let low = low.map(|side| side as u32);
                    let high = high.map(|side| side as u32 + 1);
                    offer(&mut best, &Component { parent: 0, class, low, high });
                }
            }
        }
        Foreground(best.into_iter().collect())
    }

    #[test]
    fn boxes_are_those_of_a_flood_fill() {
        let key = feedline_order::random::StreamKey::new(
            feedline_order::Seed(1),
            feedline_order::Epoch(0),
            feedline_order::random::Purpose::Content,
        );
        for (case, sides) in [[1, 1, 1], [4, 5, 6], [7, 3, 70], [2, 9, 130], [12, 12, 12]].into_iter().enumerate() {
            for density in [30, 60, 90] {
                let element = |number: usize| {
                    let bits = key.bits(number as u64, case as u32, density);
                    if bits % 100 < u64::from(density) { (1 + (bits >> 32) % 2) as u8 } else { 0 }
                };
                let label: Vec<u8> = (0..sides.iter().product()).map(element).collect();
                assert_eq!(found(&label, sides), filled(&label, sides), "{sides:?} at {density} %");
            }
        }
    }

    #[test]
    fn components_that_meet_late_are_one() {
        // Two towers that are joined in the last plane.
        let mut label = vec![0; 3 * 3 * 5];
        for z in 0..3 {
            label[z * 15 + 5] = 7;
            label[z * 15 + 9] = 7;
        }
        label[2 * 15 + 5..2 * 15 + 10].fill(7);
        let region = Region { start: [0, 1, 0], sides: [3, 1, 5] };
        assert_eq!(found(&label, [3, 3, 5]).classes(), [(7, vec![region])]);
    }

    #[test]
    fn saved_foregrounds_are_read_back_and_other_bytes_are_refused() {
        let label: Vec<u8> = (0..4 * 4 * 4).map(|number| u8::from(number % 3 == 0) * (1 + number / 32)).collect();
        let table = found(&label, [4; 3]);
        let bytes = table.to_bytes();
        assert_eq!(Foreground::from_bytes(&bytes, [4; 3]), Some(table));
        assert_eq!(Foreground::from_bytes(&bytes, [1; 3]), None, "boxes outside");
        assert!(
            (1..bytes.len())
                .all(|len| { Foreground::from_bytes(&bytes[..len], [4; 3]).is_none_or(|cut| cut.classes().len() < 2) })
        );
        assert_eq!(Foreground::from_bytes(&[], [4; 3]), Some(Foreground::default()));
    }
}
