//! Writes one shard and its index.
//!
//! Both files are written under temporary names, synced, and renamed when they are complete. While a shard is written, another
//! thread syncs it, so that little is left to wait for at its end.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, UNIX_EPOCH};

use feedline_memory::Mutex;
use tar::{EntryType, Header};
use xxhash_rust::xxh3::Xxh3;

use super::sample::{ReadyMember, ReadySample};
use super::summary::PackError;
use crate::source::tar::index::{Builder, ENDING, MemberFacts, SampleFacts};
use crate::source::tar::walk::BLOCK;
use crate::store::{DiskStore, Store as _};

/// Bytes per write.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes after which the file is synced.
const SYNC_EVERY: u64 = 32 << 20;
/// Prefix and suffix of a temporary name.
const PARTIAL: (&str, &str) = (".", ".partial");
/// Upper limit of a name in a member's header. Longer names need an extra header.
const SHORT_NAME_BYTES: u64 = 100;

/// Nanoseconds per second.
const NANOSECONDS: u64 = 1_000_000_000;

/// A shard under construction.
pub(super) struct ShardWriter<'a> {
    folder: &'a Path,
    name: String,
    partial: PathBuf,
    file: Arc<File>,
    tar: tar::Builder<CountingWriter>,
    index: Builder,
    /// A hash of the members' bytes.
    content: Xxh3,
    /// When the newest of its files was changed, in seconds since 1970.
    modified: u64,
    syncer: &'a Syncer,
    sync_requested_at: u64,
}

/// Counts the bytes written.
struct CountingWriter {
    to: BufWriter<Arc<File>>,
    bytes: u64,
}

impl Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Bytes of a finished shard and its index.
#[derive(Debug)]
pub(super) struct Written {
    pub bytes: u64,
    pub index_bytes: u64,
}

impl<'a> ShardWriter<'a> {
    /// Begins the shard with this number.
    pub(super) fn begin(folder: &'a Path, number: u64, syncer: &'a Syncer) -> Result<Self, PackError> {
        let name = format!("shard-{number:06}.tar");
        let partial = folder.join(partial_name(&name));
        let created = create_new(&partial).map_err(|source| PackError::Write { path: partial.clone(), source })?;
        let file = Arc::new(created);
        let to = BufWriter::with_capacity(BUFFER_BYTES, Arc::clone(&file));
        let tar = tar::Builder::new(CountingWriter { to, bytes: 0 });
        Ok(Self {
            folder,
            name,
            partial,
            file,
            tar,
            index: Builder::default(),
            content: Xxh3::new(),
            modified: 0,
            syncer,
            sync_requested_at: 0,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Samples in it.
    pub(super) fn samples(&self) -> u64 {
        self.index.samples()
    }

    /// Whether this sample fits into `limit` bytes.
    pub(super) fn has_room(&self, key: &str, sample: &ReadySample, limit: u64) -> bool {
        self.tar.get_ref().bytes + sample.members.iter().map(|member| tar_bytes(key, member)).sum::<u64>() <= limit
    }

    /// Adds a sample.
    pub(super) fn push(&mut self, key: &str, sample: ReadySample) -> Result<(), PackError> {
        let mut members = Vec::with_capacity(sample.members.len());
        self.modified = self.modified.max(sample.modified);
        for ReadyMember { extension, bytes, width, height, record } in sample.members {
            self.content.update(&bytes);
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(0o644);
            header.set_mtime(sample.modified);
            header.set_size(bytes.len() as u64);
            let path = format!("{key}.{extension}");
            let appended = self.tar.append_data(&mut header, &path, bytes.as_slice());
            appended.map_err(|source| self.write_error(source))?;
            // The writer has just padded the data to whole blocks, so its start follows from the end.
            let end = self.tar.get_ref().bytes;
            let start = end - (bytes.len() as u64).next_multiple_of(BLOCK);
            let data = start..start + bytes.len() as u64;
            let extension = extension.to_ascii_lowercase();
            members.push(MemberFacts { extension, data, width, height, record });
        }
        let facts = SampleFacts { key: key.to_owned(), label: sample.label, members };
        self.index.push(facts).map_err(|problem| PackError::Sample { name: sample.name, problem })?;
        if self.tar.get_ref().bytes - self.sync_requested_at >= SYNC_EVERY {
            self.sync_requested_at = self.tar.get_ref().bytes;
            self.syncer.request(&self.file);
        }
        Ok(())
    }

    /// Finishes the shard: it and its index get their final names.
    pub(super) fn finish(mut self, classes: &[String]) -> Result<Written, PackError> {
        let ended = self.tar.finish().and_then(|()| self.tar.get_mut().flush()).and_then(|()| self.file.sync_all());
        // Two runs must write the same index, which contains the time of its shard. That time is that of the newest file in the
        // shard. Its fraction of a second comes from a hash of the content.
        let time = Duration::new(self.modified, (self.content.digest() % NANOSECONDS) as u32);
        let ended = ended.and_then(|()| self.file.set_modified(UNIX_EPOCH + time));
        ended.and_then(|()| self.syncer.result()).map_err(|source| self.write_error(source))?;
        let shard = DiskStore::new(self.folder).open(&partial_name(&self.name))?;
        let index = std::mem::take(&mut self.index).finish(&*shard, classes)?;
        let index_name = format!("{}{ENDING}", self.name);
        let partial_index = self.folder.join(partial_name(&index_name));
        let written = write_synced(&partial_index, &index)
            // The index first: a shard with its final name always has its index.
            .and_then(|()| fs::rename(&partial_index, self.folder.join(&index_name)))
            .and_then(|()| fs::rename(&self.partial, self.folder.join(&self.name)))
            // The folder is synced too, because a rename is an entry of the folder.
            .and_then(|()| File::open(self.folder)?.sync_all());
        written.map_err(|source| self.write_error(source))?;
        Ok(Written { bytes: shard.len(), index_bytes: index.len() as u64 })
    }

    fn write_error(&self, source: io::Error) -> PackError {
        PackError::Write { path: self.folder.join(&self.name), source }
    }
}

fn partial_name(name: &str) -> String {
    format!("{}{name}{}", PARTIAL.0, PARTIAL.1)
}

/// Removes leftovers of a run that was killed.
pub(super) fn remove_partial(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PARTIAL.0) && name.ends_with(PARTIAL.1) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Creates a file that must not exist: [`remove_partial`] has removed leftovers. Links are not followed.
fn create_new(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Bytes of a member in a shard.
fn tar_bytes(key: &str, member: &ReadyMember) -> u64 {
    let name = (key.len() + 1 + member.extension.len()) as u64;
    // GNU tar stores a long name as an extra member: a header, and the name with a final zero byte.
    let long_name = if name > SHORT_NAME_BYTES { BLOCK + (name + 1).next_multiple_of(BLOCK) } else { 0 };
    long_name + BLOCK + (member.bytes.len() as u64).next_multiple_of(BLOCK)
}

/// Syncs files in a thread of its own while they are written.
#[derive(Debug)]
pub(super) struct Syncer {
    files: mpsc::SyncSender<Arc<File>>,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl Syncer {
    /// The syncer, and the body of its thread, which ends when the syncer is dropped.
    pub(super) fn new() -> (Self, impl FnOnce() + Send) {
        let (files, requests) = mpsc::sync_channel::<Arc<File>>(1);
        let error = Arc::new(Mutex::new(None));
        let shared_error = Arc::clone(&error);
        let work = move || {
            for file in requests {
                if let Err(error) = file.sync_data() {
                    *shared_error.lock() = Some(error);
                }
            }
        };
        (Self { files, error }, work)
    }

    /// Requests a sync, unless one is already queued.
    fn request(&self, file: &Arc<File>) {
        // A full queue means that the disk is behind. One sync of the same file is enough.
        self.files.try_send(Arc::clone(file)).unwrap_or_default();
    }

    /// An error since the last call. The system reports it only once.
    fn result(&self) -> io::Result<()> {
        self.error.lock().take().map_or(Ok(()), Err)
    }
}
