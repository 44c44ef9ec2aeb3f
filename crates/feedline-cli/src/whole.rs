//! Files that are whole or not there.

use std::fs;
use std::io;
use std::path::Path;

/// Writes a file under another name and renames it, so that it is whole as soon as it is there.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = path.with_added_extension("part");
    fs::write(&part, bytes).and_then(|()| fs::rename(&part, path)).inspect_err(|_| {
        // The first error is the one to tell; the part may not even be there.
        fs::remove_file(&part).unwrap_or_default();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_take_its_name_leaves_no_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        fs::create_dir(&path).unwrap();
        assert!(write_whole(&path, b"bytes").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the folder that was in the way");
    }
}
