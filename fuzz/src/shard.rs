//! Opens a shard and reads the samples in its index.

use feedline_data::source::{Origin, Source, TarSource};
use feedline_order::SampleId;

use crate::memory::{MemoryStore, ROOT};

/// Number of samples to read, besides the last one.
const MAX_SAMPLES: u64 = 40;

/// The name of the shard in the store.
pub const SHARD: &str = "shard.tar";

/// Opens the shard of a store and reads its samples. Each must be inside the shard, or an error.
pub fn read_all(store: MemoryStore) {
    let Ok(source) = TarSource::open(vec![format!("{ROOT}/{SHARD}")], &store.registry()) else { return };
    assert!(source.len() > 0, "a source without samples is an error");
    source.identity();
    source.classes();
    let fields = source.fields();
    let mut record = Vec::new();
    for id in (0..source.len().min(MAX_SAMPLES)).chain([source.len() - 1]).map(SampleId) {
        drop(source.key(id));
        source.class_of(id);
        for (field, _) in fields.iter() {
            read_field(&source, id, field, &mut record);
        }
    }
}

fn read_field(source: &TarSource, id: SampleId, field: &str, record: &mut Vec<u8>) {
    let Origin::Part { object, range } = source.origin(id, field) else { panic!("shards store all fields") };
    assert!(range.start <= range.end && range.end <= object.len(), "{range:?} of {}", object.len());
    let mut bytes = vec![0; (range.end - range.start) as usize];
    if object.read_at(range.start, &mut bytes).is_ok() {
        source.ending(id, field);
        // Errors are valid results. Only a panic is not.
        drop((source.dimensions(id, field), source.seek_record(id, field, record)));
    }
}
