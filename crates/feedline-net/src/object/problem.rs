//! Explains errors of a peer, and what to do about them.
//!
//! In: an error of the `object_store` crate. Out: an error that names the URL and says what to check. Providers report the same
//! problem in several ways, some only in the text of their answer, so the text is examined too.

use std::ops::Range;
use std::time::Duration;

use feedline_data::failure::chain;
use feedline_data::memory::NoMemory;
use feedline_data::store::StoreError;
use object_store::Error;

use super::client::Scheme;

/// Explains errors about one object.
#[derive(Clone, Debug)]
pub(super) struct Problems {
    pub address: String,
    pub scheme: Scheme,
    pub retry_time: Duration,
}

/// Why a range could not be fetched.
#[derive(Debug)]
pub(super) enum Problem {
    Client(Error),
    Resized { now: u64, then: u64 },
    OtherRange { sent: Range<u64>, asked: Range<u64> },
    Memory { bytes: u64 },
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl Problems {
    /// The error of a range.
    pub(super) fn explain(&self, problem: Problem) -> StoreError {
        let path = self.address.clone();
        match problem {
            Problem::Client(error) => self.of_client(error),
            Problem::Memory { bytes } => NoMemory::Exhausted { bytes }.into(),
            Problem::Resized { now, then } => {
                let problem = format!(
                    "has changed since the source was opened: it has {now} bytes, and had {then}; open the source again"
                );
                StoreError::Content { path, problem }
            }
            Problem::OtherRange { sent, asked } => {
                let problem = format!(
                    "did not send the requested bytes {asked:?}: it sent bytes {sent:?}, or only a part of them"
                );
                StoreError::Content { path, problem }
            }
        }
    }

    /// The error of listing a web server.
    pub(super) fn of_listing(&self) -> StoreError {
        let problem = "cannot be searched: a web server does not list its files; name the shards, for example \
                       train-{000..146}.tar";
        StoreError::Content { path: self.address.clone(), problem: problem.to_owned() }
    }

    /// Any other error.
    pub(super) fn of_client(&self, error: Error) -> StoreError {
        let path = self.address.clone();
        let text = chain(&error);
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let no_such_bucket = ["NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"];
        let elsewhere = ["PermanentRedirect", "AuthorizationHeaderMalformed", "incorrectly configured region"];
        let refused =
            ["403 Forbidden", "401 Unauthorized", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied"];
        // Without credentials the client asks the machine's metadata service.
        let no_credentials = ["169.254.169.254", "metadata.google.internal", "/latest/api/token"];
        // The order matters. A missing bucket also counts as `NotFound`, and would be reported as a missing object.
        let problem = match &error {
            _ if says(&no_such_bucket) => {
                format!(
                    "cannot be read: there is no such {}; check its name, and {}",
                    self.scheme.what(),
                    self.endpoint()
                )
            }
            Error::Precondition { .. } => {
                "has changed since the source was opened: it was replaced; open the source again".to_owned()
            }
            Error::NotFound { .. } => return StoreError::NotFound { path, source: error.into() },
            Error::NotSupported { .. } if self.scheme.is_web() => {
                "cannot be read in parts: the server does not answer range requests".to_owned()
            }
            _ if says(&elsewhere) => {
                format!("cannot be read: the {} is in another region; set AWS_REGION", self.scheme.what())
            }
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => self.credentials(),
            _ if says(&refused) || says(&no_credentials) => self.credentials(),
            _ if says(&["416 "]) => "ends before the requested bytes: it was truncated".to_owned(),
            _ if says(&["HTTP error"]) => format!(
                "cannot be reached after retries for {} s; check the network, and {}",
                self.retry_time.as_secs(),
                self.endpoint()
            ),
            _ => "cannot be read".to_owned(),
        };
        StoreError::Peer { path, problem, source: error.into() }
    }

    fn endpoint(&self) -> &'static str {
        match self.scheme {
            Scheme::S3 => "AWS_ENDPOINT_URL and AWS_REGION",
            Scheme::Google => "the project",
            Scheme::Azure => "AZURE_STORAGE_ACCOUNT_NAME",
            Scheme::Http | Scheme::Https => "the address",
        }
    }

    fn credentials(&self) -> String {
        let advice = match self.scheme {
            Scheme::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket"
            }
            Scheme::Google => {
                "set GOOGLE_SERVICE_ACCOUNT to the file of a service account, or GOOGLE_SKIP_SIGNATURE=true for a public \
                 bucket"
            }
            Scheme::Azure => {
                "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_SKIP_SIGNATURE=true for a public \
                 container"
            }
            Scheme::Http | Scheme::Https => "passwords for web servers are not supported",
        };
        format!("cannot be read: the credentials are missing, wrong or not sufficient; {advice}")
    }
}
