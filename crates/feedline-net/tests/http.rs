//! HTTP pages, requested by a real client and by hostile ones.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::testing::open;
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_net::http::{HttpServer, Page, Routes};
use feedline_net::loader::{MetricsError, serve};
use feedline_net::storage::{Link, LinkTerms, REPLY_MEMORY_BYTES, Root, Server, ServerConfig, ServerError};
use feedline_net::wire::Request;

/// Sends a request and reads the whole answer.
fn ask(address: SocketAddr, question: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(question.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

fn pages() -> HttpServer {
    let routes =
        Routes::default().with("/hello", || Page::text("hello there")).with("/json", || Page::of_data(&[1, 2]));
    HttpServer::start("127.0.0.1:0".parse().unwrap(), routes).unwrap()
}

#[test]
fn pages_are_given_to_get_and_head_and_to_nothing_else() {
    let server = pages();
    let page = get(server.address(), "/hello?x=1");
    assert!(page.starts_with("HTTP/1.1 200") && page.ends_with("\r\n\r\nhello there"), "{page}");
    let head = ask(server.address(), "HEAD /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(head.contains("content-length: 11") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(get(server.address(), "/json").contains("application/json"));
    let missing = get(server.address(), "/../etc/passwd");
    assert!(missing.starts_with("HTTP/1.1 404") && missing.contains("there are /hello /json"), "{missing}");
    let posted =
        ask(server.address(), "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405") && posted.contains("allow: GET, HEAD"), "{posted}");
}

#[test]
fn a_connection_is_for_one_page() {
    let server = pages();
    let two = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2);
    let answer = ask(server.address(), &two);
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[test]
fn silent_and_endless_questions_end_and_others_are_answered() {
    let server = pages();
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let began = Instant::now();
    let endless = format!("GET /hello HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    // The server closes the connection before everything is sent.
    stream.write_all(endless.as_bytes()).unwrap_or_default();
    drop(silent);
    assert!(get(server.address(), "/hello").ends_with("hello there"));
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

#[test]
fn a_storage_server_says_how_it_is_doing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), vec![1; 5000]).unwrap();
    let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = ServerConfig {
        root: Root::folder(folder.path()).unwrap(),
        listen,
        cpus: 1.0,
        token: None,
        identity: None,
        memory_bytes: REPLY_MEMORY_BYTES,
        link_mbps: None,
        cache_folder: None,
        http: Some(listen),
    };
    let server = Server::start(config.clone()).unwrap();
    let http = server.http_address().unwrap();
    assert!(get(http, "/health").starts_with("HTTP/1.1 200"));
    let link = Link::new(LinkTerms::plain(&server.address().to_string(), None));
    for name in ["a", "a", "gone"] {
        link.call(&Request::ReadAll { name: name.to_owned() }).unwrap();
    }
    let metrics = get(http, "/metrics");
    for line in [
        "feedline_storage_requests_total{kind=\"read_all\"} 3\n",
        "feedline_storage_failures_total{kind=\"read_all\"} 1\n",
        "feedline_storage_content_bytes_total 10000\n",
        "feedline_storage_connections 1\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let stats = get(http, "/stats");
    assert!(stats.contains("\"read_all\": 3") && stats.contains("\"cpu_seconds\": "), "{stats}");
    let outside = ServerConfig { http: Some("0.0.0.0:0".parse().unwrap()), ..config };
    assert!(matches!(Server::start(outside), Err(ServerError::NeedsToken { .. })));
    drop(server);
    assert!(TcpStream::connect_timeout(&http, Duration::from_secs(1)).is_err(), "it has ended with the server");
}

#[test]
fn a_loader_serves_its_numbers_where_it_is_told_to_and_says_why_it_cannot() {
    let plan = open("batch_size = 4\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [2]\n").unwrap();
    let stream = Arc::new(Loader::new(plan, &Machine::default()));
    let server = serve(Arc::clone(&stream), "localhost:0").unwrap();
    let address = server.address();
    assert!(get(address, "/metrics").contains("feedline_loader_samples_total{plan=\""));
    assert!(get(address, "/stats").contains("\"prediction_error\": 0.0"));
    assert!(get(address, "/health").starts_with("HTTP/1.1 200"));
    let again = serve(Arc::clone(&stream), &address.to_string());
    assert!(matches!(again, Err(MetricsError::InUse { listen }) if listen == address));
    for wrong in ["nonsense", "127.0.0.1", "127.0.0.1:99999", "localhost:", ""] {
        let refused = serve(Arc::clone(&stream), wrong);
        assert!(matches!(refused, Err(MetricsError::Address { .. })), "{wrong:?}");
    }
    drop(server);
    assert!(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err(), "it ends when it is dropped");
    assert!(serve(stream, &address.to_string()).is_ok(), "the port is free");
}
