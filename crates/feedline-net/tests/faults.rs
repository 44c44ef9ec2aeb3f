//! A loader whose storage server is behind a bad network: the same stream as with local loading, or a clear error in bounded time.
//! Never wrong bytes.
//!
//! `FEEDLINE_FAULTS=100 cargo test --release -p feedline-net --test faults -- --nocapture` tries that many random seeds.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use feedline_data::batch::Batch;
use feedline_data::failure::chain;
use feedline_data::plan::{Document, Plan, Registry};
use feedline_data::store::Store as _;
use feedline_data::testing::write_pictures;
use feedline_engine::error::Error;
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;
use feedline_engine::testing::collect;
use feedline_net::storage::{Link, LinkTerms, RemoteStore};
use proxy::{Chance, Direction, Fault, Proxy};
use served::{plan, seen, serve, store};

mod proxy;
mod served;

/// Longer than anything here takes, unless it hangs.
const LIMIT: Duration = Duration::from_mins(3);

/// In the first connections, one in `one_in` pieces gets a fault.
fn at_random(connections: u64, one_in: u64) -> impl Fn(u64, Direction, &mut Chance) -> Option<Fault> {
    move |number, _, chance| {
        let is_hit = number < connections && chance.below(one_in) == 0;
        let fault = [Fault::Cut, Fault::Delay, Fault::Flip, Fault::Drop, Fault::Lose][chance.below(5) as usize];
        is_hit.then_some(fault)
    }
}

fn plan_with(root: &str, offload: &str) -> Arc<Plan> {
    let text = plan(root).document().unwrap().to_toml();
    let text = text.replace("[run]\n", &format!("[run]\noffload = \"{offload}\"\n"));
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    Arc::new(Document::parse(&text).unwrap().open(&registry).unwrap())
}

/// Reads an epoch. A batch may take as long as a server may be unreachable.
fn epoch(loader: &Loader) -> Result<Vec<Batch>, Error> {
    let (iteration, mut batches) = (loader.begin()?, Vec::new());
    loop {
        match loader.next_within(iteration, LIMIT)? {
            Next::Batch(batch) => batches.push(*batch),
            Next::End => return Ok(batches),
            Next::NotYet => panic!("no batch within {LIMIT:?}"),
        }
    }
}

#[test]
fn law_1_a_bad_network_changes_no_byte_and_what_was_lost_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("train"), 40, 3).unwrap();
    let expected =
        seen(&collect(&Loader::new(plan(folder.path().join("train").to_str().unwrap()), &Machine::default())).unwrap());
    let server = serve(folder.path());
    for (seed, offload) in [(1, "none"), (2, "all"), (3, "auto")] {
        let began = Instant::now();
        // Only the first connections are bad, so the whole stream arrives in the end.
        let proxy = Proxy::start(server.address(), seed, at_random(3, 12));
        let loader =
            Loader::new(plan_with(&format!("feedline://{}/train", proxy.address), offload), &Machine::default());
        let found = epoch(&loader).map(|batches| seen(&batches));
        let faults = proxy.faults.load(std::sync::atomic::Ordering::Relaxed);
        assert!(faults > 0, "seed {seed} did no harm");
        match found {
            Ok(found) => assert!(found == expected, "seed {seed}: other bytes after {faults} faults"),
            Err(error) => panic!("seed {seed}, {faults} faults: {}", chain(&error)),
        }
        assert!(began.elapsed() < LIMIT, "seed {seed} took {:?}", began.elapsed());
    }
}

/// One flipped bit in the length of a frame, in either direction of the first connection, is noticed long before the time-out of a
/// reply.
#[test]
fn a_flipped_bit_in_any_length_is_noticed_at_once_in_either_direction() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), vec![7; 5000]).unwrap();
    let server = serve(folder.path());
    for direction in [Direction::ToServer, Direction::ToClient] {
        for bit in [0, 3, 7, 12, 20, 30, 40, 63] {
            let began = Instant::now();
            let address = flip_length(server.address(), direction, bit);
            let link = Arc::new(Link::new(LinkTerms::plain(&address.to_string(), None)));
            let mut bytes = Vec::new();
            RemoteStore::new(Arc::clone(&link), "relay", "").read("a", &mut bytes).unwrap();
            assert!(bytes == vec![7; 5000]);
            assert_eq!(link.counts().retries, 1, "{direction:?}, bit {bit}");
            assert!(began.elapsed() < Duration::from_secs(30), "{direction:?}, bit {bit}: {:?}", began.elapsed());
        }
    }
}

/// Relays all bytes, but flips a bit in the length of the second frame of the first connection.
fn flip_length(server: SocketAddr, direction: Direction, bit: usize) -> SocketAddr {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, client) in (0..).zip(listener.incoming()) {
            let (client, upstream) = (client.unwrap(), TcpStream::connect(server).unwrap());
            for (way, from, to) in
                [(Direction::ToServer, &client, &upstream), (Direction::ToClient, &upstream, &client)]
            {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || {
                    // In the handshake each side sends one frame and waits for the other, so pieces are frames.
                    let mut buffer = vec![0; 1 << 20];
                    let mut pieces = 0;
                    while let Ok(len @ 1..) = from.read(&mut buffer) {
                        if number == 0 && way == direction && pieces == 1 {
                            buffer[8 + bit / 8] ^= 1 << (bit % 8);
                        }
                        pieces += 1;
                        if to.write_all(&buffer[..len]).is_err() {
                            break;
                        }
                    }
                    to.shutdown(std::net::Shutdown::Both).unwrap_or_default();
                });
            }
        }
    });
    address
}

/// A lost request is sent again, although the server keeps sending signs of life.
#[test]
fn a_request_or_reply_that_is_lost_as_a_whole_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "hello").unwrap();
    let server = serve(folder.path());
    for direction in [Direction::ToServer, Direction::ToClient] {
        let began = Instant::now();
        let pieces = std::sync::atomic::AtomicU64::new(0);
        let proxy = Proxy::start(server.address(), 1, move |number, way, _| {
            let is_second = || pieces.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1;
            (number == 0 && way == direction && is_second()).then_some(Fault::Lose)
        });
        let mut bytes = Vec::new();
        store(proxy.address, None).read("a", &mut bytes).unwrap();
        assert_eq!(bytes, b"hello");
        assert!(began.elapsed() < LIMIT, "{direction:?}: {:?}", began.elapsed());
    }
}

#[test]
fn random_faults_give_the_stream_or_a_clear_error() {
    let Some(count) = std::env::var("FEEDLINE_FAULTS").ok().and_then(|count| count.parse::<u64>().ok()) else { return };
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("train"), 60, 3).unwrap();
    let expected =
        seen(&collect(&Loader::new(plan(folder.path().join("train").to_str().unwrap()), &Machine::default())).unwrap());
    let server = serve(folder.path());
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let mut chance = Chance(clock.as_nanos() as u64);
    let (mut passed, mut failed, mut errors) = (0, 0, 0);
    for _ in 0..count {
        let seed = chance.next();
        let mut of_seed = Chance(seed);
        let (connections, one_in) = (of_seed.below(40), 2 + of_seed.below(60));
        let offload = ["none", "all", "auto"][of_seed.below(3) as usize];
        let began = Instant::now();
        eprint!("seed {seed} ({connections} bad connections, one piece in {one_in}, {offload}): ");
        let proxy = Proxy::start(server.address(), seed, at_random(connections, one_in));
        let root = format!("feedline://{}/train", proxy.address);
        let mut registry = Registry::core();
        feedline_net::register(&mut registry);
        let text = plan(folder.path().join("train").to_str().unwrap()).document().unwrap().to_toml();
        let text = text.replace(folder.path().join("train").to_str().unwrap(), &root);
        let text = text.replace("[run]\n", &format!("[run]\noffload = \"{offload}\"\n"));
        let opened = Document::parse(&text).unwrap().open(&registry).map_err(|error| chain(&error));
        let found = opened.and_then(|plan| {
            let loader = Loader::new(Arc::new(plan), &Machine::default());
            epoch(&loader).map(|batches| seen(&batches)).map_err(|error| chain(&error))
        });
        let is_good = match &found {
            Ok(found) => *found == expected,
            Err(text) => {
                errors += 1;
                text.contains(&proxy.address.to_string())
            }
        } && began.elapsed() < LIMIT;
        eprintln!(
            "{} after {:.1?}: {:?}",
            if is_good { "good" } else { "BAD" },
            began.elapsed(),
            found.map(|all| all.len())
        );
        *if is_good { &mut passed } else { &mut failed } += 1;
    }
    eprintln!("{passed} passed, {failed} failed ({errors} ended with a clear error)");
    assert_eq!(failed, 0);
}
