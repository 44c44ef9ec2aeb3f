//! The source of a path: shards by pattern or name, or a folder of shards, pictures or volumes.

use std::sync::Arc;

use super::{FolderOptions, FolderSource, Opener, Source, SourceError, TarSource, VolumesSource};
use crate::source::tar::{is_plain_shard, names_shards};
use crate::store::StoreError;

/// Opens the source of a path. A folder with tar files is a folder of shards. A folder without pictures may be a folder of volumes.
pub fn open_path(path: &str, opener: &dyn Opener) -> Result<Arc<dyn Source>, SourceError> {
    let has_shards = || -> Result<bool, StoreError> {
        // A path that no store accepts fails below, with the error of a folder.
        let store = opener.store_for(path).ok();
        let shards = store.map(|store| store.list_flat(&is_plain_shard)).transpose()?;
        Ok(shards.is_some_and(|shards| !shards.is_empty()))
    };
    if names_shards(path) || has_shards()? {
        return Ok(Arc::new(TarSource::open(vec![path.to_owned()], opener)?));
    }
    match FolderSource::open(path, opener.store_for(path)?, FolderOptions::default()) {
        Err(no_pictures @ SourceError::NoPictures { .. }) => match VolumesSource::open(path, opener.store_for(path)?) {
            // Neither kind was found. Most users mean pictures, so that message is the helpful one.
            Err(SourceError::NoVolumes { .. }) => Err(no_pictures),
            volumes => Ok(Arc::new(volumes?)),
        },
        folder => Ok(Arc::new(folder?)),
    }
}
