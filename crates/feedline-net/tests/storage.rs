//! A storage server and its clients over real sockets: the same samples as locally, and faults with clear errors in bounded
//! time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use feedline_core::batch::{Batch, FieldData};
use feedline_core::store::{Store, StoreError};
use feedline_core::testing::{check_store, collect, write_pictures};
use feedline_core::{Document, Loader, Machine, Next, Plan, Registry};
use feedline_net::storage::{Link, RemoteStore, Server, ServerConfig, ServerError, Token};
use feedline_net::wire::{Frame, PROTOCOL, Reply, Request};

fn config(root: &Path) -> ServerConfig {
    ServerConfig {
        root: root.to_owned(),
        listen: "127.0.0.1:0".parse().unwrap(),
        cpus: 2,
        token: None,
        link_mbps: None,
    }
}

fn serve(root: &Path) -> Server {
    Server::start(config(root)).unwrap()
}

fn store(address: SocketAddr, token: Option<&str>) -> RemoteStore {
    let token = token.map(|token| Token::new(token).unwrap());
    RemoteStore::new(Arc::new(Link::new(&address.to_string(), token)), &address.to_string(), "")
}

fn plan(root: &str) -> Arc<Plan> {
    let text = format!(
        "batch_size = 4\nshuffle = true\nseed = 3\n[source]\nkind = \"folder\"\nroot = \"{root}\"\n[run]\nnum_workers = 4\n\
         [[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 16\n[[ops]]\nop = \"ToTensor\"\n"
    );
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    Arc::new(Document::parse(&text).unwrap().open(&registry).unwrap())
}

type Seen = Vec<(u64, Vec<i64>, Vec<u8>)>;

fn seen(batches: &[Batch]) -> Seen {
    let image = |batch: &Batch| batch.field("image").map(FieldData::bytes).unwrap().to_vec();
    batches.iter().map(|batch| (batch.epoch.0, batch.ids(), image(batch))).collect()
}

fn two_epochs(plan: &Arc<Plan>) -> Seen {
    let loader = Loader::new(Arc::clone(plan), &Machine::default());
    (0..2).flat_map(|_| seen(&collect(&loader).unwrap())).collect()
}

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
fn sizes_are_not_asked_for_file_by_file() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("train"), 6, 2).unwrap();
    let server = serve(folder.path());
    let local = plan(folder.path().join("train").to_str().unwrap());
    let remote = plan(&format!("feedline://{}/train", server.address()));
    for plan in [&local, &remote] {
        plan.find_sizes(&feedline_core::engine::Cancel::default());
    }
    assert_eq!((local.known_sizes().map(<[u64]>::len), remote.known_sizes()), (Some(6), None));
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
    check_store(&RemoteStore::new(Arc::new(Link::new(&address, None)), &address, "/train/"));
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
        assert!(feedline_core::error::chain(&error).contains("the token is wrong or missing"), "{error:?}");
    }
    let listen = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(
        Server::start(ServerConfig { listen, ..config(folder.path()) }),
        Err(ServerError::NeedsToken { .. })
    ));
}

#[test]
fn another_protocol_or_codec_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path());
    for hello in [
        Request::Hello { protocol: PROTOCOL + 1, codec: feedline_codec::VERSION.to_owned() },
        Request::Hello { protocol: PROTOCOL, codec: "libjpeg-99".to_owned() },
    ] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        Frame::new(0, &hello, Vec::new()).unwrap().write(&mut stream).unwrap();
        let reply = Frame::read(&mut stream, 10_000).unwrap().unwrap().message().unwrap();
        let Reply::Refused { reason } = reply else { panic!("{reply:?}") };
        let own = format!("protocol {PROTOCOL} with codec {:?}", feedline_codec::VERSION);
        assert!(reason.contains(&own) && (reason.contains("protocol 2") || reason.contains("libjpeg-99")), "{reason}");
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
        assert!(error.to_string().contains("outside of what this server serves"), "{name}: {error}");
        assert!(store.open(name).is_err());
    }
    assert!(store.list(&|_| true).unwrap().iter().eq(["a"]));
    let above = RemoteStore::new(Arc::new(Link::new(&server.address().to_string(), None)), "server", "..");
    assert!(above.list(&|_| true).is_err());
    assert!(matches!(store.read("gone", &mut Vec::new()), Err(StoreError::NotFound { .. })));
}

/// Passes a connection on to a server, changing what comes back by `spoil`, which gets each piece and how many came before.
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
        // The first connections are damaged or cut in the middle of the file, the later ones are good.
        let is_early = pieces == 20 && spoiled.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 4;
        if is_early {
            piece[7] ^= 1;
        }
        !is_early || spoiled.load(std::sync::atomic::Ordering::Relaxed).is_multiple_of(2)
    });
    let link = Arc::new(Link::new(&address.to_string(), None));
    let store = RemoteStore::new(Arc::clone(&link), "relay", "");
    let mut bytes = Vec::new();
    store.read("a", &mut bytes).unwrap();
    assert!(bytes == content);
    assert!(link.counts().retries >= 3, "{:?}", link.counts());
}

#[test]
fn a_server_that_is_gone_is_an_error_that_names_it_in_bounded_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let began = Instant::now();
    let link = Link::with_patience(&address.to_string(), None, Duration::from_secs(2));
    let error = RemoteStore::new(Arc::new(link), "gone", "").read("a", &mut Vec::new()).unwrap_err();
    let text = feedline_core::error::chain(&error);
    assert!(text.contains(&address.to_string()) && text.contains("is `feedline storage` running there?"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn junk_connections_neither_crash_nor_block_the_server() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "hello").unwrap();
    let server = serve(folder.path());
    let good = store(server.address(), None);
    good.read("a", &mut Vec::new()).unwrap();
    let mut kept = Vec::new();
    for number in 0..2000 {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        match number % 4 {
            0 => drop(stream),
            1 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap_or_default(),
            2 => stream.write_all(&[0xff; 64]).unwrap_or_default(),
            // Says nothing, and stays.
            _ if kept.len() < 300 => kept.push(stream),
            _ => drop(stream),
        }
    }
    let mut bytes = Vec::new();
    good.read("a", &mut bytes).unwrap();
    assert_eq!(bytes, b"hello");
    drop(kept);
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.connections() > 1 {
        assert!(Instant::now() < deadline, "{} connections are left", server.connections());
        thread::sleep(Duration::from_millis(50));
    }
    store(server.address(), None).read("a", &mut bytes).unwrap();
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
    assert!(*slowest < *quickest * 20 + Duration::from_secs(5), "{quickest:?} to {slowest:?}");
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
