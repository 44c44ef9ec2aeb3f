//! Which servers a client trusts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, ClientConnection, Error, RootCertStore};

use super::identity::certificates;
use super::{TlsError, provider};

/// The environment variable with a file of additional trusted certificates.
const AUTHORITY_FILE: &str = "FEEDLINE_TLS_CA";

/// The authorities that a client trusts.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust(..)")
    }
}

impl Trust {
    /// The authorities of this machine, and those of the file that the environment names.
    pub(crate) fn from_environment() -> Result<Self, TlsError> {
        let file = std::env::var_os(AUTHORITY_FILE).filter(|path| !path.is_empty()).map(PathBuf::from);
        Self::system_and(file.as_deref())
    }

    /// The authorities of this machine, and those of a file.
    pub fn system_and(file: Option<&Path>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        // Machines often have a few certificates that rustls cannot parse. The others still work.
        let (_, ignored) = roots.add_parsable_certificates(found.certs);
        tracing::debug!(ignored, errors = found.errors.len(), "read the certificates of this machine");
        for certificate in file.map(certificates).transpose()?.into_iter().flatten() {
            roots.add(certificate).map_err(TlsError::Roots)?;
        }
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(TlsError::Versions)?.with_root_certificates(roots);
        Ok(Self(Arc::new(builder.with_no_client_auth())))
    }

    /// A session with a host. Its certificate must name the host.
    pub(super) fn session(&self, host: &str) -> Result<ClientConnection, TlsError> {
        let wrong = || TlsError::Name { name: host.to_owned() };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
        ClientConnection::new(Arc::clone(&self.0), name).map_err(TlsError::Versions)
    }
}

/// Explains what is wrong with a server, and what to do.
pub(super) fn advice(error: &Error, host: &str) -> String {
    match error {
        Error::InvalidMessage(_) => {
            "it does not use TLS; use feedline://, or start the server with --tls-cert and --tls-key".to_owned()
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => format!(
            "its certificate is not signed by a trusted authority; set {AUTHORITY_FILE} to the certificate file of its authority, or \
             to its own certificate if that is self-signed"
        ),
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            format!(
                "its certificate does not name {host:?}: {error}; use a host name that it contains, or get one for this name"
            )
        }
        // The library has no variant for it.
        _ if error.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is that of an authority, not of a server; create one with basicConstraints=CA:FALSE"
                .to_owned()
        }
        Error::InvalidCertificate(_) => format!("its certificate is not accepted: {error}; replace it"),
        _ => format!("{error}; do client and server have the same version of feedline?"),
    }
}
