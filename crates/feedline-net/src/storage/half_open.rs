//! Connections that have not completed the handshake.
//!
//! In: accepted sockets. Out: a place for each until it is authenticated or gone. There are few places. If all are taken, a new
//! connection replaces another: the oldest one of the address that has the most. So an attacker who opens connections and stays
//! silent displaces himself first, and a client that completes the handshake at once gets in.
//!
//! Always true: at most [`MAX_HALF_OPEN`] connections are half open.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::Arc;

use feedline_memory::Mutex;

/// Upper limit of half-open connections.
pub(super) const MAX_HALF_OPEN: usize = 64;

/// The connections that are half open, oldest first.
#[derive(Debug, Default)]
pub(super) struct HalfOpen(Mutex<HalfOpenState>);

#[derive(Debug, Default)]
struct HalfOpenState {
    next: u64,
    waiting: BTreeMap<u64, WaitingPeer>,
    is_closed: bool,
}

#[derive(Debug)]
struct WaitingPeer {
    address: IpAddr,
    socket: TcpStream,
}

/// The place of one connection. Released when dropped.
#[derive(Debug)]
pub(super) struct HalfOpenPlace {
    half_open: Arc<HalfOpen>,
    number: u64,
}

impl HalfOpen {
    /// Adds a connection, which may end another. Returns how many were ended.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr, socket: &TcpStream) -> io::Result<(HalfOpenPlace, u64)> {
        let waiting = WaitingPeer { address: network_of(address), socket: socket.try_clone()? };
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(io::Error::other("the server is closed"));
        }
        state.next += 1;
        let number = state.next;
        // The new connection is inserted first, so it competes with the others for its place.
        state.waiting.insert(number, waiting);
        let mut ended = Vec::new();
        while state.waiting.len() > MAX_HALF_OPEN {
            let Some(victim) = state.victim() else { break };
            ended.extend(state.waiting.remove(&victim));
        }
        drop(state);
        // Sockets are shut down without the lock.
        ended.iter().for_each(WaitingPeer::end);
        Ok((HalfOpenPlace { half_open: Arc::clone(self), number }, ended.len() as u64))
    }

    /// Ends all connections and accepts no more.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.values().for_each(WaitingPeer::end);
    }
}

impl HalfOpenState {
    /// The oldest connection of the address with the most connections. Ties go to the address with the oldest connection.
    fn victim(&self) -> Option<u64> {
        let mut of_address: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
        for (&number, waiting) in &self.waiting {
            // Numbers grow, so the first one of an address is its oldest connection.
            of_address.entry(waiting.address).or_insert((0, number)).0 += 1;
        }
        of_address
            .values()
            .max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest)))
            .map(|(_, oldest)| *oldest)
    }
}

impl WaitingPeer {
    fn end(&self) {
        // It may have ended already.
        self.socket.shutdown(Shutdown::Both).unwrap_or_default();
    }
}

impl Drop for HalfOpenPlace {
    fn drop(&mut self) {
        self.half_open.0.lock().waiting.remove(&self.number);
    }
}

/// What counts as one address. An IPv6 client owns all addresses that share the first half.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            // A /64 prefix is the smallest network that a provider assigns.
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn has_ended(mut client: &TcpStream) -> bool {
        client.set_nonblocking(true).unwrap();
        !matches!(client.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn who_holds_most_places_loses_his_oldest_one_to_a_newcomer() {
        let half_open = Arc::new(HalfOpen::default());
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let enter = |last: u8| {
            let (client, server) = pair();
            let (place, ended) = half_open.enter(address(last), &server).unwrap();
            (client, server, place, ended)
        };
        let honest = enter(1);
        let greedy: Vec<_> = (1..MAX_HALF_OPEN).map(|_| enter(2)).collect();
        assert!(greedy.iter().all(|(.., ended)| *ended == 0));
        let newcomers = [enter(3), enter(2)];
        assert!(newcomers.iter().all(|(.., ended)| *ended == 1));
        assert!(has_ended(&greedy[0].0) && has_ended(&greedy[1].0) && !has_ended(&greedy[2].0));
        assert!(!has_ended(&honest.0) && !has_ended(&newcomers[0].0));
        drop(newcomers);
        assert_eq!(half_open.0.lock().waiting.len(), MAX_HALF_OPEN - 2);
        half_open.close();
        assert!(has_ended(&honest.0));
        let (_client, server) = pair();
        assert!(half_open.enter(address(9), &server).is_err());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2:3::1"), network("2001:db8:1:2:4::2"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
    }
}
