//! Writes files that are either complete or absent.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes a file under another name and renames it. A file of the final name is always complete.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = path.with_added_extension("part");
    // A leftover of a killed run, or a link that someone placed there, is removed. `create_new` does not follow links.
    fs::remove_file(&part).unwrap_or_default();
    let written = fs::File::create_new(&part).and_then(|mut file| file.write_all(bytes));
    // A rename within a folder is atomic (POSIX): readers see the old file or the new one.
    written.and_then(|()| fs::rename(&part, path)).inspect_err(|_| {
        // Only the first error is reported. The partial file may not exist.
        fs::remove_file(&part).unwrap_or_default();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_place_of_the_part_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), b"not ours").unwrap();
        std::os::unix::fs::symlink(at("precious"), at("a.jpg.part")).unwrap();
        write_atomically(&at("a.jpg"), b"bytes").unwrap();
        assert_eq!(
            (fs::read(at("precious")).unwrap(), fs::read(at("a.jpg")).unwrap()),
            (b"not ours".to_vec(), b"bytes".to_vec())
        );
    }

    #[test]
    fn a_file_that_cannot_take_its_name_leaves_no_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        fs::create_dir(&path).unwrap();
        assert!(write_atomically(&path, b"bytes").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the folder that was in the way");
    }
}
