//! The source that a path names: shards by pattern or name, a folder of shards, of pictures, or of volumes.

use std::sync::Arc;

use super::{FolderOptions, FolderSource, Source, SourceError, TarSource, VolumesSource};
use crate::plan::{PlanError, Registry};
use crate::source::tar::{is_plain_shard, names_shards};
use crate::store::StoreError;

/// Opens what a path names. A folder that has tar files in it is a folder of shards; one without pictures may be one of
/// volumes.
pub fn open_path(path: &str, registry: &Registry) -> Result<Arc<dyn Source>, PlanError> {
    let has_shards = || -> Result<bool, StoreError> {
        let store = registry.store_for(path).ok();
        let shards = store.map(|store| store.list_flat(&is_plain_shard)).transpose()?;
        Ok(shards.is_some_and(|shards| !shards.is_empty()))
    };
    if names_shards(path) || has_shards()? {
        return Ok(Arc::new(TarSource::open(vec![path.to_owned()], registry)?));
    }
    match FolderSource::open(path, registry.store_for(path)?, FolderOptions::default()) {
        Err(no_pictures @ SourceError::NoPictures { .. }) => {
            match VolumesSource::open(path, registry.store_for(path)?) {
                Err(SourceError::NoVolumes { .. }) => Err(no_pictures.into()),
                volumes => Ok(Arc::new(volumes?)),
            }
        }
        folder => Ok(Arc::new(folder?)),
    }
}
