//! Encrypted connections.
//!
//! - `identity.rs` is the identity of a server: its certificate and key
//! - `trust.rs` decides which servers a client trusts, and explains rejections
//! - `stream.rs` is a connection, with or without TLS, that one thread reads while another writes

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
    #[error("{path:?} contains no readable {what} in PEM format")]
    Pem { path: PathBuf, what: &'static str, source: rustls::pki_types::pem::Error },
    #[error("{path:?} contains no certificate in PEM format")]
    Empty { path: PathBuf },
    #[error("the certificate and the key do not belong together")]
    Pair(#[source] rustls::Error),
    #[error("the certificates of this machine cannot be used")]
    Roots(#[source] rustls::Error),
    #[error("TLS cannot be set up")]
    Versions(#[source] rustls::Error),
    #[error("{name:?} is not a valid host name for a certificate")]
    Name { name: String },
}

/// The built-in cryptography library, whatever the rest of the process uses.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
