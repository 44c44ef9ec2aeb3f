//! The files of a storage server, as a store.
//!
//! In: names below a folder of the server. Out: listings, whole files, and many ranges at once. A listing contains the lengths of
//! files, so listed files are opened without a request. An open file is the version at the time of opening: the server refuses a
//! range of another version.

use std::io;
use std::sync::Arc;

use feedline_data::failure::chain;
use feedline_data::store::{BufferSource, Names, Object, Peer, Store, StoreError, Version};
use feedline_memory::RwLock;
use xxhash_rust::xxh3::xxh3_64;

use super::SECURE_SCHEME;
use super::confined::check_name;
use super::link::{Link, LinkError, LinkTerms};
use super::peer::StoragePeer;
use super::range::FileRanges;
use super::token::Token;
use crate::remote_object::{Opened, RemoteObject};
use crate::tls::Trust;
use crate::wire::{Failure, Reply, Request, shortened};

/// Files below a folder of a storage server.
#[derive(Debug)]
pub struct RemoteStore {
    link: Arc<Link>,
    /// `feedline://host:port`, or with `feedlines`.
    server: String,
    folder: String,
    listed: RwLock<Listed>,
    peer: StoragePeer,
}

/// The files of the last listing, sorted by a hash of their names. This takes a third of the memory of the names. If two hashes
/// collide, the server refuses the file whose length or time differs.
#[derive(Debug, Default)]
struct Listed {
    versions: Vec<(u64, Version)>,
    /// Whether it contains all files.
    is_complete: bool,
}

impl Listed {
    fn new(names: &[(String, Option<Version>)]) -> Self {
        let version = |(name, version): &(String, Option<Version>)| Some((xxh3_64(name.as_bytes()), (*version)?));
        let mut versions: Vec<_> = names.iter().filter_map(version).collect();
        versions.sort_unstable_by_key(|(hash, _)| *hash);
        Self { is_complete: !names.is_empty() && versions.len() == names.len(), versions }
    }

    fn get(&self, name: &str) -> Option<Version> {
        let place = self.versions.binary_search_by_key(&xxh3_64(name.as_bytes()), |(hash, _)| *hash).ok()?;
        Some(self.versions[place].1)
    }
}

impl RemoteStore {
    /// Opens the folder of a URL, `feedline://host:port/folder`. Token and trust come from the environment.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let wrong = || {
            StoreError::Address(format!(
                "{url:?} is no address of a storage server; write feedline://host:port/folder, or feedlines:// for TLS"
            ))
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (server, folder) = rest.split_once('/').unwrap_or((rest, ""));
        if !server.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            return Err(wrong());
        }
        let unreadable = |error: io::Error| {
            StoreError::Address(format!("the token named by the environment cannot be read: {error}"))
        };
        let token = Token::from_environment().map_err(unreadable)?;
        let mut terms = LinkTerms::plain(server, token);
        if scheme == SECURE_SCHEME {
            let trust = Trust::from_environment().map_err(|error| StoreError::Address(chain(&error)))?;
            terms.trust = Some(trust);
        }
        Ok(Self::new(Arc::new(Link::new(terms)), &format!("{scheme}://{server}"), folder))
    }

    /// A folder of the server at the end of `link`. Messages call it `server`.
    pub fn new(link: Arc<Link>, server: &str, folder: &str) -> Self {
        let (server, folder) = (server.to_owned(), folder.trim_matches('/').to_owned());
        let peer = StoragePeer::new(Arc::clone(&link), &server);
        Self { link, server, folder, listed: RwLock::default(), peer }
    }

    fn name(&self, name: &str) -> String {
        if self.folder.is_empty() { name.to_owned() } else { format!("{}/{name}", self.folder) }
    }

    fn list_with(&self, is_flat: bool, accept: &dyn Fn(&str) -> bool) -> Result<Names, StoreError> {
        let address = self.address("");
        match call(&self.link, &address, &Request::List { folder: self.folder.clone(), is_flat })? {
            (Reply::Names { mut names, left_out }, _) => {
                if left_out > 0 {
                    tracing::warn!(
                        left_out,
                        folder = address,
                        "the storage server left out links that lead out of its root; serve the folder they lead to as well"
                    );
                }
                check_names(&names).map_err(|problem| StoreError::Content { path: address, problem })?;
                // `accept` gets folders for information only.
                names.retain(|(name, _)| accept(name) && !name.ends_with('/'));
                *self.listed.write() = Listed::new(&names);
                Ok(names.iter().map(|(name, _)| name.as_str()).collect())
            }
            _ => Err(unexpected(address)),
        }
    }
}

/// Why a listing is invalid: names must be below the folder and unique.
fn check_names(names: &[(String, Option<Version>)]) -> Result<(), String> {
    if let Some((name, _)) = names.iter().find(|(name, _)| name.is_empty() || check_name(name).is_err()) {
        return Err(format!("cannot be listed: the server names {:?}, which is no file below it", shortened(name)));
    }
    // Strictly increasing means sorted and without duplicates, in one pass.
    let is_sorted = names.is_sorted_by(|(one, _), (other, _)| one < other);
    if is_sorted { Ok(()) } else { Err("cannot be listed: the server's names are not in order".to_owned()) }
}

/// Sends a request. A negative answer is an error that names `address`.
fn call(link: &Link, address: &str, request: &Request) -> Result<(Reply, Vec<u8>), StoreError> {
    match ask(link, address, request)? {
        (Reply::Failed { failure, reason }, _) => Err(failed(address, failure, &reason)),
        other => Ok(other),
    }
}

fn ask(link: &Link, address: &str, request: &Request) -> Result<(Reply, Vec<u8>), StoreError> {
    link.call(request).map_err(|error| unreachable(address, error))
}

/// The error for an unreachable server.
pub(super) fn unreachable(address: &str, error: LinkError) -> StoreError {
    StoreError::Read { path: address.to_owned(), source: io::Error::other(error) }
}

/// The error for a request that the server refuses.
pub(super) fn failed(address: &str, failure: Failure, reason: &str) -> StoreError {
    let reason = shortened(reason);
    let path = address.to_owned();
    let problem = match failure {
        Failure::NotFound => {
            return StoreError::NotFound { path, source: io::Error::new(io::ErrorKind::NotFound, reason) };
        }
        Failure::Changed => format!("has changed since the source was opened: it is {reason}; open the source again"),
        _ => format!("cannot be read: {reason}"),
    };
    StoreError::Content { path, problem }
}

/// The error for an answer to something else.
pub(super) fn unexpected(path: String) -> StoreError {
    StoreError::Content { path, problem: "cannot be read: the server sent an unexpected kind of answer".to_owned() }
}

impl Store for RemoteStore {
    fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        self.list_with(false, accept)
    }

    fn list_flat(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        self.list_with(true, accept)
    }

    fn read(&self, name: &str, room: &mut dyn BufferSource) -> Result<(), StoreError> {
        let address = self.address(name);
        match ask(&self.link, &address, &Request::ReadAll { name: self.name(name) })? {
            (Reply::Bytes, bytes) => {
                room.room(bytes.len())?.copy_from_slice(&bytes);
                Ok(())
            }
            // Too long for one reply: opened as an object and read in pieces.
            (Reply::Failed { failure: Failure::TooLong, .. }, _) => {
                let object = self.open(name)?;
                object.read_at(0, room.room(object.len() as usize)?)
            }
            (Reply::Failed { failure, reason }, _) => Err(failed(&address, failure, &reason)),
            _ => Err(unexpected(address)),
        }
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        let listed = self.version(name);
        let (address, name) = (self.address(name), self.name(name));
        let version = match listed {
            Some(version) => version,
            None => match call(&self.link, &address, &Request::Open { name: name.clone() })? {
                (Reply::Opened(version), _) => version,
                _ => return Err(unexpected(address)),
            },
        };
        let ranges = FileRanges { link: Arc::clone(&self.link), name };
        Ok(Arc::new(RemoteObject { opened: Opened { address, version }, ranges }))
    }

    fn address(&self, name: &str) -> String {
        format!("{}/{}", self.server, self.name(name))
    }

    fn version(&self, name: &str) -> Option<Version> {
        self.listed.read().get(name)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn peer(&self) -> Option<Arc<dyn Peer>> {
        Some(Arc::new(self.peer.clone()))
    }

    fn is_near(&self) -> bool {
        self.listed.read().is_complete
    }
}
