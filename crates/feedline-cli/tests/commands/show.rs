//! `feedline show`.

use std::fs;

use crate::support::{CROP, DECODE, decode, fail, json, pictures, succeed, write_plan};

#[test]
fn show_writes_a_grid_of_the_size_it_says_with_different_cells() {
    let folder = pictures();
    let normalize = format!("{CROP}[[ops]]\nop = \"Normalize\"\n");
    for (number, ops) in [CROP, DECODE, &normalize].into_iter().enumerate() {
        write_plan(folder.path(), "plan.toml", "batch_size = 7\nfields = [\"image\"]", ops);
        let out = format!("out{number}.png");
        let shown = json(&["show", "plan.toml", &out, "--samples", "5", "--json"], folder.path());
        let size = |name: &str| shown[name].as_u64().unwrap() as usize;
        assert_eq!((size("samples"), size("columns"), size("rows")), (5, 3, 2));
        assert_eq!(shown["labels"][0], "class-0");
        // A gap of 8, then cells of at least 96 pixels with 14 for the label.
        let cell = (size("width") - 8) / 3;
        assert!(cell >= 104 && size("height") >= 8 + 2 * (96 + 14 + 8), "{shown}");
        let picture = decode(&folder.path().join(&out));
        assert_eq!((picture.width as usize, picture.height as usize), (size("width"), size("height")));
        let cells: Vec<Vec<&[u8]>> = (0..3)
            .map(|number| {
                let rows = picture.pixels.chunks_exact(size("width") * 3).skip(8).take(96);
                rows.map(|row| &row[(8 + number * cell) * 3..][..96 * 3]).collect()
            })
            .collect();
        assert!(cells[0] != cells[1] && cells[1] != cells[2] && cells[0] != cells[2]);
    }
}

#[test]
fn show_says_in_one_line_what_it_wrote_and_another_epoch_looks_different() {
    let folder = pictures();
    write_plan(folder.path(), "plan.toml", "batch_size = 7\nshuffle = true", CROP);
    let ran = succeed(&["show", "plan.toml", "first.png"], folder.path());
    assert!(ran.stdout.starts_with("wrote 16 samples of epoch 0") && ran.stdout.lines().count() == 1, "{ran:?}");
    succeed(&["show", "plan.toml", "second.png", "--epoch", "1"], folder.path());
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert_ne!(read("first.png"), read("second.png"));
}

#[test]
fn show_refuses_a_plan_without_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [7]\n";
    fs::write(folder.path().join("plan.toml"), plan).unwrap();
    fail(&["show", "plan.toml", "out.png"], folder.path(), &["no field contains pictures", "\"data\" uint8 [7]"]);
}
