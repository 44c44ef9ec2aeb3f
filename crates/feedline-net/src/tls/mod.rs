//! Connections that nobody else can read.
//!
//! - `identity.rs` is who a server is: its certificate and key
//! - `trust.rs` is which servers a client believes, and what to do about one that it does not
//! - `stream.rs` is a connection, in TLS or plain, that one thread reads while another writes

mod identity;
mod stream;
mod trust;

pub use identity::Identity;
pub(crate) use stream::Stream;
pub use trust::Trust;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Why certificates and keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TlsError {
    #[error("{path:?} has no {what} in PEM that can be read")]
    Pem { path: PathBuf, what: &'static str, source: rustls::pki_types::pem::Error },
    #[error("{path:?} has no certificate in PEM")]
    Empty { path: PathBuf },
    #[error("the certificate and the key cannot be used together")]
    Pair(#[source] rustls::Error),
    #[error("the certificates of this machine cannot be used")]
    Roots(#[source] rustls::Error),
    #[error("TLS cannot be set up")]
    Versions(#[source] rustls::Error),
    #[error("{name:?} is no name that a certificate can have")]
    Name { name: String },
}

/// The cryptography library that is built in; which one the process uses elsewhere does not matter.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
