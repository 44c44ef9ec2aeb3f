//! A storage server and its clients over real sockets: the same samples as locally, and faults with clear errors in bounded
//! time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use feedline_data::store::{DiskStore, Store, StoreError};
use feedline_data::testing::write_pictures;
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;
use feedline_engine::testing::{check_store, collect};
use feedline_net::storage::{Link, LinkTerms, RemoteStore, Server, ServerConfig, ServerError, Token};
use feedline_net::wire::{Frame, PROTOCOL, Reply, Request, Sequence, engine_version};
use served::{config, plan, seen, serve, store, two_epochs};

mod served;

#[test]
fn law_1_samples_of_a_server_are_those_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("train"), 40, 3).unwrap();
    let server = serve(folder.path());
    let local = plan(folder.path().join("train").to_str().unwrap());
    let remote = plan(&format!("feedline://{}/train", server.address()));
    assert_eq!(local.fingerprints().values, remote.fingerprints().values);
    assert!(two_epochs(&local) == two_epochs(&remote));
}

#[test]
fn sizes_are_known_from_the_listing_without_asking_file_by_file() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("train"), 6, 2).unwrap();
    let server = serve(folder.path());
    let link = Arc::new(Link::new(LinkTerms::plain(&server.address().to_string(), None)));
    let store = RemoteStore::new(Arc::clone(&link), "server", "train");
    let local = DiskStore::new(folder.path().join("train"));
    let names = store.list(&|_| true).unwrap();
    for name in names.iter() {
        let (remote, local) = (store.open(name).unwrap(), local.open(name).unwrap());
        assert_eq!((remote.len(), remote.modified_nanoseconds()), (local.len(), local.modified_nanoseconds()));
    }
    assert_eq!((names.len(), link.counts().requests), (6, 1));
}

#[test]
fn a_folder_is_fetched_ahead_with_one_request_for_each_sample_and_all_bytes_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("train"), 40, 3).unwrap();
    let server = serve(folder.path());
    let remote = plan(&format!("feedline://{}/train", server.address()));
    assert!(remote.source().is_remote());
    let files: u64 = remote.sizes().iter().sum::<u64>() - 40 * 8;
    let loader = Loader::new(remote, &Machine::default());
    assert_eq!(collect(&loader).unwrap().len(), 10);
    let counted = loader.snapshot().store;
    let overhead = counted.bytes_received_epoch - files;
    // Each reply has a head of 40 bytes and a short message. Two replies per file would exceed this.
    assert!((40 * 40..200 * 40).contains(&overhead), "{overhead} bytes beside the files");
    assert!(counted.requests >= 40 && counted.retries == 0, "{counted:?}");
}

#[test]
fn a_file_that_was_replaced_since_it_was_opened_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "before").unwrap();
    let server = serve(folder.path());
    let store = store(server.address(), None);
    store.list(&|_| true).unwrap();
    let object = store.open("a").unwrap();
    fs::write(folder.path().join("a"), "after it").unwrap();
    let error = object.read_at(0, &mut [0; 3]).unwrap_err().to_string();
    assert!(error.contains("has changed since the source was opened: it is 8 bytes"), "{error}");
}

#[test]
fn a_server_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("train"), 6, 2).unwrap();
    fs::write(folder.path().join("flat"), "flat").unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    let server = serve(folder.path());
    check_store(&store(server.address(), None));
    let address = server.address().to_string();
    check_store(&RemoteStore::new(Arc::new(Link::new(LinkTerms::plain(&address, None))), &address, "/train/"));
}

#[test]
fn a_server_that_is_stopped_and_started_again_in_mid_epoch_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("train"), 60, 3).unwrap();
    let expected = two_epochs(&plan(folder.path().join("train").to_str().unwrap()));
    let server = serve(folder.path());
    let address = server.address();
    let loader = Loader::new(plan(&format!("feedline://{address}/train")), &Machine::default());
    let mut server = Some(server);
    let mut found = Vec::new();
    for _ in 0..2 {
        let iteration = loader.begin().unwrap();
        loop {
            match loader.next_within(iteration, Duration::from_mins(1)).unwrap() {
                Next::Batch(batch) => found.push(*batch),
                Next::End => break,
                Next::NotYet => panic!("no batch within a minute"),
            }
            if found.len() % 6 == 3 {
                drop(server.take());
                thread::sleep(Duration::from_millis(150));
                let config = ServerConfig { listen: address, ..config(folder.path()) };
                server = Some(Server::start(config).unwrap());
            }
        }
    }
    assert!(seen(&found) == expected);
}

#[test]
fn a_token_is_needed_where_there_is_one_and_for_others_than_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "hello").unwrap();
    let server = Server::start(ServerConfig { token: Token::new("right"), ..config(folder.path()) }).unwrap();
    let mut bytes = Vec::new();
    store(server.address(), Some("right")).read("a", &mut bytes).unwrap();
    assert_eq!(bytes, b"hello");
    for token in [None, Some("wrong")] {
        let error = store(server.address(), token).read("a", &mut bytes).unwrap_err();
        assert!(feedline_data::failure::chain(&error).contains("the token is wrong or missing"), "{error:?}");
    }
    let listen = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(
        Server::start(ServerConfig { listen, ..config(folder.path()) }),
        Err(ServerError::NeedsToken { .. })
    ));
}

#[test]
fn another_protocol_or_engine_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    for hello in [
        Request::Hello { protocol: PROTOCOL + 1, engine: engine_version() },
        Request::Hello { protocol: PROTOCOL, engine: "libjpeg-99".to_owned() },
    ] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        Frame::new(0, &hello, Vec::new()).unwrap().write(&mut stream, &mut Sequence::default()).unwrap();
        let reply = Frame::read(&mut stream, &mut Sequence::default(), 10_000).unwrap().unwrap().message().unwrap();
        let Reply::Refused { reason } = reply else { panic!("{reply:?}") };
        let own = format!("protocol {PROTOCOL} with engine {:?}", engine_version());
        assert!(reason.contains(&own) && (reason.contains("protocol 3") || reason.contains("libjpeg-99")), "{reason}");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection has ended");
    }
}

#[test]
fn names_and_links_that_lead_out_of_the_root_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(folder.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
    fs::write(root.join("a"), "a").unwrap();
    let server = serve(&root);
    let store = store(server.address(), None);
    for name in ["../secret", "link", "/etc/passwd", "a/../../secret"] {
        let error = store.read(name, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("outside of the root that this server serves"), "{name}: {error}");
        assert!(store.open(name).is_err());
    }
    assert!(store.list(&|_| true).unwrap().iter().eq(["a"]));
    let above =
        RemoteStore::new(Arc::new(Link::new(LinkTerms::plain(&server.address().to_string(), None))), "server", "..");
    assert!(above.list(&|_| true).is_err());
    assert!(matches!(store.read("gone", &mut Vec::new()), Err(StoreError::NotFound { .. })));
}

/// Relays a connection to a server. `spoil` changes the answers: it gets each piece and the number of pieces before it.
fn relay(server: SocketAddr, spoil: impl Fn(&mut Vec<u8>, usize) -> bool + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let spoil = Arc::new(spoil);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, spoil) = (client.unwrap(), Arc::clone(&spoil));
            let upstream = TcpStream::connect(server).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || {
                let (mut upstream, mut client, mut pieces) = (upstream, client, 0);
                let mut buffer = vec![0; 4096];
                while let Ok(len @ 1..) = upstream.read(&mut buffer) {
                    let mut piece = buffer[..len].to_vec();
                    let goes_on = spoil(&mut piece, pieces);
                    pieces += 1;
                    if client.write_all(&piece).is_err() || !goes_on {
                        break;
                    }
                }
                client.shutdown(std::net::Shutdown::Both).ok();
            });
        }
    });
    address
}

#[test]
fn damaged_frames_and_connections_cut_in_mid_frame_are_noticed_and_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(folder.path().join("a"), &content).unwrap();
    let server = serve(folder.path());
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let spoiled = Arc::clone(&count);
    let address = relay(server.address(), move |piece, pieces| {
        // The first connections are damaged or cut in the middle of the file. The later ones are good.
        let is_early = pieces == 20 && spoiled.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 4;
        if is_early {
            piece[7] ^= 1;
        }
        !is_early || spoiled.load(std::sync::atomic::Ordering::Relaxed).is_multiple_of(2)
    });
    let link = Arc::new(Link::new(LinkTerms::plain(&address.to_string(), None)));
    let store = RemoteStore::new(Arc::clone(&link), "relay", "");
    let mut bytes = Vec::new();
    store.read("a", &mut bytes).unwrap();
    assert!(bytes == content);
    let counts = link.counts();
    assert!(counts.retries >= 3 && counts.received_bytes > 200_000 + 3 * 80_000, "{counts:?}");
}

#[test]
fn many_requests_are_under_way_at_once_and_what_nobody_wants_any_more_is_not_told() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..100_u8 {
        fs::write(folder.path().join(format!("{number:02}")), vec![number; 1000]).unwrap();
    }
    let server = serve(folder.path());
    let link = Link::new(LinkTerms::plain(&server.address().to_string(), None));
    let (sender, answers) = std::sync::mpsc::channel();
    let begin = |number: u8| {
        let sender = sender.clone();
        let request = Request::ReadAll { name: format!("{number:02}") };
        link.begin(&request, Box::new(move |reply, traffic| sender.send((number, reply.unwrap(), traffic)).unwrap()))
    };
    let request: Vec<_> = (0..100).map(begin).collect();
    for _ in 0..100 {
        let (number, (reply, bytes), traffic) = answers.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(reply == Reply::Bytes && bytes == vec![number; 1000]);
        assert!(traffic.bytes > 1000 && traffic.retries == 0, "{traffic:?}");
    }
    drop(request);
    drop(server);
    drop(begin(7));
    assert!(answers.recv_timeout(Duration::from_millis(300)).is_err());
}

#[test]
fn the_speed_of_a_link_is_what_it_is_throttled_to_and_known_where_it_is_not() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), vec![1; 500_000]).unwrap();
    for (link_mbps, expected) in [(Some(40.0), 1.0..60.0), (None, 60.0..f64::INFINITY)] {
        let server = Server::start(ServerConfig { link_mbps, ..config(folder.path()) }).unwrap();
        let link = Link::new(LinkTerms::plain(&server.address().to_string(), None));
        assert_eq!(link.counts().bytes_per_second(), None);
        for _ in 0..4 {
            link.call(&Request::ReadAll { name: "a".to_owned() }).unwrap();
        }
        let counts = link.counts();
        let mbps = counts.bytes_per_second().unwrap() * 8e-6;
        assert!(expected.contains(&mbps), "{mbps} megabits a second, {counts:?}");
        assert_eq!(counts.since(&counts).bytes_per_second(), None);
    }
}

#[test]
fn a_server_that_is_gone_is_an_error_that_names_it_in_bounded_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let began = Instant::now();
    let link =
        Link::new(LinkTerms { patience: Duration::from_secs(2), ..LinkTerms::plain(&address.to_string(), None) });
    let error = RemoteStore::new(Arc::new(link), "gone", "").read("a", &mut Vec::new()).unwrap_err();
    let text = feedline_data::failure::chain(&error);
    assert!(text.contains(&address.to_string()) && text.contains("is `feedline storage` running there?"), "{text}");
    assert!(began.elapsed() < Duration::from_mins(1));
}

/// Memory of this process, in megabytes.
fn resident_mb() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0 / 1e6
}

#[test]
fn ten_thousand_junk_connections_neither_crash_nor_block_the_server_nor_fill_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "hello").unwrap();
    let server = serve(folder.path());
    let good = store(server.address(), None);
    good.read("a", &mut Vec::new()).unwrap();
    let (began, before) = (Instant::now(), resident_mb());
    let mut kept = Vec::new();
    for number in 0..10_000 {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        match number % 5 {
            0 => drop(stream),
            1 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap_or_default(),
            2 => stream.write_all(&[0xff; 64]).unwrap_or_default(),
            3 => stream.write_all(&[0x16, 3, 1, 0, 200, 1, 0, 0]).unwrap_or_default(),
            // Sends nothing, and stays connected.
            _ if kept.len() < 300 => kept.push(stream),
            _ => drop(stream),
        }
        if number % 500 == 0 {
            let mut bytes = Vec::new();
            good.read("a", &mut bytes).unwrap();
            assert_eq!(bytes, b"hello");
            assert!(resident_mb() < before + 200.0, "{} MB after {before} MB", resident_mb());
        }
    }
    assert!(began.elapsed() < Duration::from_mins(5), "{:?}", began.elapsed());
    drop(kept);
    let deadline = Instant::now() + Duration::from_mins(1);
    while server.connections() > 1 {
        assert!(Instant::now() < deadline, "{} connections are left", server.connections());
        thread::sleep(Duration::from_millis(50));
    }
    let mut bytes = Vec::new();
    store(server.address(), None).read("a", &mut bytes).unwrap();
    let stats = server.stats();
    assert!(stats.connections_total >= 10_002 && stats.refused > 5000, "{stats:?}");
}

/// Authenticated clients that send no requests.
fn idle_clients(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let hello = Request::Hello { protocol: PROTOCOL, engine: engine_version() };
    let greet = || {
        let mut stream = TcpStream::connect(address).unwrap();
        Frame::new(0, &hello, Vec::new()).unwrap().write(&mut stream, &mut Sequence::default()).unwrap();
        let reply = Frame::read(&mut stream, &mut Sequence::default(), 10_000).unwrap().unwrap();
        assert_eq!(reply.message::<Reply>().unwrap(), Reply::Welcome);
        stream
    };
    (0..count).map(|_| greet()).collect()
}

#[test]
fn a_server_that_is_full_is_asked_again_until_there_is_a_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "hello").unwrap();
    let server = serve(folder.path());
    let mut idle = idle_clients(server.address(), 256);
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut bytes = Vec::new();
    thread::scope(|scope| {
        let asking = scope.spawn(|| store(server.address(), None).read("a", &mut bytes));
        while server.stats().refused == 0 {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(5));
        }
        idle.clear();
        asking.join().unwrap().unwrap();
    });
    assert_eq!(bytes, b"hello");
}

#[test]
fn somebody_who_sends_a_byte_now_and_then_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let mut hello = Vec::new();
    Frame::new(0, &"hello", vec![0; 3000]).unwrap().write(&mut hello, &mut Sequence::default()).unwrap();
    let (began, mut sent) = (Instant::now(), 0);
    while stream.write_all(&hello[sent..=sent]).is_ok() {
        sent += 1;
        assert!(began.elapsed() < Duration::from_mins(1), "it is still there after {sent} bytes");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(sent > 40, "the head was taken, {sent} bytes of it");
}

#[test]
fn a_server_that_becomes_ten_times_slower_gives_the_same_batches_later_and_no_error() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("train"), 60, 3).unwrap();
    let expected = two_epochs(&plan(folder.path().join("train").to_str().unwrap()));
    let server = Server::start(ServerConfig { link_mbps: Some(20.0), ..config(folder.path()) }).unwrap();
    let loader = Loader::new(plan(&format!("feedline://{}/train", server.address())), &Machine::default());
    let first = loader.begin().unwrap();
    let mut found = Vec::new();
    let Next::Batch(batch) = loader.next_within(first, Duration::from_mins(1)).unwrap() else { panic!("no batch") };
    found.push(*batch);
    server.set_link_mbps(2.0);
    let (began, sent) = (Instant::now(), server.stats().sent_bytes);
    while let Next::Batch(batch) = loader.next_within(first, Duration::from_mins(1)).unwrap() {
        found.push(*batch);
    }
    found.extend(collect(&loader).unwrap());
    let slowly = (server.stats().sent_bytes - sent) as f64 - 200e3;
    assert!(slowly > 0.0 && began.elapsed().as_secs_f64() > slowly / 250e3, "{slowly} bytes in {:?}", began.elapsed());
    assert!(seen(&found) == expected);
    assert_eq!(loader.snapshot().store.retries, 0);
}

#[test]
fn sixty_four_clients_at_once_all_get_their_samples() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..50 {
        fs::write(folder.path().join(format!("{number:02}")), vec![number; 20_000]).unwrap();
    }
    let server = serve(folder.path());
    let address = server.address();
    let times: Vec<Duration> = thread::scope(|scope| {
        let client = || {
            let (store, began) = (store(address, None), Instant::now());
            for number in 0..50_u8 {
                let mut bytes = Vec::new();
                store.read(&format!("{number:02}"), &mut bytes).unwrap();
                assert!(bytes == vec![number; 20_000]);
            }
            began.elapsed()
        };
        let clients: Vec<_> = (0..64).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let (quickest, slowest) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*slowest < *quickest * 20 + Duration::from_mins(1), "{quickest:?} to {slowest:?}");
}

#[test]
fn a_throttled_server_sends_as_fast_as_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), vec![1; 1_000_000]).unwrap();
    let server = Server::start(ServerConfig { link_mbps: Some(16.0), ..config(folder.path()) }).unwrap();
    let began = Instant::now();
    let mut bytes = Vec::new();
    store(server.address(), None).read("a", &mut bytes).unwrap();
    assert_eq!(bytes.len(), 1_000_000);
    let seconds = began.elapsed().as_secs_f64();
    assert!(seconds > 0.4, "a megabyte at 2 MB/s took {seconds} s");
}

#[test]
fn a_server_limited_to_a_part_of_a_core_uses_no_more() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), vec![1; 2_000_000]).unwrap();
    let server = Server::start(ServerConfig { cpus: 0.25, ..config(folder.path()) }).unwrap();
    let (began, link) = (Instant::now(), Link::new(LinkTerms::plain(&server.address().to_string(), None)));
    let mut requests = 0;
    while began.elapsed() < Duration::from_millis(1500) {
        link.call(&Request::ReadAll { name: "a".to_owned() }).unwrap();
        requests += 1;
    }
    let (used, allowed) = (server.stats().cpu_seconds, began.elapsed().as_secs_f64() * 0.25);
    // The burst, plus one request of each thread.
    assert!(used > 0.0 && used < allowed + 0.2, "{used} s of {allowed} s for {requests} requests");
}
