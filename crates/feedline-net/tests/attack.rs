//! Hostile clients against a storage server: it stays within its memory, and serves honest clients.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use feedline_data::store::Store as _;
use feedline_net::storage::{Link, LinkTerms, RemoteStore, Server, ServerConfig, Token};
use feedline_net::wire::{Frame, PROTOCOL, Reply, Request, Sequence, engine_version};
use served::{config, serve, store};

mod served;

/// A client that speaks the protocol by hand.
struct Client {
    stream: TcpStream,
    incoming: Sequence,
    outgoing: Sequence,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let mut client = Self { stream, incoming: Sequence::default(), outgoing: Sequence::default() };
        client.say(0, &Request::Hello { protocol: PROTOCOL, engine: engine_version() });
        assert_eq!(client.hear().message::<Reply>().unwrap(), Reply::Welcome);
        client
    }

    fn say(&mut self, number: u64, request: &Request) {
        Frame::new(number, request, Vec::new()).unwrap().write(&mut self.stream, &mut self.outgoing).unwrap();
    }

    fn hear(&mut self) -> Frame {
        Frame::read(&mut self.stream, &mut self.incoming, 1 << 30).unwrap().unwrap()
    }
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn law_5_clients_that_ask_and_do_not_read_take_no_more_than_the_servers_memory() {
    const MEMORY: u64 = 64 << 20;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("large"), vec![7; 16 << 20]).unwrap();
    fs::write(folder.path().join("small"), "hello").unwrap();
    let server = Server::start(ServerConfig { memory_bytes: MEMORY, ..config(folder.path()) }).unwrap();
    let mut greedy: Vec<Client> = (0..12).map(|_| Client::connect(server.address())).collect();
    for number in 0..4 {
        for client in &mut greedy {
            client.say(number, &Request::ReadAll { name: "large".to_owned() });
        }
    }
    let mut most = 0;
    wait_until("replies fill the memory", || {
        most = most.max(server.stats().reply_bytes);
        most > MEMORY / 2
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        most = most.max(server.stats().reply_bytes);
        // While large replies have no room, small replies still have some.
        let mut bytes = Vec::new();
        store(server.address(), None).read("small", &mut bytes).unwrap();
        assert_eq!(bytes, b"hello");
    }
    assert!(most <= MEMORY, "{most} bytes of {MEMORY}");
    // Clients whose reply waited for room get it, byte for byte.
    thread::scope(|scope| {
        for mut client in greedy {
            scope.spawn(move || {
                for _ in 0..4 {
                    let reply = client.hear();
                    assert!(reply.bytes == vec![7; 16 << 20], "{} bytes", reply.bytes.len());
                }
            });
        }
    });
    wait_until("all memory is free", || server.stats().reply_bytes == 0);
}

#[test]
fn honest_clients_get_in_while_somebody_holds_as_many_connections_as_there_are() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "hello").unwrap();
    let server = Server::start(ServerConfig { token: Token::new("secret"), ..config(folder.path()) }).unwrap();
    let (address, has_ended) = (server.address(), AtomicBool::new(false));
    thread::scope(|scope| {
        // Each holds silent connections, and opens a new one for each that the server ends.
        for _ in 0..4 {
            scope.spawn(|| {
                let mut held: Vec<TcpStream> = Vec::new();
                while !has_ended.load(Ordering::Relaxed) {
                    held.retain_mut(|stream| {
                        stream.set_nonblocking(true).unwrap();
                        matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
                    });
                    while held.len() < 100 {
                        held.push(TcpStream::connect(address).unwrap());
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
        wait_until("all places are held", || server.stats().refused > 300);
        let attempts = (0..50).map(|_| {
            let terms = LinkTerms::plain(&address.to_string(), Token::new("secret"));
            let link = Link::new(LinkTerms { patience: Duration::from_secs(20), ..terms });
            let mut bytes = Vec::new();
            RemoteStore::new(Arc::new(link), "server", "").read("a", &mut bytes).map(|()| bytes)
        });
        let found: Vec<_> = attempts.collect();
        has_ended.store(true, Ordering::Relaxed);
        for bytes in found {
            assert_eq!(bytes.unwrap(), b"hello");
        }
    });
    assert!(server.connections() < 256);
}

#[test]
fn what_lies_behind_links_out_of_the_root_is_neither_counted_nor_named() {
    let folder = tempfile::tempdir().unwrap();
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    fs::create_dir_all(root.join("train")).unwrap();
    fs::create_dir_all(outside.join("private")).unwrap();
    fs::write(root.join("train/a.jpg"), "a").unwrap();
    fs::write(outside.join("private/secret-name.jpg"), "s").unwrap();
    // A walk that followed the link would never end, and its error would name the folder.
    symlink(&outside, outside.join("loop")).unwrap();
    symlink(&outside, root.join("train/away")).unwrap();
    symlink("../../outside/private/secret-name.jpg", root.join("train/link.jpg")).unwrap();
    let server = serve(&root);
    let mut client = Client::connect(server.address());
    let text = format!(
        "batch_size = 1\n[source]\nkind = \"folder\"\nroot = \"feedline://{}/train\"\n[[ops]]\nop = \"DecodeImage\"\n",
        server.address()
    );
    let requests = [
        Request::List { folder: "train".to_owned(), is_flat: false },
        Request::List { folder: "train/away".to_owned(), is_flat: false },
        Request::Open { name: "train/link.jpg".to_owned() },
        Request::ReadAll { name: "train/away/private/secret-name.jpg".to_owned() },
        Request::Plan { text, listing: 0 },
    ];
    for (number, request) in (1..).zip(&requests) {
        client.say(number, request);
        let reply = client.hear();
        let told = format!("{:?} {:?}", reply.message::<Reply>().unwrap(), String::from_utf8_lossy(&reply.bytes));
        assert!(!told.contains("private") || matches!(request, Request::ReadAll { .. }), "{request:?}: {told}");
        assert!(!told.contains(outside.to_str().unwrap()), "{request:?}: {told}");
    }
    let names = store(server.address(), None).list(&|_| true).unwrap();
    assert!(names.iter().eq(["train/a.jpg"]), "{names:?}");
}

#[test]
fn law_5_listings_longer_than_the_memory_are_made_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..2000 {
        std::fs::write(folder.path().join(format!("a-name-of-some-length-{number:06}.jpg")), b"").unwrap();
    }
    let server = Server::start(ServerConfig { memory_bytes: 64 << 10, ..config(folder.path()) }).unwrap();
    std::thread::scope(|scope| {
        let list = || store(server.address(), None).list(&|_| true).unwrap().len();
        let clients: Vec<_> = (0..6).map(|_| scope.spawn(list)).collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), 2000);
        }
    });
    let listed = store(server.address(), None).list(&|_| true).unwrap();
    assert_eq!(listed.len(), 2000, "nothing stays booked");
}
