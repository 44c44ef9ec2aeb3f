//! Unique keys for packed samples. WebDataset cuts a name at the first dot of its base name.

use std::borrow::Cow;
use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_128;

/// Gives each sample its key, in source order. The same names give the same keys.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The common prefix to remove.
    root: String,
    taken: HashSet<u128>,
    /// Number of keys that are not simply the name without its ending.
    pub renamed: u64,
}

impl Keys {
    /// Keys for names. Their common folder is removed if the first name is absolute or leads upwards.
    pub(super) fn below_common_folder<'a>(names: impl Iterator<Item = Cow<'a, str>>) -> Self {
        let mut common: Option<String> = None;
        for name in names {
            if common.is_none() && !is_path(&name) {
                break;
            }
            let common = common.get_or_insert_with(|| name[..folder_end(&name)].to_owned());
            // Drop the last folder until the rest is a prefix of the name.
            while !name.starts_with(common.as_str()) {
                common.truncate(folder_end(common.trim_end_matches('/')));
            }
        }
        Self { root: common.unwrap_or_default(), ..Self::default() }
    }

    /// The key of the next sample, whose first file ends in `ending`.
    pub(super) fn next(&mut self, name: &str, ending: &str) -> String {
        let below = name.strip_prefix(&self.root).unwrap_or(name);
        let stem = below.strip_suffix(ending).and_then(|stem| stem.strip_suffix('.')).unwrap_or(below);
        let plain = plain(stem);
        let mut key = plain.clone();
        let mut attempt = 1;
        // Hashes instead of texts: 16 bytes per key for millions of samples. A collision would only rename a key.
        while !self.taken.insert(xxh3_128(key.as_bytes())) {
            attempt += 1;
            key = match attempt {
                // `a.jpg` and `a.png` become `a` and `a_png`. Further duplicates are numbered.
                2 if !ending.is_empty() => format!("{plain}_{}", ending.to_lowercase()),
                _ => format!("{plain}_{attempt}"),
            };
        }
        self.renamed += u64::from(key != stem);
        key
    }
}

fn is_path(name: &str) -> bool {
    name.starts_with('/') || name.split('/').any(|part| part == "..")
}

/// The start of the base name in a path.
fn folder_end(path: &str) -> usize {
    path.rfind('/').map_or(0, |slash| slash + 1)
}

/// Makes a path usable as a key: no dot in the base name, no part that leads elsewhere or that readers skip.
fn plain(stem: &str) -> String {
    let parts: Vec<&str> = stem.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let (base, folders) = parts.split_last().unwrap_or((&"_", &[]));
    let visible = |part: &str| {
        // Readers skip names such as `__meta__` as metadata. Removing one underscore keeps the sample.
        if part.starts_with("__") && part.ends_with("__") { part[1..].to_owned() } else { part.to_owned() }
    };
    let mut key: Vec<String> = folders.iter().map(|part| visible(part)).collect();
    key.push(visible(&base.replace('.', "_")));
    key.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[(&str, &str)]) -> (Vec<String>, u64) {
        let mut keys = Keys::below_common_folder(names.iter().map(|(name, _)| Cow::Borrowed(*name)));
        let found = names.iter().map(|(name, ending)| keys.next(name, ending)).collect();
        (found, keys.renamed)
    }

    #[test]
    fn a_key_is_the_path_without_its_ending() {
        let (found, renamed) =
            keys(&[("cat/1.jpg", "jpg"), ("cat/2.JPEG", "JPEG"), ("v1.0/3.png", "png"), ("k", "png")]);
        assert_eq!(found, ["cat/1", "cat/2", "v1.0/3", "k"]);
        assert_eq!(renamed, 0);
    }

    #[test]
    fn names_with_dots_and_duplicates_get_unique_keys_and_are_counted() {
        let names = [("a.b.jpg", "jpg"), ("a.jpg", "jpg"), ("a.png", "png"), ("a_b.jpg", "jpg"), ("a_png.jpg", "jpg")];
        let (found, renamed) = keys(&names);
        assert_eq!(found, ["a_b", "a", "a_png", "a_b_jpg", "a_png_jpg"]);
        assert_eq!(renamed, 4);
        let all: HashSet<&String> = found.iter().collect();
        assert_eq!(all.len(), found.len());
    }

    #[test]
    fn keys_lose_the_common_folder_and_lead_nowhere_else() {
        assert_eq!(keys(&[("/d/x/1.jpg", "jpg"), ("/d/y/1.jpg", "jpg")]).0, ["x/1", "y/1"]);
        assert_eq!(keys(&[("../d/1.jpg", "jpg"), ("../e/1.jpg", "jpg")]).0, ["d/1", "e/1"]);
        assert_eq!(keys(&[("train/1.jpg", "jpg"), ("train/2.jpg", "jpg")]).0, ["train/1", "train/2"]);
        assert_eq!(keys(&[("./__x__/.jpg", "jpg")]).0, ["_x__"]);
    }
}
