//! Files of a storage server, as a store.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use feedline_core::plan::PlanError;
use feedline_core::source::SourceError;
use feedline_core::store::{Names, Object, Room, Store, StoreError};

use super::link::Link;
use super::session::MOST_READ_BYTES;
use super::token::Token;
use crate::wire::{Failure, Reply, Request};

/// Files below a folder of a storage server.
#[derive(Debug)]
pub struct RemoteStore {
    link: Arc<Link>,
    /// `feedline://host:port`.
    server: String,
    folder: String,
}

impl RemoteStore {
    /// The folder of a URL, `feedline://host:port/folder`. The token is that of the environment.
    pub fn open(url: &str) -> Result<Self, PlanError> {
        let wrong = || {
            SourceError::Parameter(format!(
                "{url:?} is no address of a storage server; it is feedline://host:port/folder"
            ))
        };
        let (_, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (server, folder) = rest.split_once('/').unwrap_or((rest, ""));
        if !server.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            return Err(wrong().into());
        }
        let unreadable =
            |error: io::Error| SourceError::Parameter(format!("the token of the environment cannot be read: {error}"));
        let token = Token::from_environment().map_err(unreadable)?;
        Ok(Self::new(Arc::new(Link::new(server, token)), server, folder))
    }

    /// A folder of the server that `link` leads to.
    pub fn new(link: Arc<Link>, server: &str, folder: &str) -> Self {
        Self { link, server: format!("feedline://{server}"), folder: folder.trim_matches('/').to_owned() }
    }

    fn name(&self, name: &str) -> String {
        if self.folder.is_empty() { name.to_owned() } else { format!("{}/{name}", self.folder) }
    }

    fn list_with(&self, is_flat: bool, accept: &dyn Fn(&str) -> bool) -> Result<Names, StoreError> {
        let address = self.address("");
        match call(&self.link, &address, &Request::List { folder: self.folder.clone(), is_flat })? {
            (Reply::Names(names), _) => Ok(names.iter().map(String::as_str).filter(|name| accept(name)).collect()),
            _ => Err(unexpected(address)),
        }
    }
}

/// Asks; an answer that says why there is none is an error that names `address`.
fn call(link: &Link, address: &str, request: &Request) -> Result<(Reply, Vec<u8>), StoreError> {
    match ask(link, address, request)? {
        (Reply::Failed { failure, reason }, _) => Err(failed(address, failure, reason)),
        other => Ok(other),
    }
}

fn ask(link: &Link, address: &str, request: &Request) -> Result<(Reply, Vec<u8>), StoreError> {
    link.call(request).map_err(|error| StoreError::Read { path: address.to_owned(), source: io::Error::other(error) })
}

fn failed(address: &str, failure: Failure, reason: String) -> StoreError {
    let path = address.to_owned();
    if failure == Failure::NotFound {
        return StoreError::NotFound { path, source: io::Error::new(io::ErrorKind::NotFound, reason) };
    }
    StoreError::Content { path, problem: format!("cannot be had: {reason}") }
}

fn unexpected(path: String) -> StoreError {
    StoreError::Content { path, problem: "cannot be had: the server's answer is of another kind".to_owned() }
}

impl Store for RemoteStore {
    fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        self.list_with(false, accept)
    }

    fn list_flat(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        self.list_with(true, accept)
    }

    fn read(&self, name: &str, room: &mut dyn Room) -> Result<(), StoreError> {
        let address = self.address(name);
        match ask(&self.link, &address, &Request::ReadAll { name: self.name(name) })? {
            (Reply::Bytes, bytes) => {
                room.room(bytes.len())?.copy_from_slice(&bytes);
                Ok(())
            }
            (Reply::Failed { failure: Failure::TooLong, .. }, _) => {
                let object = self.open(name)?;
                object.read_at(0, room.room(object.len() as usize)?)
            }
            (Reply::Failed { failure, reason }, _) => Err(failed(&address, failure, reason)),
            _ => Err(unexpected(address)),
        }
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        let (address, name) = (self.address(name), self.name(name));
        match call(&self.link, &address, &Request::Open { name: name.clone() })? {
            (Reply::Opened { len, modified }, _) => {
                Ok(Arc::new(RemoteObject { link: Arc::clone(&self.link), address, name, len, modified }))
            }
            _ => Err(unexpected(address)),
        }
    }

    fn address(&self, name: &str) -> String {
        format!("{}/{}", self.server, self.name(name))
    }

    fn is_near(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct RemoteObject {
    link: Arc<Link>,
    address: String,
    name: String,
    len: u64,
    modified: Option<i64>,
}

impl RemoteObject {
    fn read_piece(&self, range: Range<u64>, target: &mut [u8]) -> Result<(), StoreError> {
        let (offset, len) = (range.start, range.end - range.start);
        match call(&self.link, &self.address, &Request::Read { name: self.name.clone(), offset, len })? {
            (Reply::Bytes, bytes) if bytes.len() == target.len() => {
                target.copy_from_slice(&bytes);
                Ok(())
            }
            _ => Err(unexpected(self.address.clone())),
        }
    }
}

impl Object for RemoteObject {
    fn len(&self) -> u64 {
        self.len
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn modified_nanoseconds(&self) -> Option<i64> {
        self.modified
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError> {
        let mut at = offset;
        for piece in target.chunks_mut(MOST_READ_BYTES as usize) {
            let end = at + piece.len() as u64;
            self.read_piece(at..end, piece)?;
            at = end;
        }
        Ok(())
    }
}
