//! Objects of a web server on loopback, and of one that disappears. Buckets are tested in `tests/test_object_store.py`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use feedline_data::failure::chain;
use feedline_data::memory::Cancel;
use feedline_data::plan::Registry;
use feedline_data::source::Opener;
use feedline_data::store::{Store, StoreError, fetch_waiting, read_ranges};
use feedline_memory::Mutex;
use feedline_net::object::register_patient;

const RETRY_TIME: Duration = Duration::from_millis(700);

/// A web server with one file, which may change, and which may answer nothing.
struct Server {
    address: String,
    content: Mutex<Vec<u8>>,
    is_silent: AtomicBool,
}

impl Server {
    fn start(content: Vec<u8>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = Arc::new(Self { address, content: Mutex::new(content), is_silent: AtomicBool::new(false) });
        let serving = Arc::clone(&server);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Arc::clone(&serving);
                thread::spawn(move || while server.answer(&stream).is_some() {});
            }
        });
        server
    }

    /// Answers one request. `None` at the end of the connection.
    fn answer(&self, mut stream: &TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream).lines();
        let request = lines.next()?.ok()?;
        let headers: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        if self.is_silent.load(Ordering::Relaxed) {
            return None;
        }
        let content = self.content.lock().clone();
        let range =
            headers.iter().find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
        let is_known = request.contains(" /folder/file ");
        let (status, body) = match range {
            _ if !is_known => ("404 Not Found".to_owned(), Vec::new()),
            Some(range) => {
                let (first, last) = range.split_once('-')?;
                let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
                let status = format!("206 Partial Content\r\nContent-Range: bytes {first}-{last}/{}", content.len());
                (status, content.get(first..=last)?.to_vec())
            }
            None => ("200 OK".to_owned(), content),
        };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len()).ok()?;
        if !request.starts_with("HEAD") {
            stream.write_all(&body).ok()?;
        }
        Some(())
    }

    fn store(&self) -> Arc<dyn Store> {
        let mut registry = Registry::core();
        register_patient(&mut registry, RETRY_TIME);
        registry.store_for(&format!("{}/folder", self.address)).unwrap()
    }
}

#[test]
fn wholes_ranges_and_what_is_missing() {
    let content: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
    let store = Server::start(content.clone()).store();
    let mut whole = Vec::new();
    store.read("file", &mut whole).unwrap();
    assert_eq!(whole, content);
    let object = store.open("file").unwrap();
    assert_eq!((object.len(), object.address().ends_with("/folder/file")), (100_000, true));
    let parts = read_ranges(&*object, &[5..10, 99_990..100_000, 7..7]).unwrap();
    assert_eq!(parts, [&content[5..10], &content[99_990..], &[]]);
    assert!(matches!(object.read_at(99_999, &mut [0; 2]), Err(StoreError::Truncated { .. })));
    assert!(matches!(store.open("nothing"), Err(StoreError::NotFound { .. })));
    let error = store.list(&|_| true).unwrap_err().to_string();
    assert!(error.contains("name the shards"), "{error}");
}

#[test]
fn an_object_of_another_length_is_refused_where_there_are_no_tags() {
    let server = Server::start(vec![1; 1000]);
    let object = server.store().open("file").unwrap();
    *server.content.lock() = vec![2; 999];
    let error = object.read_at(10, &mut [0; 10]).unwrap_err().to_string();
    assert!(error.contains("it has 999 bytes, and had 1000; open the source again"), "{error}");
}

#[test]
fn law_7_a_peer_that_is_gone_is_an_error_within_the_time_for_retries_that_says_what_to_check() {
    let server = Server::start(vec![1; 1000]);
    let object = server.store().open("file").unwrap();
    server.is_silent.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let answer = fetch_waiting(object.remote().unwrap(), 0..10, &Cancel::default()).unwrap();
    let text = chain(&answer.bytes.unwrap_err());
    assert!(start.elapsed() < RETRY_TIME + Duration::from_secs(30), "{:?}", start.elapsed());
    assert!(text.contains(&server.address) && text.contains("cannot be reached") && text.contains("address"), "{text}");
    assert!(answer.traffic.retries > 0 && answer.traffic.requests == answer.traffic.retries + 1);
}

#[test]
fn a_server_that_comes_back_is_asked_again_and_a_fetch_that_is_dropped_is_not() {
    let server = Server::start(vec![7; 1000]);
    let object = server.store().open("file").unwrap();
    server.is_silent.store(true, Ordering::Relaxed);
    let (sender, answers) = mpsc::channel();
    let fetches = [0, 1].map(|number| {
        let sender = sender.clone();
        let done = Box::new(move |answer| drop(sender.send((number, answer))));
        object.remote().unwrap().fetch(0..10, done)
    });
    drop(sender);
    let [kept, dropped] = fetches;
    drop(dropped);
    server.is_silent.store(false, Ordering::Relaxed);
    let (number, answer) = answers.recv_timeout(Duration::from_mins(1)).unwrap();
    assert_eq!((number, answer.bytes.unwrap()), (0, vec![7; 10]));
    assert!(answers.recv_timeout(Duration::from_secs(10)).is_err());
    drop(kept);
}
