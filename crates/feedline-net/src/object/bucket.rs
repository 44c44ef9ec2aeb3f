//! A folder in a bucket, as a store.
//!
//! In: names below the folder. Out: listings, whole objects, ranges. An open object is the version at the time of opening. If it
//! was replaced since, the peer refuses a range (without tags, its length shows it). Old and new bytes are never mixed.

use std::ops::Range;
use std::sync::Arc;

use feedline_data::store::{
    Answer, BufferSource, Done, Fetch, Names, NamesBuilder, Object, Store, StoreError, Traffic, Version,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore};
use xxhash_rust::xxh3::xxh3_64;

use super::counting::Counter;
use super::peer::Peer;
use super::problem::{Problem, Problems};
use crate::remote_object::{Opened, Ranges, RemoteObject};

/// The fraction of a second comes from the object's tag, because stores report whole seconds only.
const NANOSECONDS: i64 = 1_000_000_000;

/// Objects below a folder of a peer.
#[derive(Debug)]
pub(super) struct Bucket {
    peer: Arc<Peer>,
    /// Without slashes at its ends. Empty for the root.
    folder: String,
}

impl Bucket {
    pub(super) fn new(peer: Arc<Peer>, folder: &str) -> Result<Self, StoreError> {
        let bucket = Self { peer, folder: folder.to_owned() };
        // Checks the folder name now, and not at the first request.
        bucket.path("")?;
        Ok(bucket)
    }

    /// The path of an object. With an empty `name`, that of the folder.
    fn path(&self, name: &str) -> Result<Path, StoreError> {
        let full = if name.is_empty() || self.folder.is_empty() {
            format!("{}{name}", self.folder)
        } else {
            format!("{}/{name}", self.folder)
        };
        let is_web = self.peer.scheme.is_web();
        // URLs of web servers are percent-encoded. Names in buckets are literal.
        let path = if is_web { Path::from_url_path(&full) } else { Path::parse(&full) };
        path.map_err(|error| self.problems(name).of_client(error.into()))
    }

    fn problems(&self, name: &str) -> Problems {
        self.peer.problems(self.address(name))
    }

    /// The path of the folder, if it can be listed.
    fn listable_path(&self) -> Result<Path, StoreError> {
        if self.peer.scheme.is_web() { Err(self.problems("").of_listing()) } else { self.path("") }
    }

    /// The sorted names without hidden ones.
    fn names(&self, found: &[ObjectMeta], accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        let folder = self.path("")?;
        let mut names = NamesBuilder::default();
        for object in found {
            let parts = object.location.prefix_match(&folder).into_iter().flatten();
            let parts: Vec<_> = parts.collect();
            let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
            let name = parts.join("/");
            if !name.is_empty() && !parts.iter().any(|part| part.starts_with('.')) && accept(&name) {
                names.push(&name);
            }
        }
        Ok(Names::sorted(&[names]))
    }
}

impl Store for Bucket {
    fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        let folder = self.listable_path()?;
        let listed =
            self.peer.wait(|client| async move { client.list(Some(&folder)).try_collect::<Vec<_>>().await })?;
        self.names(&listed.map_err(|error| self.problems("").of_client(error))?, accept)
    }

    fn list_flat(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        let folder = self.listable_path()?;
        let listed = self.peer.wait(|client| async move { client.list_with_delimiter(Some(&folder)).await })?;
        self.names(&listed.map_err(|error| self.problems("").of_client(error))?.objects, accept)
    }

    fn read(&self, name: &str, room: &mut dyn BufferSource) -> Result<(), StoreError> {
        let (path, problems) = (self.path(name)?, self.problems(name));
        let found = self.peer.wait(|client| async move { client.get_opts(&path, GetOptions::default()).await })?;
        let found = found.map_err(|error| problems.of_client(error))?;
        let target = room.room(usize::try_from(found.meta.size).unwrap_or(usize::MAX))?;
        let whole = 0..found.meta.size;
        // The buffer is requested first. If its memory is not free, the body is not downloaded.
        let bytes = self.peer.wait(|_| collect(found, whole))?.map_err(|problem| problems.explain(problem))?;
        target.copy_from_slice(&bytes);
        Ok(())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        let (path, options) = (self.path(name)?, GetOptions::default().with_head(true));
        let opened = {
            let path = path.clone();
            self.peer.wait(|client| async move { client.get_opts(&path, options).await })?
        };
        let meta = opened.map_err(|error| self.problems(name).of_client(error))?.meta;
        let opened = Opened { address: self.address(name), version: version_of(&meta) };
        // `If-Match` needs a strong tag (RFC 9110). Without one, the length of the object is the only check.
        let tag = meta.e_tag.filter(|tag| !tag.starts_with("W/"));
        Ok(Arc::new(RemoteObject { opened, ranges: ObjectRanges { peer: Arc::clone(&self.peer), path, tag } }))
    }

    fn address(&self, name: &str) -> String {
        let parts = [self.peer.root.as_str(), &self.folder, name];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// The version of an object.
fn version_of(meta: &ObjectMeta) -> Version {
    let time = meta.last_modified.timestamp();
    let tag = meta.e_tag.as_ref().map(|tag| (xxh3_64(tag.as_bytes()) % NANOSECONDS.cast_unsigned()).cast_signed());
    // Web servers without `Last-Modified` report the time 0.
    let has_either = tag.is_some() || time != 0;
    let nanoseconds = has_either.then(|| time.saturating_mul(NANOSECONDS).saturating_add(tag.unwrap_or_default()));
    Version { len: meta.size, modified_nanoseconds: nanoseconds }
}

/// An object of a peer.
#[derive(Debug)]
struct ObjectRanges {
    peer: Arc<Peer>,
    path: Path,
    /// A tag that identifies the version. Weak tags are not usable.
    tag: Option<String>,
}

impl Ranges for ObjectRanges {
    fn begin(&self, opened: &Opened, range: Range<u64>, done: Done) -> Fetch {
        let (counter, problems) = (Counter::default(), self.peer.problems(opened.address.clone()));
        let mut options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        // The provider refuses the range if the object was replaced since it was opened.
        options.if_match.clone_from(&self.tag);
        options.extensions.insert(counter.clone());
        let (path, size) = (self.path.clone(), opened.version.len);
        let talk = match self.peer.talk() {
            Ok(talk) => talk,
            Err(error) => {
                return Fetch::answered(done, Answer { bytes: Err(error), traffic: Traffic::default() });
            }
        };
        talk.begin(|client| async move {
            let bytes = get(&*client, &path, options, range, size).await.map_err(|problem| problems.explain(problem));
            done(Answer { bytes, traffic: counter.traffic() });
        })
    }
}

/// The bytes of a range of an object with `size` bytes.
async fn get(
    client: &dyn ObjectStore,
    path: &Path,
    options: GetOptions,
    range: Range<u64>,
    size: u64,
) -> Result<Vec<u8>, Problem> {
    let found = client.get_opts(path, options).await?;
    if found.meta.size != size {
        return Err(Problem::Resized { now: found.meta.size, then: size });
    }
    collect(found, range).await
}

/// Collects the bytes of an answer, which must be those of the range.
async fn collect(found: GetResult, range: Range<u64>) -> Result<Vec<u8>, Problem> {
    let length = range.end - range.start;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length as usize).map_err(|_| Problem::Memory { bytes: length })?;
    let sent = found.range.clone();
    let mut parts = found.into_stream();
    while let Some(part) = parts.next().await {
        let part = part?;
        // Checked for each part, so that a server that sends too much cannot fill the memory.
        if (bytes.len() + part.len()) as u64 > length {
            return Err(Problem::OtherRange { sent, asked: range });
        }
        bytes.extend_from_slice(&part);
    }
    if sent != range || bytes.len() as u64 != length {
        return Err(Problem::OtherRange { sent, asked: range });
    }
    Ok(bytes)
}
