//! The classes of a folder on a storage server are the same as those of the local folder, including empty ones.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::sync::Arc;

use feedline_data::plan::Registry;
use feedline_data::source::{Opener, Source, SourceError};
use feedline_data::testing::write_pictures;
use feedline_order::SampleId;
use served::serve;

mod served;

fn open(root: &str, options: &str) -> Result<Arc<dyn Source>, SourceError> {
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    let document = format!("batch_size = 1\n[source]\nkind = \"folder\"\nroot = {root:?}\n{options}\n");
    registry.open_source(feedline_data::plan::Document::parse(&document).unwrap().source)
}

#[test]
fn an_empty_class_keeps_its_number_locally_and_from_a_storage_server() {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(folder.path(), 4, 2).unwrap();
    fs::create_dir(folder.path().join("ant")).unwrap();
    fs::write(folder.path().join("class-0/notes.txt"), b"").unwrap();
    let server = serve(folder.path());
    for root in [folder.path().to_str().unwrap().to_owned(), format!("feedline://{}/", server.address())] {
        let refused = open(&root, "").unwrap_err().to_string();
        assert!(refused.contains("\"ant\"") && refused.contains("allow_empty"), "{root}: {refused}");
        let source = open(&root, "allow_empty = true").unwrap();
        assert_eq!(source.classes(), ["ant", "class-0", "class-1"], "{root}");
        let labels: Vec<_> = (0..source.len()).map(|id| source.class_of(SampleId(id)).unwrap()).collect();
        assert_eq!(labels, [1, 1, 2, 2], "{root}");
        assert_eq!(source.skipped(), 1, "{root}");
        let classes = "allow_empty = true\nclasses = [\"class-1\", \"class-0\", \"ant\"]";
        assert_eq!(open(&root, classes).unwrap().class_of(SampleId(0)), Some(1), "{root}");
        let refused = open(&root, "classes = [\"class-1\"]\nallow_empty = true").unwrap_err().to_string();
        assert!(refused.contains("\"class-0\""), "{root}: {refused}");
    }
}
