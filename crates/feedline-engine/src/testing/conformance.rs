//! Conformance suites that every source, store and op passes. Each check panics with the claim that does not hold.

use std::collections::HashSet;
use std::path::Path;

use feedline_data::batch::{FieldData, Kind};
use feedline_data::plan::Registry;
use feedline_data::source::{Opener, Origin, Source};
use feedline_data::store::Store;
use feedline_data::testing::open;
use feedline_order::{Ordinal, SampleId};

use super::stream::collect;
use crate::loader::Loader;
use crate::machine::Machine;

/// A source numbers its samples without gaps or duplicates, has every field, and can be opened again from its table.
#[track_caller]
pub fn check_source(source: &dyn Source, registry: &Registry) {
    let mut ids = HashSet::new();
    for ordinal in (0..source.len()).map(Ordinal) {
        let id = source.id_at(ordinal);
        assert!(ids.insert(id), "sample {} has two places", id.0);
        assert_eq!(source.ordinal_of(id), Some(ordinal), "sample {} is found where it is", id.0);
        assert_eq!(source.key(id), source.key(id), "a name does not change");
        for (field, kind) in source.fields().iter() {
            match source.origin(id, field) {
                Origin::Made => {
                    let ragged = || match kind {
                        Kind::Tensor { dtype, .. } => Some((*dtype, source.made_shape(id, field)?)),
                        _ => None,
                    };
                    let made = kind.fixed().or_else(ragged);
                    let (dtype, shape) = made.expect("a source knows the shape of what it generates");
                    let bytes = shape.iter().product::<usize>() * dtype.bytes();
                    let (mut first, mut second) = (vec![1; bytes], vec![2; bytes]);
                    source.make(id, field, &mut first);
                    source.make(id, field, &mut second);
                    assert_eq!(first, second, "field {field:?} of sample {} is the same each time", id.0);
                }
                Origin::Whole { store, name } => {
                    store.read(name, &mut Vec::new()).expect("a stored field can be read");
                }
                Origin::Part { object, range } => assert!(range.end <= object.len(), "a part lies inside its object"),
            }
        }
    }
    assert_eq!(source.ordinal_of(SampleId(u64::MAX)), None, "an unknown sample has no place");
    if let Ok(table) = source.spec() {
        let again = registry.open_source(table).expect("the table of a source opens it");
        assert_eq!(again.identity(), source.identity(), "a source opened from its table is the same");
    }
    let refreshed = source.refreshed().expect("a source that was opened opens again");
    assert_eq!(refreshed.identity(), source.identity(), "unchanged data has an unchanged identity");
}

/// A store reads wholes and parts alike, lists in order, and names objects that it does not have.
#[track_caller]
pub fn check_store(store: &dyn Store) {
    let names = store.list(&|_| true).expect("a store lists its objects");
    assert!(!names.is_empty(), "the suite needs at least one object");
    assert!((1..names.len()).all(|number| names.get(number - 1) < names.get(number)), "names are sorted, each once");
    let flat = store.list_flat(&|_| true).expect("a store lists its root");
    assert!(flat.iter().eq(names.iter().filter(|name| !name.contains('/'))), "a flat listing is that of the root");
    for name in names.iter() {
        let mut whole = Vec::new();
        store.read(name, &mut whole).expect("a listed object can be read");
        let object = store.open(name).expect("a listed object can be opened");
        assert_eq!(object.len(), whole.len() as u64, "{name}: length");
        for start in [0, whole.len() / 3, whole.len()] {
            let mut part = vec![0; whole.len() - start];
            object.read_at(start as u64, &mut part).expect("a part can be read");
            assert_eq!(part, whole[start..], "{name}: part from {start}");
        }
        assert!(object.read_at(whole.len() as u64, &mut [0]).is_err(), "{name}: reading past the end is an error");
        assert!(store.address(name).contains(name), "an address names its object");
    }
    assert!(store.read("no such object", &mut Vec::new()).is_err());
    assert!(store.open("no such object").is_err());
}

/// An op gives the same bytes for any thread count, with SIMD and without, and its table builds the same op.
///
/// `before` are tables of the ops before it, in TOML. `root` is a folder of pictures.
#[track_caller]
pub fn check_op(table: &str, before: &str, root: &Path) {
    check_op_on(("folder", &["image"]), table, before, root);
}

/// The same for an op on volumes. `root` is a folder of volumes.
#[track_caller]
pub fn check_volume_op(table: &str, before: &str, root: &Path) {
    check_op_on(("volumes", &["image", "label"]), table, before, root);
}

#[track_caller]
fn check_op_on((kind, fields): (&str, &[&str]), table: &str, before: &str, root: &Path) {
    let registry = Registry::core();
    let parsed: toml::Table = toml::from_str(table).expect("the table of an op is TOML");
    let op = registry.build_op(parsed).expect("the table of an op builds it");
    let again = registry.build_op(op.table().expect("a named op can be written")).expect("and read again");
    assert_eq!(op.fingerprint_text(), again.fingerprint_text(), "an op written and read is the same op");
    let stream = |run: &str| {
        let plan = format!(
            "batch_size = 5\nseed = 3\nshuffle = true\nragged = {fields:?}\n\
             [source]\nkind = {kind:?}\nroot = {root:?}\n[run]\n{run}\n{before}\n[[ops]]\n{table}",
            root = root.display().to_string()
        );
        let loader = Loader::new(open(&plan).unwrap_or_else(|error| panic!("{table}: {error}")), &Machine::default());
        let batches = collect(&loader).unwrap_or_else(|error| panic!("{table}: {error}"));
        let lists = batches.iter().flat_map(|batch| fields.iter().map(|field| batch.field(field)));
        let values = lists.map(|list| match list {
            Some(FieldData::List(values)) => values.clone(),
            other => panic!("{table}: {other:?} instead of a list"),
        });
        values.collect::<Vec<_>>()
    };
    let expected = stream("num_workers = 1");
    for run in ["num_workers = 4", "simd = false"] {
        assert_eq!(stream(run), expected, "{table}: {run}");
    }
}
