//! Many names in little memory.
//!
//! All names are in one block of memory, sorted by bytes, so that every machine gives a sample the same number. The overhead is 8
//! bytes per name.

use xxhash_rust::xxh3::Xxh3;

/// Sorted names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    text: String,
    ends: Vec<u64>,
}

impl Names {
    /// Sorts names and removes duplicates.
    pub fn sorted(parts: &[NamesBuilder]) -> Self {
        // Pairs of part and number are sorted, not the texts: 8 bytes per name instead of a copy.
        let mut places: Vec<(u32, u32)> = Vec::with_capacity(parts.iter().map(|part| part.0.len()).sum());
        for (part, names) in parts.iter().enumerate() {
            places.extend((0..names.0.len()).map(|number| (part as u32, number as u32)));
        }
        let text_of = |&(part, number): &(u32, u32)| parts[part as usize].0.get(number as usize);
        places.sort_unstable_by(|a, b| text_of(a).cmp(text_of(b)));
        let mut sorted = Self {
            text: String::with_capacity(parts.iter().map(|part| part.0.text.len()).sum()),
            ends: Vec::with_capacity(places.len()),
        };
        for place in &places {
            sorted.push(text_of(place));
        }
        sorted
    }

    fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len() as u64);
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name with this number.
    pub fn get(&self, number: usize) -> &str {
        let start = if number == 0 { 0 } else { self.ends[number - 1] as usize };
        &self.text[start..self.ends[number] as usize]
    }

    /// All names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|number| self.get(number))
    }

    /// A hash of all names in order.
    pub(crate) fn hash(&self) -> u128 {
        let mut hasher = Xxh3::new();
        for name in self.iter() {
            hasher.update(name.as_bytes());
            // No file name contains a zero byte, so it separates names unambiguously.
            hasher.update(&[0]);
        }
        hasher.digest128()
    }

    /// Memory in use, in bytes.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u64>()
    }
}

/// Names in the order in which they are found.
#[derive(Debug, Default)]
pub struct NamesBuilder(Names);

impl NamesBuilder {
    /// Adds a name.
    pub fn push(&mut self, name: &str) {
        self.0.push(name);
    }
}

impl<'a> FromIterator<&'a str> for Names {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut builder = NamesBuilder::default();
        for name in names {
            builder.push(name);
        }
        Self::sorted(&[builder])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_by_bytes_whichever_thread_found_them() {
        let mut parts = [NamesBuilder::default(), NamesBuilder::default()];
        for (part, name) in [(0, "b/2"), (1, "a"), (0, "B"), (1, "é"), (0, ""), (1, "b/10")] {
            parts[part].push(name);
        }
        let names = Names::sorted(&parts);
        assert!(names.iter().eq(["", "B", "a", "b/10", "b/2", "é"]));
        assert_eq!(names.hash(), ["b/2", "é", "b/10", "a", "", "B"].into_iter().collect::<Names>().hash());
    }

    #[test]
    fn a_million_names_take_under_a_hundred_bytes_each_beyond_the_text() {
        let count = 1_300_000;
        let mut parts: Vec<NamesBuilder> = (0..4).map(|_| NamesBuilder::default()).collect();
        let mut text_bytes = 0;
        for number in 0..count {
            let name = format!("n{:08}/n{:08}_{}.JPEG", number % 1000, number % 1000, number * 7919 % count);
            text_bytes += name.len();
            parts[number % 4].push(&name);
        }
        let names = Names::sorted(&parts);
        assert_eq!(names.len(), count);
        assert!(names.memory_bytes() < text_bytes + 100 * count, "{} bytes", names.memory_bytes());
        assert!((1..count).step_by(1001).all(|number| names.get(number - 1) < names.get(number)));
    }
}
