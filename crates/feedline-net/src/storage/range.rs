//! Fetches ranges of a file from a storage server, many at once.

use std::ops::Range;
use std::sync::Arc;

use feedline_data::memory::NoMemory;
use feedline_data::store::{Answer, Done, Fetch, StoreError, Traffic};
use feedline_memory::Mutex;

use super::answer::MAX_READ_BYTES;
use super::link::{Link, LinkError, LinkTraffic, Pending};
use super::remote::{failed, unexpected, unreachable};
use crate::remote_object::{Opened, Ranges};
use crate::wire::{Reply, Request};

/// Upper limit of a range. A server may lie about the length of a file.
const MAX_FETCH_BYTES: u64 = 64 << 30;

/// A file of a server.
#[derive(Debug)]
pub(super) struct FileRanges {
    pub link: Arc<Link>,
    /// Its name below the root of the server.
    pub name: String,
}

impl FileRanges {
    fn begin_piece(
        &self,
        opened: &Opened,
        range: Range<u64>,
        done: impl FnOnce(Result<Vec<u8>, StoreError>, LinkTraffic) + Send + 'static,
    ) -> Pending {
        let (name, len, address) = (self.name.clone(), range.end - range.start, opened.address.clone());
        let request = Request::Read { name, offset: range.start, len, version: Some(opened.version) };
        let answered = move |reply: Result<(Reply, Vec<u8>), LinkError>, traffic| {
            let bytes = match reply {
                Ok((Reply::Bytes, bytes)) if bytes.len() as u64 == len => Ok(bytes),
                Ok((Reply::Failed { failure, reason }, _)) => Err(failed(&address, failure, &reason)),
                Ok(_) => Err(unexpected(address)),
                Err(error) => Err(unreachable(&address, error)),
            };
            done(bytes, traffic);
        };
        self.link.begin(&request, Box::new(answered))
    }
}

impl Ranges for FileRanges {
    fn begin(&self, opened: &Opened, range: Range<u64>, done: Done) -> Fetch {
        if range.end - range.start > MAX_FETCH_BYTES {
            let bytes = range.end - range.start;
            let bytes = Err(NoMemory::Exhausted { bytes }.into());
            return Fetch::answered(done, Answer { bytes, traffic: Traffic::default() });
        }
        // A reply carries at most MAX_READ_BYTES, so longer ranges are fetched in pieces, all at once.
        let starts: Vec<u64> = (range.start..range.end).step_by(MAX_READ_BYTES as usize).collect();
        let gathering = Arc::new(Gathering::new(starts.len(), done));
        let begin = |(number, start): (usize, &u64)| {
            let gathering = Arc::clone(&gathering);
            let piece = *start..range.end.min(start + MAX_READ_BYTES);
            self.begin_piece(opened, piece, move |bytes, traffic| gathering.add(number, bytes, traffic))
        };
        let pending: Vec<Pending> = starts.iter().enumerate().map(begin).collect();
        let link = Arc::clone(&self.link);
        // Dropping the fetch drops the pending requests, which cancels them. The link must live until then.
        Fetch::new(move || drop((pending, link)))
    }
}

/// The pieces of a range that is too long for one reply.
struct Gathering(Mutex<Option<Gathered>>);

struct Gathered {
    pieces: Vec<Vec<u8>>,
    missing: usize,
    traffic: Traffic,
    done: Done,
}

impl Gathering {
    fn new(pieces: usize, done: Done) -> Self {
        let gathered =
            Gathered { pieces: vec![Vec::new(); pieces], missing: pieces, traffic: Traffic::default(), done };
        Self(Mutex::new(Some(gathered)))
    }

    /// Adds a piece. After the last one, or an error, the result is delivered.
    fn add(&self, number: usize, bytes: Result<Vec<u8>, StoreError>, traffic: LinkTraffic) {
        let mut gathering = self.0.lock();
        // `None` after an error: later pieces of this range are ignored.
        let Some(gathered) = gathering.as_mut() else { return };
        gathered.traffic.bytes += traffic.bytes;
        gathered.traffic.requests += 1 + traffic.retries;
        gathered.traffic.retries += traffic.retries;
        gathered.missing -= 1;
        let error = bytes.map(|bytes| gathered.pieces[number] = bytes).err();
        if error.is_none() && gathered.missing > 0 {
            return;
        }
        let Some(Gathered { mut pieces, traffic, done, .. }) = gathering.take() else { return };
        // `done` is called without the lock.
        drop(gathering);
        let joined = match error {
            Some(error) => Err(error),
            None if pieces.len() == 1 => Ok(pieces.swap_remove(0)),
            None => join(&pieces).map_err(StoreError::from),
        };
        done(Answer { bytes: joined, traffic });
    }
}

fn join(pieces: &[Vec<u8>]) -> Result<Vec<u8>, NoMemory> {
    let len = pieces.iter().map(Vec::len).sum();
    let mut all = Vec::new();
    all.try_reserve_exact(len).map_err(|_| NoMemory::Exhausted { bytes: len as u64 })?;
    for piece in pieces {
        all.extend_from_slice(piece);
    }
    Ok(all)
}
