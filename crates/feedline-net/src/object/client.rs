//! Creates the client of a URL's provider.
//!
//! Credentials, regions and endpoints are those that `object_store` finds in the environment and in the files it names, and for S3
//! those of a profile. Time-outs are set here, unless the environment sets them.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use super::counting::CountingConnector;
use super::profile::with_profile;

/// How long a peer may send nothing before the request is repeated.
const READ_TIMEOUT: &str = "10 seconds";
/// The first and the longest pause between two attempts.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// Never reached: the time limit ends first.
const MAX_RETRIES: usize = 1000;

/// A kind of provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    S3,
    Google,
    Azure,
    Http,
    Https,
}

impl Scheme {
    /// All kinds, by the names that URLs begin with.
    pub(super) const ALL: [(&str, Self); 5] =
        [("s3", Self::S3), ("gs", Self::Google), ("az", Self::Azure), ("http", Self::Http), ("https", Self::Https)];

    /// What comes after `://`.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::S3 | Self::Google => "bucket",
            Self::Azure => "container",
            Self::Http | Self::Https => "host",
        }
    }

    /// Whether it is a plain web server.
    pub(super) fn is_web(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// Creates a client without sending anything.
pub(super) fn client(root: &str, scheme: Scheme, retry_time: Duration) -> object_store::Result<Arc<dyn ObjectStore>> {
    // The HTTP client uses the process-wide provider of rustls, so there must be one.
    use_ring();
    // Exponential backoff: 0.1 s, 0.2 s, ... up to 3 s. `retry_time` ends the attempts.
    let backoff = BackoffConfig { init_backoff: FIRST_WAIT, max_backoff: LONGEST_WAIT, base: 2.0 };
    let retry = RetryConfig { backoff, max_retries: MAX_RETRIES, retry_timeout: retry_time };
    Ok(match scheme {
        Scheme::S3 => {
            let mut builder = with_profile(AmazonS3Builder::from_env()).with_url(root).with_retry(retry);
            let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::ReadTimeout);
            if builder.get_config_value(&timeout).is_none() {
                builder = builder.with_config(timeout, READ_TIMEOUT);
            }
            // The user named an endpoint without TLS.
            let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
            if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
                builder = builder.with_allow_http(true);
            }
            Arc::new(builder.with_http_connector(CountingConnector).build()?)
        }
        Scheme::Google => {
            let mut builder = GoogleCloudStorageBuilder::from_env().with_url(root).with_retry(retry);
            let timeout = GoogleConfigKey::Client(ClientConfigKey::ReadTimeout);
            if builder.get_config_value(&timeout).is_none() {
                builder = builder.with_config(timeout, READ_TIMEOUT);
            }
            Arc::new(builder.with_http_connector(CountingConnector).build()?)
        }
        Scheme::Azure => {
            let mut builder = MicrosoftAzureBuilder::from_env().with_url(root).with_retry(retry);
            let timeout = AzureConfigKey::Client(ClientConfigKey::ReadTimeout);
            if builder.get_config_value(&timeout).is_none() {
                builder = builder.with_config(timeout, READ_TIMEOUT);
            }
            Arc::new(builder.with_http_connector(CountingConnector).build()?)
        }
        Scheme::Http | Scheme::Https => {
            let options = ClientOptions::new().with_config(ClientConfigKey::ReadTimeout, READ_TIMEOUT);
            let options = options.with_allow_http(scheme == Scheme::Http);
            let builder = HttpBuilder::new().with_url(root).with_client_options(options).with_retry(retry);
            Arc::new(builder.with_http_connector(CountingConnector).build()?)
        }
    })
}

/// Selects the built-in cryptography library for this process, unless one is selected already.
fn use_ring() {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        tracing::trace!("a cryptography library was selected before");
    }
}
