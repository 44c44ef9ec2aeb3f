//! Objects whose bytes come from a peer.
//!
//! In: a range. Out: its bytes or an error, usually later and from another thread, with the traffic it took. Many ranges may be in
//! flight at once. No thread has to wait for them.

use std::fmt;
use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::{Object, StoreError};
use crate::memory::{Cancel, NoMemory};

/// Interval at which a waiting thread checks for cancellation.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// Fetches bytes from a peer.
pub trait Remote: Send + Sync {
    /// Starts to fetch a range and returns at once. `done` is called at most once, from another thread or before this returns. So
    /// the caller must hold no lock that `done` takes. `done` is dropped without a call if the [`Fetch`] is dropped before, or if
    /// the peer is closed.
    fn fetch(&self, range: Range<u64>, done: Done) -> Fetch;
}

/// Receives the result of a fetch.
pub type Done = Box<dyn FnOnce(Answer) + Send>;

/// The result of a fetch.
#[derive(Debug)]
pub struct Answer {
    /// All bytes of the range, or why they could not be fetched.
    pub bytes: Result<Vec<u8>, StoreError>,
    /// The network traffic it took.
    pub traffic: Traffic,
}

/// Network traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes received: the bodies of answers as far as they were read, including truncated ones.
    pub bytes: u64,
    /// Requests sent, including retries.
    pub requests: u64,
    /// Retries.
    pub retries: u64,
}

/// A fetch in flight. Dropping it cancels the fetch.
pub struct Fetch(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Fetch {
    /// A fetch that `cancel` ends.
    pub fn new(cancel: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(cancel)))
    }

    /// A fetch whose result is already known. Calls `done` before it returns.
    pub fn answered(done: Done, answer: Answer) -> Self {
        done(answer);
        Self(None)
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetch").finish_non_exhaustive()
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        // This also runs after the answer has arrived. Cancelling has no effect then.
        if let Some(cancel) = self.0.take() {
            cancel();
        }
    }
}

/// Fetches a range and blocks until it has arrived, or until the run is cancelled.
pub fn fetch_waiting(remote: &dyn Remote, range: Range<u64>, cancel: &Cancel) -> Result<Answer, NoMemory> {
    let (sender, answers) = mpsc::channel();
    // If the receiver is gone, the caller has stopped waiting.
    let _fetch = remote.fetch(range, Box::new(move |answer| drop(sender.send(answer))));
    loop {
        match answers.recv_timeout(CANCEL_POLL) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => cancel.check()?,
            // The peer dropped `done` without calling it, for example because its runtime was shut down.
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(Answer { bytes: Err(closed()), traffic: Traffic::default() });
            }
        }
    }
}

/// The error of a fetch that ends without an answer.
fn closed() -> StoreError {
    StoreError::Content { path: "the peer".to_owned(), problem: "was closed before it answered".to_owned() }
}

/// Fetches a range into `target` and blocks until it has arrived, or until the run is cancelled. `count` receives the traffic.
pub fn read_waiting(
    remote: &dyn Remote,
    offset: u64,
    target: &mut [u8],
    cancel: &Cancel,
    count: impl FnOnce(Traffic),
) -> Result<(), StoreError> {
    let range = offset..offset.saturating_add(target.len() as u64);
    let answer = fetch_waiting(remote, range, cancel)?;
    count(answer.traffic);
    target.copy_from_slice(&answer.bytes?);
    Ok(())
}

/// The answer for a range that needs no request: an empty range, or one outside the object.
pub fn answer_unasked(object: &dyn Object, range: &Range<u64>) -> Option<Answer> {
    let len = object.len();
    let bytes = match range {
        range if range.end > len => Err(StoreError::Truncated { path: object.address(), range: range.clone(), len }),
        range if range.is_empty() => Ok(Vec::new()),
        _ => return None,
    };
    Some(Answer { bytes, traffic: Traffic::default() })
}

/// Reads short ranges of an object. From a peer, all at once.
pub fn read_ranges(object: &dyn Object, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, StoreError> {
    let Some(remote) = object.remote() else {
        let read = |range: &Range<u64>| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            object.read_at(range.start, &mut bytes).map(|()| bytes)
        };
        return ranges.iter().map(read).collect();
    };
    let (sender, answers) = mpsc::channel();
    let fetch = |(number, range): (usize, &Range<u64>)| {
        let sender = sender.clone();
        remote.fetch(range.clone(), Box::new(move |answer| drop(sender.send((number, answer)))))
    };
    // All requests are in flight before the first answer is awaited. Dropping them on an error cancels the rest.
    let _fetches: Vec<Fetch> = ranges.iter().enumerate().map(fetch).collect();
    // Only the fetches hold senders now, so the loop also ends if a peer drops a fetch without an answer.
    drop(sender);
    let mut parts = vec![None; ranges.len()];
    for (number, answer) in answers.iter().take(ranges.len()) {
        parts[number] = Some(answer.bytes?);
    }
    parts.into_iter().collect::<Option<Vec<_>>>().ok_or_else(closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that drops every second request without an answer.
    #[derive(Debug)]
    struct Forgetful;

    impl Remote for Forgetful {
        fn fetch(&self, range: Range<u64>, done: Done) -> Fetch {
            if range.start.is_multiple_of(2) {
                let bytes = Ok(vec![7; (range.end - range.start) as usize]);
                return Fetch::answered(done, Answer { bytes, traffic: Traffic::default() });
            }
            drop(done);
            Fetch::new(|| ())
        }
    }

    impl Object for Forgetful {
        fn len(&self) -> u64 {
            100
        }

        fn address(&self) -> String {
            "forgetful".to_owned()
        }

        fn read_at(&self, _offset: u64, _target: &mut [u8]) -> Result<(), StoreError> {
            unreachable!("ranges are fetched")
        }

        fn remote(&self) -> Option<&dyn Remote> {
            Some(self)
        }
    }

    #[test]
    fn law_7_a_peer_that_drops_a_fetch_without_an_answer_is_an_error_and_no_hang() {
        assert_eq!(read_ranges(&Forgetful, &[0..2, 4..5]).unwrap(), [vec![7; 2], vec![7; 1]]);
        let error = read_ranges(&Forgetful, &[0..2, 1..5, 4..5]).unwrap_err().to_string();
        assert!(error.contains("closed before it answered"), "{error}");
        let answer = fetch_waiting(&Forgetful, 1..2, &Cancel::default()).unwrap();
        assert!(answer.bytes.unwrap_err().to_string().contains("closed before it answered"));
    }
}
