//! Opens files safely: files in the cache folder, and files that a user names.
//!
//! Files in the cache folder are private. Folders have mode 0700, files 0600, and both belong to the user of the process. They are
//! opened without following links, and only regular files are used.
//!
//! Files that a user names may be links, but must be regular and no larger than a limit. No open waits for a pipe.

mod folder;
mod named;

pub use folder::{Access, CacheFolder, PrivateFolder};
pub(crate) use named::{open_appending, read_bounded, read_open};
