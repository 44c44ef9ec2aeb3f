//! Samples that are only copied are filled together, with the same bytes and failures as one by one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::borrow::Cow;
use std::sync::Arc;

use feedline_data::batch::{Batch, FieldData, FieldTypes, Kind};
use feedline_data::dtype::Dtype;
use feedline_data::plan::{Document, Registry};
use feedline_data::source::{Origin, Source, SourceError};
use feedline_engine::error::Error;
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::testing::collect;
use feedline_order::{Rank, SampleId};

const SAMPLES: u64 = 103;
const BYTES: usize = 3;

/// Rows of a few bytes. One of them may be broken.
#[derive(Debug)]
struct RowSource {
    broken: Option<u64>,
}

impl Source for RowSource {
    fn len(&self) -> u64 {
        SAMPLES
    }

    fn fields(&self) -> FieldTypes {
        let mut types = FieldTypes::new();
        types.set("data", Kind::tensor(Dtype::U8, &[BYTES]));
        types
    }

    fn origin(&self, _id: SampleId, _field: &str) -> Origin<'_> {
        Origin::Made
    }

    fn make(&self, id: SampleId, _field: &str, target: &mut [u8]) {
        assert!(self.broken != Some(id.0), "row {} is broken", id.0);
        target.fill(id.0 as u8);
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        format!("row {}", id.0).into()
    }

    fn identity(&self) -> u128 {
        7
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        Err(SourceError::Unserialisable("a test".to_owned()))
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Self { broken: self.broken }))
    }
}

fn loader(broken: Option<u64>, rank: Rank, settings: &str) -> Loader {
    let mut registry = Registry::core();
    registry.source("rows", move |_, _| Ok(Arc::new(RowSource { broken })));
    let text = format!("{settings}\n[source]\nkind = \"rows\"\n");
    let plan = Document::parse(&text).unwrap().for_rank(rank).open(&registry).unwrap();
    Loader::new(Arc::new(plan), &Machine::default())
}

fn contents(batches: &[Batch]) -> Vec<Vec<(String, Vec<u8>)>> {
    let field = |batch: &Batch, name: &str| batch.field(name).map(FieldData::bytes).unwrap().to_vec();
    let of = |batch: &Batch| {
        let names = batch.fields.iter().map(|field| field.name.to_string());
        names.map(|name| (name.clone(), field(batch, &name))).collect()
    };
    batches.iter().map(of).collect()
}

#[test]
fn law_8_rows_that_are_filled_together_are_those_that_are_loaded_one_by_one() {
    let cases = [
        (Rank::ALONE, "batch_size = 10\nseed = 3\nshuffle = true"),
        (Rank::ALONE, "batch_size = 16\nshuffle = false"),
        (Rank { rank: 1, world: 4 }, "batch_size = 7\nseed = 3\nshuffle = true"),
    ];
    for (rank, settings) in cases {
        let together = loader(None, rank, settings);
        let single = loader(None, rank, settings);
        // A timeline has the times of each sample, so samples are loaded one by one.
        single.start_timeline(1000);
        for _ in 0..2 {
            let (together, single) = (collect(&together).unwrap(), collect(&single).unwrap());
            assert!(!together.is_empty());
            assert_eq!(contents(&together), contents(&single), "{settings}, {rank:?}");
            let rows = together.iter().flat_map(|batch| {
                let data = batch.field("data").map(FieldData::bytes).unwrap();
                data.chunks(BYTES).map(<[u8]>::to_vec).zip(batch.ids()).collect::<Vec<_>>()
            });
            rows.for_each(|(row, id)| assert_eq!(row, [id as u8; BYTES]));
        }
        let loaded = together.snapshot().loading.samples;
        assert!(loaded >= 2 * together.plan().share(0).samples(), "{loaded} samples were counted");
    }
}

#[test]
fn law_6_a_broken_row_is_named() {
    let loader = loader(Some(42), Rank::ALONE, "batch_size = 10\nseed = 3\nshuffle = true");
    let Err(Error::Sample(failure)) = collect(&loader) else { panic!("row 42 is broken") };
    assert_eq!(failure.key, "row 42");
    assert!(failure.to_string().contains("42"), "{failure}");
}
