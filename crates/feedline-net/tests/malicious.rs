//! A client of a lying storage server: an error in bounded time, never wrong bytes, never much memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use feedline_data::failure::chain;
use feedline_data::plan::{Document, Registry};
use feedline_data::store::{Form, ServerCost, Store, StoreError, Version};
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::testing::collect;
use feedline_net::storage::{Link, LinkTerms, RemoteStore};
use feedline_net::wire::{Failure, Frame, Reply, Request, Sequence};

const PATIENCE: Duration = Duration::from_secs(2);
/// Longer than anything here takes, unless it hangs.
const LIMIT: Duration = Duration::from_mins(2);

/// How a server answers a request after the handshake.
type Lie = fn(&Request, u64, &mut TcpStream, &mut Sequence);

fn say(number: u64, reply: &Reply, bytes: Vec<u8>, stream: &mut TcpStream, sequence: &mut Sequence) {
    // The client may have closed the connection.
    Frame::new(number, reply, bytes).unwrap().write(stream, sequence).unwrap_or_default();
}

/// A server that answers with `lie`.
fn serve(lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let (mut incoming, mut outgoing) = (Sequence::default(), Sequence::default());
                while let Ok(Some(frame)) = Frame::read(&mut stream, &mut incoming, 1 << 20) {
                    match frame.message::<Request>().unwrap() {
                        Request::Hello { .. } => say(0, &Reply::Welcome, Vec::new(), &mut stream, &mut outgoing),
                        request => lie(&request, frame.request, &mut stream, &mut outgoing),
                    }
                }
            });
        }
    });
    address
}

fn store(address: SocketAddr) -> RemoteStore {
    let terms = LinkTerms { patience: PATIENCE, ..LinkTerms::plain(&address.to_string(), None) };
    RemoteStore::new(Arc::new(Link::new(terms)), &format!("feedline://{address}"), "")
}

fn resident_mb() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0 / 1e6
}

#[track_caller]
fn check(what: &str, lie: Lie, ask: impl Fn(&RemoteStore) -> Result<(), StoreError>) {
    let (began, before) = (Instant::now(), resident_mb());
    let error = ask(&store(serve(lie))).expect_err(what);
    assert!(began.elapsed() < LIMIT, "{what}: {:?}", began.elapsed());
    assert!(resident_mb() < before + 400.0, "{what}: {} MB after {before} MB", resident_mb());
    assert!(chain(&error).len() < 2000, "{what}: {} characters", chain(&error).len());
}

fn read(store: &RemoteStore) -> Result<(), StoreError> {
    store.read("a", &mut Vec::new())
}

fn read_part(store: &RemoteStore) -> Result<(), StoreError> {
    store.open("a")?.read_at(0, &mut [0; 100])
}

fn list(store: &RemoteStore) -> Result<(), StoreError> {
    store.list(&|_| true).map(drop)
}

#[test]
fn answers_of_another_kind_or_length_are_errors() {
    check("another kind", |_, n, s, q| say(n, &Reply::Planned, Vec::new(), s, q), read);
    check("another kind", |_, n, s, q| say(n, &Reply::Bytes, Vec::new(), s, q), list);
    check(
        "too many bytes",
        |request, n, s, q| match request {
            Request::Open { .. } => {
                say(n, &Reply::Opened(Version { len: 1000, modified_nanoseconds: None }), Vec::new(), s, q);
            }
            _ => say(n, &Reply::Bytes, vec![1; 101], s, q),
        },
        read_part,
    );
    check(
        "a long reason",
        |_, n, s, q| {
            say(n, &Reply::Failed { failure: Failure::Other, reason: "x".repeat(1 << 20) }, Vec::new(), s, q);
        },
        read,
    );
}

#[test]
fn lengths_that_are_lies_cost_neither_memory_nor_time() {
    check(
        "a file of 4 exabytes, read whole",
        |request, n, s, q| match request {
            Request::Open { .. } => {
                say(n, &Reply::Opened(Version { len: 1 << 62, modified_nanoseconds: None }), Vec::new(), s, q);
            }
            _ => say(n, &Reply::Failed { failure: Failure::TooLong, reason: String::new() }, Vec::new(), s, q),
        },
        |store| {
            let object = store.open("a")?;
            let remote = object.remote().unwrap();
            let cancel = feedline_data::memory::Cancel::default();
            feedline_data::store::fetch_waiting(remote, 0..object.len(), &cancel)?.bytes.map(drop)
        },
    );
    // A valid head with a false length, of a frame whose bytes never arrive.
    check(
        "a frame that is too long",
        |_, n, s, q| {
            let mut wire = Vec::new();
            Frame::new(n, &Reply::Bytes, vec![0; 100]).unwrap().write(&mut wire, q).unwrap();
            wire[8..16].copy_from_slice(&(1_u64 << 40).to_le_bytes());
            s.write_all(&wire).unwrap_or_default();
        },
        read,
    );
}

#[test]
fn garbage_broken_frames_and_silence_are_errors() {
    check("garbage", |_, _, s, _| s.write_all(&[0xff; 4096]).unwrap_or_default(), read);
    check(
        "half a frame",
        |_, n, s, q| {
            let mut wire = Vec::new();
            Frame::new(n, &Reply::Bytes, vec![0; 5000]).unwrap().write(&mut wire, q).unwrap();
            s.write_all(&wire[..2000]).unwrap_or_default();
            s.shutdown(std::net::Shutdown::Both).unwrap_or_default();
        },
        read,
    );
    check(
        "a message that cannot be read",
        |_, n, s, q| {
            Frame::new(n, &"no reply", vec![]).unwrap().write(s, q).unwrap_or_default();
        },
        read,
    );
    check("another frame number", |_, n, s, _| say(n, &Reply::Bytes, vec![1], s, &mut Sequence::default()), read);
}

#[test]
fn names_that_no_listing_has_are_refused() {
    fn names(names: &[&str]) -> Reply {
        let names = names.iter().map(|name| ((*name).to_owned(), None)).collect();
        Reply::Names { names, left_out: 0 }
    }
    check("leads out", |_, n, s, q| say(n, &names(&["../../etc/passwd"]), Vec::new(), s, q), list);
    check("absolute", |_, n, s, q| say(n, &names(&["/etc/passwd"]), Vec::new(), s, q), list);
    check("empty", |_, n, s, q| say(n, &names(&[""]), Vec::new(), s, q), list);
    check("twice", |_, n, s, q| say(n, &names(&["a", "a"]), Vec::new(), s, q), list);
    check("not in order", |_, n, s, q| say(n, &names(&["b", "a"]), Vec::new(), s, q), list);
}

#[test]
fn samples_that_are_garbage_fail_by_name() {
    let address = serve(|request, n, s, q| match request {
        Request::List { .. } => {
            let version = Some(Version { len: 500, modified_nanoseconds: Some(1) });
            let names = (0..4).map(|number| (format!("c/{number}.jpg"), version)).collect();
            say(n, &Reply::Names { names, left_out: 0 }, Vec::new(), s, q);
        }
        Request::Plan { .. } => say(n, &Reply::Planned, Vec::new(), s, q),
        Request::Prepare { .. } => {
            let numbers = (u64::MAX, f32::NAN, Some(f64::INFINITY));
            let spent = ServerCost {
                form: Form::RAW,
                nanoseconds: numbers.0,
                stored_bytes: numbers.0,
                cores: numbers.1,
                bytes_per_second: numbers.2,
                ..ServerCost::default()
            };
            say(n, &Reply::Prepared(spent), vec![0xff; 300], s, q);
        }
        _ => say(n, &Reply::Bytes, vec![0xff; 500], s, q),
    });
    let mut registry = Registry::core();
    registry.store("feedline", move |_| Ok(Arc::new(store(address))));
    for policy in ["none", "auto", "all"] {
        let text = format!(
            "batch_size = 2\n[source]\nkind = \"folder\"\nroot = \"feedline://{address}/\"\n[run]\noffload = \"{policy}\"\n\
             [[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"RandomResizedCrop\"\nsize = 8\n"
        );
        let plan = Arc::new(Document::parse(&text).unwrap().open(&registry).unwrap());
        let began = Instant::now();
        let error = collect(&Loader::new(plan, &Machine::default())).unwrap_err();
        assert!(chain(&error).contains("c/0.jpg"), "{policy}: {}", chain(&error));
        assert!(began.elapsed() < LIMIT);
    }
}
