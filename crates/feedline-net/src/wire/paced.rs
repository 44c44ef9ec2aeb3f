//! Limits pauses within a frame, but not between two frames.
//!
//! In: a stream whose reads fail after [`LONGEST_GAP`] without data. Out: the same bytes. Between two frames such an error means to
//! go on waiting; within a frame it is an error. Otherwise lost bytes would be waited for without end.

use std::io::{self, Read};
use std::time::{Duration, Instant};

/// Upper limit of a pause within a frame.
pub(crate) const LONGEST_GAP: Duration = Duration::from_secs(10);

/// Reads frames from a stream.
#[derive(Debug)]
pub(crate) struct Paced<R> {
    stream: R,
    /// Upper limit of the duration of one frame.
    longest_frame: Option<Duration>,
    /// When the first bytes of the frame came.
    began: Option<Instant>,
}

impl<R: Read> Paced<R> {
    /// A frame may take `longest_frame` from its first byte to its last.
    pub(crate) fn new(stream: R, longest_frame: Option<Duration>) -> Self {
        Self { stream, longest_frame, began: None }
    }

    /// The stream.
    pub(crate) fn get_ref(&self) -> &R {
        &self.stream
    }

    /// Announces that the next byte starts a frame.
    pub(crate) fn begin_frame(&mut self) {
        self.began = None;
    }
}

impl<R: Read> Read for Paced<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        loop {
            if let (Some(began), Some(longest)) = (self.began, self.longest_frame)
                && began.elapsed() > longest
            {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a frame took too long"));
            }
            match self.stream.read(target) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    // Between two frames a time-out is normal, and the loop reads again.
                    if self.began.is_some() {
                        let text = format!("no more bytes of a frame arrived for {} s", LONGEST_GAP.as_secs());
                        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                    }
                }
                Ok(read) => {
                    // The first bytes start the clock of the frame.
                    self.began.get_or_insert_with(Instant::now);
                    return Ok(read);
                }
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte after each pause.
    struct Slow {
        pauses: Vec<usize>,
    }

    impl Read for Slow {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            let Some(pauses) = self.pauses.first_mut() else { return Ok(0) };
            if *pauses > 0 {
                *pauses -= 1;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.pauses.remove(0);
            target[0] = 7;
            Ok(1)
        }
    }

    #[test]
    fn pauses_are_allowed_between_frames_and_not_within_one() {
        let mut paced = Paced::new(Slow { pauses: vec![3, 0, 2, 1] }, None);
        paced.read_exact(&mut [0; 2]).unwrap();
        paced.begin_frame();
        paced.read_exact(&mut [0; 1]).unwrap();
        let error = paced.read_exact(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_frame_that_trickles_ends() {
        let mut paced = Paced::new(Slow { pauses: vec![0; 100] }, Some(Duration::ZERO));
        paced.read_exact(&mut [0; 1]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(paced.read_exact(&mut [0; 9]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
