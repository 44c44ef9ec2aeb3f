//! A proxy between client and server that cuts, delays, flips bits and drops bytes, determined by a seed.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A fault of one piece of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection ends after a part of the piece.
    Cut,
    /// The piece arrives late.
    Delay,
    /// One bit is flipped.
    Flip,
    /// Some bytes are missing.
    Drop,
    /// The whole piece is missing.
    Lose,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

/// Random numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(pub u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A proxy to a server. `spoil` chooses the fault of each piece, from the number of the connection, the direction, and random
/// numbers.
pub(crate) struct Proxy {
    pub address: SocketAddr,
    /// Number of faults so far.
    pub faults: Arc<AtomicU64>,
}

impl Proxy {
    pub(crate) fn start(
        server: SocketAddr,
        seed: u64,
        spoil: impl Fn(u64, Direction, &mut Chance) -> Option<Fault> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (spoil, faults) = (Arc::new(spoil), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&faults);
        thread::spawn(move || {
            for (number, client) in (0..).zip(listener.incoming()) {
                let client = client.unwrap();
                let Ok(upstream) = TcpStream::connect(server) else { continue };
                for (direction, from, to) in
                    [(Direction::ToServer, &client, &upstream), (Direction::ToClient, &upstream, &client)]
                {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (spoil, counted) = (Arc::clone(&spoil), Arc::clone(&counted));
                    let mut chance = Chance(seed ^ (number << 8) ^ direction as u64);
                    thread::spawn(move || {
                        let spoil = |chance: &mut Chance| spoil(number, direction, chance);
                        pass(&mut from, &mut to, &mut chance, &counted, spoil);
                        for stream in [from, to] {
                            stream.shutdown(Shutdown::Both).unwrap_or_default();
                        }
                    });
                }
            }
        });
        Self { address, faults }
    }
}

fn pass(
    from: &mut TcpStream,
    to: &mut TcpStream,
    chance: &mut Chance,
    faults: &AtomicU64,
    spoil: impl Fn(&mut Chance) -> Option<Fault>,
) {
    let mut buffer = vec![0; 4096];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let mut piece = buffer[..len].to_vec();
        let fault = spoil(chance);
        faults.fetch_add(u64::from(fault.is_some()), Ordering::Relaxed);
        let place = chance.below(len as u64) as usize;
        match fault {
            None => {}
            Some(Fault::Cut) => piece.truncate(place),
            Some(Fault::Delay) => thread::sleep(Duration::from_millis(chance.below(100))),
            Some(Fault::Lose) => piece.clear(),
            Some(Fault::Flip) => piece[place] ^= 1 << chance.below(8),
            Some(Fault::Drop) => {
                let end = place + 1 + chance.below((len - place) as u64) as usize;
                piece.drain(place..end);
            }
        }
        if to.write_all(&piece).is_err() || fault == Some(Fault::Cut) {
            return;
        }
    }
}
