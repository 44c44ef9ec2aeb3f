//! A storage server with TLS, over real sockets: the same bytes, and every mismatch is a clear error at once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use feedline_data::failure::chain;
use feedline_data::store::{Store, StoreError};
use feedline_data::testing::write_pictures;
use feedline_engine::testing::check_store;
use feedline_net::storage::{Link, LinkTerms, REPLY_MEMORY_BYTES, RemoteStore, Root, Server, ServerConfig, Token};
use feedline_net::tls::{Identity, TlsError, Trust};

/// Files with a certificate for some names, and its key.
struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificate {
    fn write(folder: &Path, names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (certificate, key) = (folder.join("server.pem"), folder.join("server.key"));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        Self { certificate, key }
    }

    fn identity(&self) -> Identity {
        Identity::read(&self.certificate, &self.key).unwrap()
    }

    fn trust(&self) -> Trust {
        Trust::system_and(Some(&self.certificate)).unwrap()
    }
}

fn serve(root: &Path, identity: Option<Identity>) -> Server {
    let (root, listen) = (Root::folder(root).unwrap(), "127.0.0.1:0".parse().unwrap());
    let token = Token::new("secret");
    Server::start(ServerConfig {
        root,
        listen,
        cpus: 2.0,
        token,
        identity,
        memory_bytes: REPLY_MEMORY_BYTES,
        link_mbps: None,
        cache_folder: None,
        http: None,
    })
    .unwrap()
}

fn store(server: &Server, trust: Option<Trust>) -> RemoteStore {
    let terms = LinkTerms::plain(&server.address().to_string(), Token::new("secret"));
    RemoteStore::new(Arc::new(Link::new(LinkTerms { trust, ..terms })), "server", "")
}

#[track_caller]
fn check_refused(store: &RemoteStore, expected: &str) {
    let began = Instant::now();
    let error = store.read("a", &mut Vec::new()).unwrap_err();
    let text = chain(&error);
    assert!(text.contains(expected), "{text}");
    assert!(began.elapsed() < Duration::from_secs(30), "took {:?}: {text}", began.elapsed());
}

#[test]
fn a_server_with_tls_is_a_store_that_many_threads_use_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::write(folder.path(), &["127.0.0.1"]);
    let root = folder.path().join("root");
    write_pictures(&root.join("train"), 6, 2).unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(root.join("large"), &large).unwrap();
    let server = serve(&root, Some(certificate.identity()));
    let store = store(&server, Some(certificate.trust()));
    check_store(&store);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let mut bytes = Vec::new();
                    store.read("large", &mut bytes).unwrap();
                    assert!(bytes == large);
                }
            });
        }
    });
}

#[test]
fn a_plain_client_is_told_that_the_server_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::write(folder.path(), &["127.0.0.1"]);
    check_refused(&store(&serve(folder.path(), Some(certificate.identity())), None), "use feedlines://");
}

#[test]
fn a_client_with_tls_is_told_that_the_server_speaks_none() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::write(folder.path(), &["127.0.0.1"]);
    check_refused(
        &store(&serve(folder.path(), None), Some(certificate.trust())),
        "it does not use TLS; use feedline://",
    );
}

#[test]
fn a_certificate_that_nobody_knows_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::write(folder.path(), &["127.0.0.1"]);
    let server = serve(folder.path(), Some(certificate.identity()));
    check_refused(&store(&server, Some(Trust::system_and(None).unwrap())), "set FEEDLINE_TLS_CA");
}

#[test]
fn a_certificate_for_another_host_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::write(folder.path(), &["elsewhere.example"]);
    let server = serve(folder.path(), Some(certificate.identity()));
    let store = store(&server, Some(certificate.trust()));
    check_refused(&store, "its certificate does not name \"127.0.0.1\"");
    check_refused(&store, "elsewhere.example");
}

#[test]
fn files_that_are_no_certificate_or_not_the_key_of_it_are_refused_by_path() {
    let folder = tempfile::tempdir().unwrap();
    let good = Certificate::write(folder.path(), &["localhost"]);
    let other = tempfile::tempdir().unwrap();
    let other = Certificate::write(other.path(), &["localhost"]);
    let text = folder.path().join("text");
    fs::write(&text, "text").unwrap();
    assert!(matches!(Identity::read(&text, &good.key), Err(TlsError::Empty { .. })));
    assert!(Identity::read(&good.certificate, &text).unwrap_err().to_string().contains("text"));
    assert!(matches!(Identity::read(&good.certificate, &other.key), Err(TlsError::Pair(_))));
    assert!(Trust::system_and(Some(&folder.path().join("gone"))).unwrap_err().to_string().contains("gone"));
}

#[test]
fn a_wrong_token_is_told_inside_of_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::write(folder.path(), &["127.0.0.1"]);
    let server = serve(folder.path(), Some(certificate.identity()));
    let terms = LinkTerms::plain(&server.address().to_string(), Token::new("wrong"));
    let link = Link::new(LinkTerms { trust: Some(certificate.trust()), ..terms });
    check_refused(&RemoteStore::new(Arc::new(link), "server", ""), "the token is wrong or missing");
    let missing = store(&server, Some(certificate.trust())).read("gone", &mut Vec::new());
    assert!(matches!(missing, Err(StoreError::NotFound { .. })));
}
