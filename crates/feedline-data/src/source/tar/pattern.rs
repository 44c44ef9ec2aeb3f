//! Finds shards.
//!
//! In: paths of shards, folders, and patterns such as `train/*.tar` and `train-{000..146}.tar`. Out: the shards, sorted by the
//! bytes of their addresses, each once. So every machine numbers the samples alike.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use feedline_memory::Mutex;
use globset::{GlobBuilder, GlobMatcher};

use super::super::{Opener, SourceError};
use super::index::ENDING;
use crate::store::{Store, StoreError};

/// Upper limit of shards from one pattern with ranges of numbers.
const MAX_NUMBERED: u64 = 1_000_000;
/// Characters that make a path a pattern.
const SPECIAL: [char; 4] = ['*', '?', '[', '{'];

/// Where to look for shards.
#[derive(Debug)]
pub(super) struct Patterns {
    /// The user's input.
    pub input: Vec<String>,
    /// The input with all ranges of numbers expanded.
    places: Vec<ShardPattern>,
}

/// A path, folder or pattern without ranges of numbers.
#[derive(Debug)]
struct ShardPattern {
    input: String,
    store: Arc<dyn Store>,
    selection: Selection,
}

#[derive(Debug)]
enum Selection {
    /// The shard with this name.
    One(String),
    /// All shards in the folder.
    Folder,
    /// All shards that match. A flat pattern has no slash, so sub-folders are not listed.
    Matching { matcher: GlobMatcher, is_flat: bool },
}

/// A shard that was found.
#[derive(Clone, Debug)]
pub(super) struct FoundShard {
    pub store: Arc<dyn Store>,
    pub name: String,
}

impl Patterns {
    /// Opens the stores of the patterns.
    pub(super) fn new(input: Vec<String>, opener: &dyn Opener) -> Result<Self, SourceError> {
        let (mut places, mut stores) = (Vec::new(), Stores { opener, opened: HashMap::new() });
        for pattern in &input {
            for path in numbered(pattern)? {
                places.push(ShardPattern::new(&path, &mut stores)?);
            }
        }
        Ok(Self { input, places })
    }

    /// Lists the shards. Fails if a pattern matches nothing.
    pub(super) fn find(&self) -> Result<Vec<FoundShard>, SourceError> {
        let mut found = Vec::new();
        for place in &self.places {
            let before = found.len();
            place.find(&mut found)?;
            if found.len() == before {
                return Err(SourceError::NoShards { pattern: place.input.clone() });
            }
        }
        if found.is_empty() {
            return Err(SourceError::Parameter("tar() needs at least one pattern, path or folder".to_owned()));
        }
        let mut addressed: Vec<(String, FoundShard)> =
            found.into_iter().map(|shard| (shard.store.address(&shard.name), shard)).collect();
        addressed.sort_by(|(a, _), (b, _)| a.cmp(b));
        // Two patterns may match the same shard.
        addressed.dedup_by(|(a, _), (b, _)| a == b);
        Ok(addressed.into_iter().map(|(_, shard)| shard).collect())
    }
}

/// Stores by root. Shards in one folder share a store.
struct Stores<'a> {
    opener: &'a dyn Opener,
    opened: HashMap<String, Arc<dyn Store>>,
}

impl Stores<'_> {
    fn at(&mut self, root: &str) -> Result<Arc<dyn Store>, SourceError> {
        if let Some(store) = self.opened.get(root) {
            return Ok(Arc::clone(store));
        }
        let store = self.opener.store_for(root)?;
        self.opened.insert(root.to_owned(), Arc::clone(&store));
        Ok(store)
    }
}

impl ShardPattern {
    fn new(path: &str, stores: &mut Stores<'_>) -> Result<Self, SourceError> {
        let input = path.to_owned();
        let plain_bytes = path.find(SPECIAL).unwrap_or(path.len());
        let (root, rest) = split_root(path, plain_bytes);
        let store = stores.at(root)?;
        if plain_bytes == path.len() {
            if is_shard(path) {
                return Ok(Self { input, store, selection: Selection::One(rest.to_owned()) });
            }
            return Ok(Self { input, store: stores.at(path)?, selection: Selection::Folder });
        }
        // The name of a file on disk may contain these characters. A peer is not asked, because that would cost a request per
        // pattern.
        if !store.is_remote() && store.open(rest).is_ok() {
            return Ok(Self { input, store, selection: Selection::One(rest.to_owned()) });
        }
        // `*` does not match a slash, as in a shell.
        let glob = GlobBuilder::new(rest).literal_separator(true).build();
        let glob = glob.map_err(|error| SourceError::Parameter(format!("{path:?} is not a pattern: {error}")))?;
        let selection = Selection::Matching { matcher: glob.compile_matcher(), is_flat: !rest.contains('/') };
        Ok(Self { input, store, selection })
    }

    fn find(&self, found: &mut Vec<FoundShard>) -> Result<(), StoreError> {
        let names = match &self.selection {
            Selection::One(name) => {
                found.push(FoundShard { store: Arc::clone(&self.store), name: name.clone() });
                return Ok(());
            }
            Selection::Folder => {
                let left_out = Mutex::new(Vec::new());
                let names = self.store.list_flat(&|name| {
                    if is_shard(name) && !is_plain_shard(name) && !name.ends_with(ENDING) {
                        left_out.lock().push(name.to_owned());
                    }
                    is_plain_shard(name)
                })?;
                let left_out = left_out.into_inner();
                if let Some(first) = left_out.first() {
                    let (folder, shards) = (&*self.input, left_out.len());
                    tracing::warn!(
                        folder,
                        shards,
                        first,
                        "left out compressed shards; decompress them to plain .tar files"
                    );
                }
                names
            }
            Selection::Matching { matcher, is_flat: true } => self.store.list_flat(&|name| matcher.is_match(name))?,
            Selection::Matching { matcher, is_flat: false } => self.store.list(&|name| matcher.is_match(name))?,
        };
        found.extend(names.iter().map(|name| FoundShard { store: Arc::clone(&self.store), name: name.to_owned() }));
        Ok(())
    }
}

/// Whether a path can only mean shards: it is a pattern, or has the ending of a tar file.
pub(crate) fn names_shards(path: &str) -> bool {
    path.contains(SPECIAL) || is_shard(path)
}

/// Whether a name is that of a plain tar file.
pub(crate) fn is_plain_shard(name: &str) -> bool {
    has_ending(name, "tar")
}

/// Whether a path names one shard, compressed or not. Compressed shards are rejected with advice when they are opened.
fn is_shard(path: &str) -> bool {
    let base = path.rsplit('/').next().unwrap_or_default();
    is_plain_shard(base) || has_ending(base, "tgz") || base.contains(".tar.")
}

fn has_ending(name: &str, ending: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found.eq_ignore_ascii_case(ending))
}

/// Splits a path at the last slash in its first `plain_bytes` bytes, which contain no special character. Returns the root of the
/// store, and the name or pattern below it.
fn split_root(path: &str, plain_bytes: usize) -> (&str, &str) {
    match path[..plain_bytes].rfind('/') {
        Some(0) => ("/", &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => ("", path),
    }
}

/// Expands ranges of numbers such as `{000..146}`, as in WebDataset.
fn numbered(pattern: &str) -> Result<Vec<String>, SourceError> {
    // The range of numbers that starts at byte `open`, if there is one. `{a,b}` is none and is left to the glob.
    let range = |open: usize| {
        let close = open + pattern[open..].find('}')?;
        let (first, last) = pattern[open + 1..close].split_once("..")?;
        // At most 18 digits, so that the number fits into 64 bits.
        let is_number =
            |text: &str| !text.is_empty() && text.len() < 19 && text.bytes().all(|byte| byte.is_ascii_digit());
        (is_number(first) && is_number(last)).then_some((open, close, first, last))
    };
    let Some((open, close, first, last)) = pattern.match_indices('{').find_map(|(open, _)| range(open)) else {
        return Ok(vec![pattern.to_owned()]);
    };
    let wrong =
        || SourceError::Parameter(format!("{pattern:?} is not an ascending range of at most {MAX_NUMBERED} shards"));
    let (from, to): (u64, u64) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
    if from > to || to - from >= MAX_NUMBERED {
        return Err(wrong());
    }
    // `{000..146}` pads with zeros to the width of its first number. `{0..146}` pads to width 1, which changes nothing.
    let digits = if first.starts_with('0') { first.len() } else { 0 };
    let mut all = Vec::new();
    for number in from..=to {
        // The rest of the pattern may contain further ranges.
        all.extend(numbered(&format!("{}{number:0digits$}{}", &pattern[..open], &pattern[close + 1..]))?);
        if all.len() as u64 > MAX_NUMBERED {
            return Err(wrong());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Registry;
    use std::fs;

    fn found(folder: &std::path::Path, patterns: &[&str]) -> Result<Vec<String>, String> {
        let root = folder.to_str().unwrap();
        let input = patterns.iter().map(|pattern| format!("{root}/{pattern}")).collect();
        let patterns = Patterns::new(input, &Registry::core()).map_err(|error| error.to_string())?;
        let found = patterns.find().map_err(|error| error.to_string())?;
        let below = |shard: FoundShard| shard.store.address(&shard.name)[root.len() + 1..].to_owned();
        Ok(found.into_iter().map(below).collect())
    }

    #[test]
    fn patterns_folders_and_paths_give_sorted_shards_each_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b-10.tar", "b-2.tar", "a.tar", "sub/c.tar", "notes.txt", "od[d].tar"] {
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            fs::write(folder.path().join(name), b"").unwrap();
        }
        let check = |patterns: &[&str], expected: &[&str]| {
            assert_eq!(found(folder.path(), patterns).unwrap(), expected, "{patterns:?}");
        };
        check(&["*.tar"], &["a.tar", "b-10.tar", "b-2.tar", "od[d].tar"]);
        check(&["**/*.tar"], &["a.tar", "b-10.tar", "b-2.tar", "od[d].tar", "sub/c.tar"]);
        check(&["*/c.tar", "a.tar", "a.tar", "b-{2,3}.tar"], &["a.tar", "b-2.tar", "sub/c.tar"]);
        check(&["sub"], &["sub/c.tar"]);
        check(&["od[d].tar"], &["od[d].tar"]);
        check(&["b-{2..2}.tar"], &["b-2.tar"]);
        assert!(found(folder.path(), &["x*.tar"]).unwrap_err().contains("no shards"));
        assert!(found(folder.path(), &["a[.tar"]).unwrap_err().contains("not a pattern"));
    }

    #[test]
    fn ranges_of_numbers_are_expanded_with_their_zeros() {
        assert_eq!(numbered("t-{008..010}.tar").unwrap(), ["t-008.tar", "t-009.tar", "t-010.tar"]);
        assert_eq!(numbered("{1..2}/{0..1}").unwrap(), ["1/0", "1/1", "2/0", "2/1"]);
        assert_eq!(numbered("{a,b}-{x..y}.tar").unwrap(), ["{a,b}-{x..y}.tar"]);
        for wrong in ["{5..1}", "{0..99999999999}", "{0..999999}{0..9}"] {
            assert!(numbered(wrong).is_err(), "{wrong}");
        }
    }
}
