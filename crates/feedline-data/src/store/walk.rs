//! Lists a tree of folders with several threads, because listing mostly waits for the file system.
//!
//! In: a function that lists one folder and returns the folders in it. Out: what each thread found. The order of the folders is not
//! fixed, so callers sort.

use std::thread;

use feedline_memory::{Condvar, Mutex};

use super::StoreError;

/// Deeper trees count as loops of symbolic links.
pub const MAX_DEPTH: usize = 64;
/// Number of listing threads.
pub const WALK_THREADS: usize = 8;

/// A folder to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkFolder {
    /// Its name below the root. Empty for the root itself.
    pub name: String,
    /// Number of folders above it.
    pub depth: usize,
}

impl WalkFolder {
    /// The name of an entry in this folder, below the root.
    pub fn name_of(&self, entry: &str) -> String {
        if self.name.is_empty() { entry.to_owned() } else { format!("{}/{entry}", self.name) }
    }

    /// A folder in this one, by its name below the root.
    #[must_use]
    pub fn below(&self, name: String) -> Self {
        Self { name, depth: self.depth + 1 }
    }
}

/// Lists the root and all folders that `list` returns, with up to `threads` threads. Stops at the first error.
pub fn walk<T: Default + Send>(
    threads: usize,
    list: impl Fn(&WalkFolder, &mut T) -> Result<Vec<WalkFolder>, StoreError> + Sync,
) -> Result<Vec<T>, StoreError> {
    let queue = WalkQueue { state: Mutex::default(), changed: Condvar::new() };
    queue.state.lock().folders.push(WalkFolder::default());
    let work = || queue.work(&list);
    thread::scope(|scope| {
        // If a thread cannot be started for lack of memory, the others take longer.
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        // The caller's thread lists too, so the walk ends even if no other thread could be started.
        let own = work();
        let joined = others.into_iter().map(|thread| thread.join().expect("listing does not panic"));
        std::iter::once(own).chain(joined).collect()
    })
}

struct WalkQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    folders: Vec<WalkFolder>,
    /// Number of threads that are listing a folder and may add more.
    busy: usize,
    has_failed: bool,
}

impl WalkQueue {
    fn work<T: Default>(
        &self,
        list: &(impl Fn(&WalkFolder, &mut T) -> Result<Vec<WalkFolder>, StoreError> + Sync),
    ) -> Result<T, StoreError> {
        let mut found = T::default();
        while let Some(folder) = self.next() {
            let below = list(&folder, &mut found);
            let mut state = self.state.lock();
            // In one critical section with adding the folders: otherwise another thread could see "nothing busy, nothing queued"
            // and end.
            state.busy -= 1;
            // A waiting thread has a folder to list now, or can end.
            self.changed.notify_all();
            match below {
                Ok(below) => state.folders.extend(below),
                Err(error) => {
                    state.has_failed = true;
                    return Err(error);
                }
            }
        }
        Ok(found)
    }

    /// Blocks for the next folder. `None` if there is none and no busy thread can add one.
    fn next(&self) -> Option<WalkFolder> {
        let mut state = self.state.lock();
        loop {
            if state.has_failed || (state.folders.is_empty() && state.busy == 0) {
                return None;
            }
            // Depth first, so the queue stays short.
            if let Some(folder) = state.folders.pop() {
                state.busy += 1;
                return Some(folder);
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(threads: usize) -> Vec<String> {
        let parts = walk(threads, |folder, found: &mut Vec<String>| {
            found.push(folder.name.clone());
            let below = (0..3).map(|number| folder.below(folder.name_of(&number.to_string())));
            Ok(if folder.depth < 3 { below.collect() } else { Vec::new() })
        });
        let mut all = parts.unwrap().concat();
        all.sort();
        all
    }

    #[test]
    fn every_folder_is_listed_once_with_any_number_of_threads() {
        let alone = names(1);
        assert_eq!(alone.len(), 1 + 3 + 9 + 27);
        assert_eq!(names(8), alone);
    }

    #[test]
    fn the_first_error_ends_the_walk() {
        let failed = walk(4, |folder, _: &mut Vec<()>| {
            if folder.depth == 2 {
                return Err(StoreError::TooDeep { path: folder.name.clone(), limit: 2 });
            }
            Ok((0..3).map(|number| folder.below(folder.name_of(&number.to_string()))).collect())
        });
        assert!(matches!(failed, Err(StoreError::TooDeep { .. })));
    }
}
