//! The identity of a server.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

use super::{TlsError, provider};

/// The certificate of a server, and its key.
#[derive(Clone)]
pub struct Identity(Arc<ServerConfig>);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(..)")
    }
}

impl Identity {
    /// Reads a certificate chain and its key.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let unreadable = |source| TlsError::Pem { path: key.to_owned(), what: "key", source };
        let key = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(TlsError::Versions)?.with_no_client_auth();
        Ok(Self(Arc::new(builder.with_single_cert(chain, key).map_err(TlsError::Pair)?)))
    }

    pub(super) fn session(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.0))
    }
}

/// The certificates of a file. At least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Pem { path: path.to_owned(), what: "certificate", source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found = found.map_err(unreadable)?;
    if found.is_empty() { Err(TlsError::Empty { path: path.to_owned() }) } else { Ok(found) }
}
