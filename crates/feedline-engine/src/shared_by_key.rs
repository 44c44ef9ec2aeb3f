//! Shared objects by key: started by the first user, dropped by the last.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use feedline_memory::{Mutex, MutexGuard};

/// Locked while its object is being started, so that simultaneous users get the same object.
type KeyedEntry<T> = Arc<Mutex<Weak<T>>>;

/// Shared objects by key.
#[derive(Debug)]
pub struct SharedByKey<T>(Mutex<HashMap<u128, KeyedEntry<T>>>);

impl<T> Default for SharedByKey<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> SharedByKey<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<u128, KeyedEntry<T>>> {
        let mut known = self.0.lock();
        // An entry whose object is being started is locked.
        // Also drops the entries of objects that are gone. An entry in use by another thread has a second owner and stays.
        known.retain(|_, one| one.try_lock().is_none_or(|one| one.strong_count() > 0) || Arc::strong_count(one) > 1);
        known
    }

    /// All objects in use, with their keys.
    pub fn live(&self) -> Vec<(u128, Arc<T>)> {
        let known: Vec<_> = self.lock().iter().map(|(key, one)| (*key, Arc::clone(one))).collect();
        let upgrade = |one: KeyedEntry<T>| one.try_lock().and_then(|one| one.upgrade());
        known.into_iter().filter_map(|(key, one)| Some((key, upgrade(one)?))).collect()
    }

    /// The object with a key, if it is in use.
    pub fn find(&self, key: u128) -> Option<Arc<T>> {
        self.live().into_iter().find(|(other, _)| *other == key).map(|(_, one)| one)
    }

    /// The object with a key. Started if it is not in use.
    pub fn get<E>(&self, key: u128, start: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let entry = Arc::clone(self.lock().entry(key).or_default());
        // The map is not locked here: starting an object may take long and must not block users of other keys.
        let mut entry = entry.lock();
        if let Some(one) = entry.upgrade() {
            return Ok(one);
        }
        let started = Arc::new(start()?);
        *entry = Arc::downgrade(&started);
        Ok(started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn the_first_starts_it_and_it_is_gone_with_the_last() {
        let kept = SharedByKey::default();
        let get = |value: u32| kept.get(7, || Ok::<_, Infallible>(value)).unwrap();
        let (first, second) = (get(1), get(2));
        assert_eq!((*first, *second, kept.live().len()), (1, 1, 1));
        drop(first);
        assert_eq!(*get(3), 1);
        drop(second);
        assert_eq!((kept.live().len(), *get(4)), (0, 4));
        assert!(kept.get(7, || Err("no")).is_err());
        assert!(kept.lock().is_empty());
    }
}
