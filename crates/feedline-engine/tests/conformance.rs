//! Every source, store and op of the registry passes its suite; one without an entry here fails the test.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use feedline_data::dtype::Dtype;
use feedline_data::plan::Registry;
use feedline_data::source::{
    ArraySource, FilesSource, FolderOptions, FolderSource, Labels, Part, Source, SubsetSource, SyntheticSource,
    VolumesSource,
};
use feedline_data::store::{DiskSpeed, DiskStore, SlowDisk, SlowStore};
use feedline_data::testing::{write_pictures, write_volumes};
use feedline_engine::testing::{check_op, check_source, check_store, check_volume_op};

fn pictures() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(folder.path(), 13, 3).unwrap();
    folder
}

#[test]
fn every_op_of_the_registry_conforms() {
    const DECODE: &str = "[[ops]]\nop = \"DecodeImage\"\n";
    let tensor = format!("{DECODE}[[ops]]\nop = \"ToTensor\"\n");
    let cases = [
        ("op = \"DecodeImage\"\nmode = \"grey\"", ""),
        ("op = \"Resize\"\nsize = 33", DECODE),
        ("op = \"Resize\"\nsize = [20, 90]\ninterpolation = \"bicubic\"", DECODE),
        ("op = \"Resize\"\nsize = 90\ninterpolation = \"nearest\"\nmax_size = 91", DECODE),
        ("op = \"CenterCrop\"\nsize = [20, 300]", DECODE),
        ("op = \"RandomCrop\"\nsize = 64\npad_if_needed = true\npadding_mode = \"reflect\"", DECODE),
        ("op = \"RandomResizedCrop\"\nsize = 17", DECODE),
        ("op = \"RandomHorizontalFlip\"", DECODE),
        ("op = \"RandomVerticalFlip\"\np = 0.7", DECODE),
        ("op = \"ColorJitter\"\nbrightness = 0.5\ncontrast = 0.5\nsaturation = [0.1, 2.0]\nhue = 0.5", DECODE),
        ("op = \"Grayscale\"\nnum_output_channels = 3", DECODE),
        ("op = \"RandomErasing\"\np = 1.0\nvalue = \"random\"", &tensor),
        ("op = \"RandomErasing\"\np = 1.0\nvalue = [1.0, 2.0, 3.0]", DECODE),
        ("op = \"ToTensor\"\ndtype = \"float16\"\nlayout = \"HWC\"", DECODE),
        ("op = \"ToTensor\"\ndtype = \"uint8\"", DECODE),
        ("op = \"Normalize\"\ndtype = \"bfloat16\"", DECODE),
        ("op = \"Normalize\"\nmean = [0.5]\nstd = [2.0]", &tensor),
        ("op = \"Delay\"\ncosts_ms = [0.1, 3.0]\nkind = \"cpu\"\np = 0.5", DECODE),
    ];
    let of_volumes = [
        ("op = \"ResampleSpacing\"\nspacing = [1.5, 0.8, 1.0]", ""),
        ("op = \"ClipNormalize\"", ""),
        ("op = \"PadTo\"\nsize = 20\nmode = \"edge\"", ""),
        ("op = \"RandomBalancedCrop\"\nsize = [5, 6, 7]", ""),
        ("op = \"RandomBalancedCrop\"\nsize = 9\noversampling = 1.0", "[[ops]]\nop = \"PadTo\"\nsize = 14\n"),
        ("op = \"RandomFlip3d\"", ""),
        ("op = \"Cast\"\ndtype = \"float16\"", ""),
        ("op = \"RandomBrightness\"\np = 0.5", ""),
        ("op = \"GaussianNoise\"\np = 1.0", ""),
    ];
    let folder = pictures();
    let volumes = tempfile::tempdir().unwrap();
    write_volumes(volumes.path(), 7, [10, 12, 14]).unwrap();
    let mut covered = BTreeSet::new();
    for (table, before) in cases {
        check_op(table, before, folder.path());
        covered.insert(table.split('"').nth(1).unwrap());
    }
    for (table, before) in of_volumes {
        check_volume_op(table, before, volumes.path());
        covered.insert(table.split('"').nth(1).unwrap());
    }
    let registry = Registry::core();
    assert_eq!(covered, registry.op_names().into_iter().collect(), "an op has no case here");
}

#[test]
fn every_source_conforms() {
    let (folder, registry) = (pictures(), Registry::core());
    let root = folder.path().to_str().unwrap();
    let volumes = tempfile::tempdir().unwrap();
    write_volumes(volumes.path(), 3, [4, 5, 6]).unwrap();
    let volumes_root = volumes.path().to_str().unwrap();
    let labels = |count: usize| Labels::new(Dtype::F32, vec![2], vec![0; count * 8]).unwrap();
    let paths =
        || -> Vec<String> { (0..13).map(|number| format!("{root}/class-{}/{number:05}.jpg", number % 3)).collect() };
    let npy = folder.path().join("rows.npy");
    let header = format!("{:<117}\n", "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }");
    fs::write(&npy, [b"\x93NUMPY\x01\x00\x76\x00".as_slice(), header.as_bytes(), &[7; 24]].concat()).unwrap();
    let folder_source: Arc<dyn Source> =
        Arc::new(FolderSource::open(root, Arc::new(DiskStore::new(root)), FolderOptions::default()).unwrap());
    let sources: Vec<Arc<dyn Source>> = vec![
        Arc::clone(&folder_source),
        Arc::new(FilesSource::new(vec![("image".to_owned(), paths())], None).unwrap()),
        Arc::new(
            FilesSource::new(vec![("a".to_owned(), paths()), ("b".to_owned(), paths())], Some(labels(13))).unwrap(),
        ),
        Arc::new(ArraySource::in_memory(Arc::new(vec![5u8; 60]), Dtype::U8, &[5, 2, 2, 3], Some(labels(5))).unwrap()),
        Arc::new(ArraySource::open(npy.to_str().unwrap(), &registry, None).unwrap()),
        Arc::new(SyntheticSource::new(9, vec![3, 5]).unwrap()),
        Arc::new(VolumesSource::open(volumes_root, Arc::new(DiskStore::new(volumes_root))).unwrap()),
        Arc::new(VolumesSource::listed(vec![format!("{volumes_root}/0/image.nii")], None).unwrap()),
        Arc::new(SubsetSource::new(Arc::clone(&folder_source), Part::Indices { indices: vec![7, 2, 11] }).unwrap()),
        Arc::new(SubsetSource::new(folder_source, Part::Share { seed: 1, from: 0.2, to: 0.7, by: None }).unwrap()),
    ];
    for source in sources {
        check_source(&*source, &registry);
    }
}

#[test]
fn every_store_conforms() {
    let folder = pictures();
    fs::write(folder.path().join("empty"), b"").unwrap();
    check_store(&DiskStore::new(folder.path()));
    let speed = DiskSpeed { seek: Duration::from_micros(100), bytes_per_second: 1e9 };
    check_store(&SlowStore::new(Arc::new(DiskStore::new(folder.path())), Arc::new(SlowDisk::new(speed))));
}
