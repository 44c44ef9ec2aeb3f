//! Files whose path comes from the user: costs, arrival logs, journals.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Reads a whole file of at most `most_bytes`. Links are followed. A pipe, a device or a folder is rejected at once.
pub(crate) fn read_bounded(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    // O_NONBLOCK: opening a pipe without a writer would block.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    read_open(&regular(file)?, most_bytes)
}

/// Opens a file for reading and appending. Creates it if necessary. Links are not followed.
pub(crate) fn open_appending(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).append(true).create(true).custom_flags(flags).open(path);
    regular(file.map_err(explain_link)?)
}

/// Reads an open file from its beginning to its end.
pub(crate) fn read_open(file: &File, most_bytes: u64) -> io::Result<Vec<u8>> {
    let too_large = |bytes: u64| {
        let text = format!("it has {bytes} bytes or more; the limit is {most_bytes}");
        io::Error::new(io::ErrorKind::FileTooLarge, text)
    };
    let len = file.metadata()?.len();
    if len > most_bytes {
        return Err(too_large(len));
    }
    let mut bytes = Vec::new();
    // One byte more than the file, so that `read_to_end` sees the end without growing the buffer.
    bytes.try_reserve_exact(len as usize + 1).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // The file may grow meanwhile, or be one that claims to be empty.
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes { Err(too_large(bytes.len() as u64)) } else { Ok(bytes) }
}

/// Returns the file if it is a regular one.
pub(super) fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let what = if kind.is_dir() { "a folder" } else { "a pipe or device" };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a regular file")))
}

/// Explains `ELOOP`, the error of `O_NOFOLLOW`.
pub(super) fn explain_link(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(libc::ELOOP) {
        return io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link, which is not followed");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn pipes_devices_folders_and_files_that_are_too_large_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        fs::write(at("large"), [7; 11]).unwrap();
        symlink(at("large"), at("link")).unwrap();
        for name in ["pipe", "zero", "large", "."] {
            let refused = read_bounded(&at(name), 10).unwrap_err();
            assert!(refused.to_string().starts_with("it "), "{name}: {refused}");
        }
        assert_eq!(read_bounded(&at("link"), 11).unwrap(), [7; 11], "a user may name a link");
        for name in ["pipe", "zero", "link"] {
            assert!(open_appending(&at(name)).is_err(), "{name}");
        }
        assert_eq!(fs::read(at("large")).unwrap(), [7; 11]);
    }

    #[test]
    fn a_file_that_says_it_is_empty_is_read_up_to_the_limit() {
        let text = read_bounded(Path::new("/proc/self/status"), 1 << 20).unwrap();
        assert!(!text.is_empty());
        assert_eq!(read_bounded(Path::new("/proc/self/status"), 8).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
