//! A simulated hard disk around the files of a folder. For tests, benchmarks and what-if questions.
//!
//! In: the time of a seek, and bytes per second. Out: the same bytes, later. The disk has one head: a read that does not start
//! where the last one ended pays a seek, and reads queue up. Like a real disk it reads on into its buffer while idle, so a
//! sequential reader may pause for a moment. Listing and opening are free.
//!
//! Only the clock is simulated. Without seeks, this is a slow link.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use delegate::delegate;
use feedline_memory::Mutex;

use super::{BufferSource, DiskStore, Names, Object, OpenStore, Peer, Remote, Store, StoreError, Version};

/// The scheme of its addresses: `slow-disk://seek_ms=8,mb_per_second=150/path`.
const SCHEME: &str = "slow-disk";
/// How far the disk reads on while idle.
const BUFFER_BYTES: f64 = 16e6;

/// How fast a disk is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskSpeed {
    /// The delay of a read that does not start where the last one ended.
    pub seek: Duration,
    /// Bytes per second after that.
    pub bytes_per_second: f64,
}

/// A disk, shared by all stores on it.
#[derive(Debug)]
pub struct SlowDisk {
    speed: DiskSpeed,
    head: Mutex<DiskHead>,
}

#[derive(Debug)]
struct DiskHead {
    /// When all queued reads are done.
    free_at: Instant,
    /// The end of the last read.
    place: Option<(String, u64)>,
}

impl SlowDisk {
    /// An unused disk.
    pub fn new(speed: DiskSpeed) -> Self {
        Self { speed, head: Mutex::new(DiskHead { free_at: Instant::now(), place: None }) }
    }

    /// Queues a read. Returns when its bytes are available.
    fn schedule(&self, address: &str, offset: u64, bytes: u64, now: Instant) -> Instant {
        let transfer = |bytes: f64| Duration::from_secs_f64(bytes / self.speed.bytes_per_second);
        let mut head = self.head.lock();
        let is_sequential = head.place.as_ref().is_some_and(|(object, end)| object == address && *end == offset);
        let begin = if is_sequential {
            // The disk read on while idle, up to the size of its buffer: the read may have begun in the past.
            let buffered = now.checked_sub(transfer(BUFFER_BYTES)).unwrap_or(now);
            head.free_at.max(buffered)
        } else {
            // A seek starts when all earlier reads are done, at the earliest now.
            head.free_at.max(now) + self.speed.seek
        };
        head.free_at = begin + transfer(bytes as f64);
        head.place = Some((address.to_owned(), offset + bytes));
        head.free_at
    }

    fn wait(&self, address: &str, offset: u64, bytes: u64) {
        // The lock of the head is free while this thread sleeps, so that other reads can queue up.
        let done = self.schedule(address, offset, bytes, Instant::now());
        thread::sleep(done.saturating_duration_since(Instant::now()));
    }
}

/// A store whose objects are on a slow disk.
#[derive(Debug)]
pub struct SlowStore {
    inner: Arc<dyn Store>,
    disk: Arc<SlowDisk>,
}

impl SlowStore {
    /// The objects of `inner`, on `disk`.
    pub fn new(inner: Arc<dyn Store>, disk: Arc<SlowDisk>) -> Self {
        Self { inner, disk }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for SlowStore {
    delegate! {
        to self.inner {
            fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError>;
            fn list_flat(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError>;
            fn address(&self, name: &str) -> String;
            fn version(&self, name: &str) -> Option<Version>;
        }
    }

    /// A peer would read the samples from another disk, so there is none.
    fn peer(&self) -> Option<Arc<dyn Peer>> {
        None
    }

    fn is_near(&self) -> bool {
        false
    }

    fn read(&self, name: &str, room: &mut dyn BufferSource) -> Result<(), StoreError> {
        let object = self.open(name)?;
        object.read_at(0, room.room(object.len() as usize)?)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        Ok(Arc::new(SlowObject { inner: self.inner.open(name)?, disk: Arc::clone(&self.disk) }))
    }

    /// Small data that is needed often is copied, as the page cache of such a machine would keep it.
    fn is_remote(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct SlowObject {
    inner: Arc<dyn Object>,
    disk: Arc<SlowDisk>,
}

#[deny(clippy::missing_trait_methods)]
impl Object for SlowObject {
    delegate! {
        to self.inner {
            fn len(&self) -> u64;
            fn is_empty(&self) -> bool;
            fn is_in_memory(&self) -> bool;
            fn address(&self) -> String;
            fn modified_nanoseconds(&self) -> Option<i64>;
        }
    }

    /// Reading ahead would bypass the disk.
    fn will_need(&self, _range: Range<u64>) -> bool {
        false
    }

    /// Fetching from a peer would bypass the disk.
    fn remote(&self) -> Option<&dyn Remote> {
        None
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError> {
        if !target.is_empty() {
            self.disk.wait(&self.inner.address(), offset, target.len() as u64);
        }
        self.inner.read_at(offset, target)
    }
}

/// Opens slow disks by their scheme. Addresses with the same speed share one disk.
pub(super) fn store() -> (&'static str, OpenStore) {
    let disks: Mutex<BTreeMap<String, Weak<SlowDisk>>> = Mutex::default();
    let open = move |url: &str| -> Result<Arc<dyn Store>, StoreError> {
        let (speed_text, path) = split(url).ok_or_else(|| wrong(url))?;
        let speed = speed(speed_text).ok_or_else(|| wrong(url))?;
        let mut disks = disks.lock();
        let disk = disks.get(speed_text).and_then(Weak::upgrade).unwrap_or_else(|| Arc::new(SlowDisk::new(speed)));
        disks.insert(speed_text.to_owned(), Arc::downgrade(&disk));
        Ok(Arc::new(SlowStore::new(Arc::new(DiskStore::below(path)?), disk)))
    };
    (SCHEME, Box::new(open))
}

/// Splits an address into speed and path.
fn split(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix(SCHEME)?.strip_prefix("://")?;
    rest.find('/').map(|slash| rest.split_at(slash))
}

fn speed(text: &str) -> Option<DiskSpeed> {
    let value = |entry: &str, name: &str| -> Option<f64> {
        entry.strip_prefix(name)?.strip_prefix('=')?.parse().ok().filter(|value: &f64| value.is_finite())
    };
    let (seek, rate) = text.split_once(',')?;
    let (seek_ms, megabytes) = (value(seek, "seek_ms")?, value(rate, "mb_per_second")?);
    let seek = Duration::try_from_secs_f64(seek_ms / 1e3).ok()?;
    (megabytes > 0.0).then_some(DiskSpeed { seek, bytes_per_second: megabytes * 1e6 })
}

fn wrong(url: &str) -> StoreError {
    StoreError::Address(format!(
        "{url:?} is not an address of a slow disk, such as {SCHEME}://seek_ms=8,mb_per_second=150/path"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEED: DiskSpeed = DiskSpeed { seek: Duration::from_millis(8), bytes_per_second: 1e6 };

    fn milliseconds(disk: &SlowDisk, reads: &[(&str, u64, u64)], now: Instant) -> Vec<u128> {
        let done = reads.iter().map(|(object, offset, bytes)| disk.schedule(object, *offset, *bytes, now));
        done.map(|done| (done - now).as_millis()).collect()
    }

    #[test]
    fn a_sequential_read_pays_no_seek_and_reads_queue() {
        let disk = SlowDisk::new(SPEED);
        let now = Instant::now() + Duration::from_secs(1);
        let reads = [("a", 0, 1000), ("a", 1000, 2000), ("a", 0, 1000), ("b", 1000, 1000)];
        assert_eq!(milliseconds(&disk, &reads, now), [9, 11, 20, 29]);
    }

    #[test]
    fn an_idle_disk_reads_ahead_up_to_its_buffer() {
        let disk = SlowDisk::new(DiskSpeed { bytes_per_second: 16e6, ..SPEED });
        let now = Instant::now() + Duration::from_secs(1);
        disk.schedule("a", 0, 16_000, now);
        let later = now + Duration::from_secs(1);
        assert!(disk.schedule("a", 16_000, 1_600_000, later) <= later, "it was in the buffer");
        let much_later = later + Duration::from_mins(1);
        let done = disk.schedule("a", 1_616_000, 32_000_000, much_later);
        assert_eq!((done - much_later).as_millis(), 1000, "of 32 MB half was in the buffer");
    }

    #[test]
    fn addresses_say_the_speed_and_wrong_ones_are_refused() {
        let (text, path) = split("slow-disk://seek_ms=8,mb_per_second=1/data/*.tar").unwrap();
        assert_eq!((speed(text), path), (Some(SPEED), "/data/*.tar"));
        for text in ["", "seek_ms=8", "seek_ms=-1,mb_per_second=5", "seek_ms=1,mb_per_second=0", "a=1,b=2"] {
            assert_eq!(speed(text), None, "{text}");
        }
    }
}
