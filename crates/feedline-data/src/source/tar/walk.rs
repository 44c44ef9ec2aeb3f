//! Lists the members of a tar file.
//!
//! In: an open object, every byte of which may be hostile. Out: its regular files, each with its name and the range of its data,
//! which always lies inside the object. Only headers and long names are read, 4 KiB at a time (4 MiB from a peer). Links, folders
//! and devices are skipped, as in WebDataset. Each step advances by at least a block, and a longer name than [`MAX_NAME_BYTES`] is
//! an error.

use std::ops::Range;

use tar::{EntryType, Header, PaxExtensions};

use crate::store::{Object, StoreError, escaped};

/// The alignment of everything in a tar file.
pub(crate) const BLOCK: u64 = 512;
/// Upper limit of a name. Real names are far shorter.
const MAX_NAME_BYTES: u64 = 16 << 10;
/// Upper limit of an extended header.
const MAX_EXTENDED_BYTES: u64 = 1 << 20;
/// Bytes to read at once: a header, a small member and the next header.
const WINDOW_BYTES: u64 = 4 << 10;
/// The same from a peer. A larger request takes hardly longer, and contains the next headers.
const REMOTE_WINDOW_BYTES: u64 = 4 << 20;

/// A regular file in a tar file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its path.
    pub name: String,
    /// Its data. The header is in the block before.
    pub data: Range<u64>,
}

/// Iterates over the members of a tar file.
pub(crate) struct Walk<'a> {
    object: &'a dyn Object,
    /// Where the next header starts.
    at: u64,
    window: ReadWindow,
}

/// The bytes that were read last.
#[derive(Default)]
struct ReadWindow {
    /// Where they start in the object.
    start: u64,
    bytes: Vec<u8>,
}

/// The fields of extended headers that apply to the next member.
#[derive(Default)]
struct Extended {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    is_sparse: bool,
}

impl<'a> Walk<'a> {
    /// Starts at the first member.
    pub(crate) fn new(object: &'a dyn Object) -> Self {
        Self { object, at: 0, window: ReadWindow::default() }
    }

    /// The next member. `None` at the end.
    pub(crate) fn next_member(&mut self) -> Result<Option<Member>, StoreError> {
        let mut extended = Extended::default();
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            let size = header.entry_size().map_err(|_| self.problem("a size that is not a number"))?;
            let kind = header.entry_type();
            // The size in a PAX header replaces that of the next member, whose own header has no room for 8 GiB and more. It does
            // not apply to further extension headers before that member.
            let size = extended.size.filter(|_| !is_extension(kind)).unwrap_or(size);
            let data = self.data(size)?;
            match kind {
                EntryType::GNULongName => {
                    let mut name = self.content(&data, MAX_NAME_BYTES, "a name")?;
                    // GNU tar ends a long name with a zero byte.
                    name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
                    extended.name = Some(name);
                }
                EntryType::XHeader => {
                    let text = self.content(&data, MAX_EXTENDED_BYTES, "an extended header")?;
                    extended.read(&text);
                }
                EntryType::Regular | EntryType::Continuous => {
                    let name = extended.name.take().unwrap_or_else(|| header.path_bytes().into_owned());
                    let member = self.member(&name, data.clone(), extended.is_sparse)?;
                    self.pass(&data);
                    return Ok(Some(member));
                }
                EntryType::GNUSparse => return Err(self.problem("a sparse file")),
                // Neither changes the name or size of a regular file. Fields for the next member stay valid.
                EntryType::XGlobalHeader | EntryType::GNULongLink => {}
                // A folder, link or device uses up the extended headers before it.
                _ => extended = Extended::default(),
            }
            self.pass(&data);
        }
    }

    /// Checks a regular file.
    fn member(&self, name: &[u8], data: Range<u64>, is_sparse: bool) -> Result<Member, StoreError> {
        if is_sparse {
            return Err(self.problem("a sparse file"));
        }
        if name.len() as u64 > MAX_NAME_BYTES {
            return Err(self.problem(&format!("a name of {} bytes", name.len())));
        }
        // A name that is not UTF-8 becomes an escaped key.
        let name = escaped(name).into_owned();
        Ok(Member { name, data })
    }

    /// Moves to the header after this data.
    fn pass(&mut self, data: &Range<u64>) {
        // Data is padded to whole blocks, so the next header starts at the next multiple of 512.
        // An object may claim any length, so the sum may overflow. Then the archive has ended.
        self.at = data.end.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
    }

    /// The header at the current place. `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>, StoreError> {
        let left = self.object.len().saturating_sub(self.at);
        if left == 0 {
            return Ok(None);
        }
        if left < BLOCK {
            return Err(self.truncated("a header"));
        }
        let block = self.window.read(self.object, self.at..self.at + BLOCK)?;
        // An archive ends with two blocks of zeros. No header is a block of zeros, so one is enough.
        if block.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(block).clone();
        // The checksum of a header is the sum of its bytes, with the checksum field itself counted as spaces.
        let mut summed = header.clone();
        summed.set_cksum();
        if header.cksum().ok() == summed.cksum().ok() {
            return Ok(Some(header));
        }
        // Compressed data has no valid header at byte 0. Its magic number gives a better message.
        let problem = match compression(header.as_bytes()).filter(|_| self.at == 0) {
            Some(with) => format!(
                "is compressed with {with}, so single samples cannot be read from it; decompress it to a plain .tar \
                 (compression hardly makes pictures smaller)"
            ),
            None => format!("is not a tar file or is damaged: there is no header at byte {}", self.at),
        };
        Err(self.content_error(problem))
    }

    /// The range of the data that follows the header at the current place.
    fn data(&self, size: u64) -> Result<Range<u64>, StoreError> {
        let start = self.at + BLOCK;
        match start.checked_add(size) {
            Some(end) if end <= self.object.len() => Ok(start..end),
            _ => Err(self.truncated(&format!("a member of {size} bytes"))),
        }
    }

    /// Reads the data of a small member. Fails if it has more than `most` bytes; the error calls it `what`.
    pub(crate) fn content(&mut self, data: &Range<u64>, most: u64, what: &str) -> Result<Vec<u8>, StoreError> {
        let bytes = data.end - data.start;
        if bytes > most {
            return Err(self.problem(&format!("{what} of {bytes} bytes; the limit is {most}")));
        }
        Ok(self.window.read(self.object, data.clone())?.to_vec())
    }

    /// An error about the header at the current place.
    fn problem(&self, what: &str) -> StoreError {
        self.content_error(format!("cannot be used: the header at byte {} has {what}", self.at))
    }

    fn truncated(&self, what: &str) -> StoreError {
        let (at, len) = (self.at, self.object.len());
        self.content_error(format!("is truncated: it ends at byte {len}, inside {what} that starts at byte {at}"))
    }

    fn content_error(&self, problem: String) -> StoreError {
        StoreError::Content { path: self.object.address(), problem }
    }
}

impl ReadWindow {
    /// Returns the bytes of a range inside the object. Reads ahead, so that the next calls need no read.
    fn read(&mut self, object: &dyn Object, range: Range<u64>) -> Result<&[u8], StoreError> {
        let end = self.start + self.bytes.len() as u64;
        if range.start < self.start || range.end > end {
            let window = if object.remote().is_some() { REMOTE_WINDOW_BYTES } else { WINDOW_BYTES };
            let len = (range.end - range.start).max(window.min(object.len() - range.start));
            self.start = range.start;
            self.bytes.resize(len as usize, 0);
            // After an error the window is emptied, so that partly read bytes are never taken for content.
            object.read_at(range.start, &mut self.bytes).inspect_err(|_| self.bytes.clear())?;
        }
        let start = (range.start - self.start) as usize;
        Ok(&self.bytes[start..start + (range.end - range.start) as usize])
    }
}

impl Extended {
    fn read(&mut self, text: &[u8]) {
        // `PaxExtensions` splits at newlines, so a value that contains one looks malformed. Such records are skipped: they are
        // usually file system attributes, which are not needed here.
        for record in PaxExtensions::new(text).filter_map(Result::ok) {
            match record.key_bytes() {
                b"path" => self.name = Some(record.value_bytes().to_vec()),
                b"size" => self.size = record.value().ok().and_then(|size| size.parse().ok()),
                key => self.is_sparse |= key.starts_with(b"GNU.sparse."),
            }
        }
    }
}

/// Whether a header describes the next member instead of a file.
fn is_extension(kind: EntryType) -> bool {
    matches!(kind, EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader | EntryType::XGlobalHeader)
}

/// The compression of a file, by its magic number.
fn compression(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        [b'B', b'Z', b'h', ..] => Some("bzip2"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some("xz"),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some("lz4"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryObject;
    use super::*;

    fn members(bytes: &[u8]) -> Result<Vec<Member>, StoreError> {
        let object = MemoryObject::new("x.tar".to_owned(), bytes.to_vec());
        let mut walk = Walk::new(&object);
        std::iter::from_fn(|| walk.next_member().transpose()).collect()
    }

    fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = Header::new_gnu();
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[track_caller]
    fn check_refused(bytes: &[u8], words: &str) {
        let error = members(bytes).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("x.tar"), "{error}");
    }

    #[test]
    fn members_are_found_with_short_long_and_extended_names() {
        let long = format!("{}/x.jpg", "folder".repeat(40));
        let mut builder = tar::Builder::new(packed(&[("a.jpg", b"12345"), (&long, b"")])[..512 * 5].to_vec());
        builder.append_pax_extensions([("path", "é/b.cls".as_bytes()), ("mtime", b"1.5")]).unwrap();
        let mut header = Header::new_ustar();
        header.set_path("short").unwrap();
        header.set_size(3);
        header.set_cksum();
        builder.append(&header, &b"abc"[..]).unwrap();
        let bytes = builder.into_inner().unwrap();
        let found = members(&bytes).unwrap();
        let names: Vec<&str> = found.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["a.jpg", &long, "é/b.cls"]);
        assert_eq!(&bytes[found[0].data.start as usize..found[0].data.end as usize], b"12345");
        assert_eq!(&bytes[found[2].data.start as usize..found[2].data.end as usize], b"abc");
    }

    #[test]
    fn anything_but_a_plain_tar_file_is_refused_with_advice() {
        check_refused(&[b"\x1f\x8b".as_slice(), &[7; 1000]].concat(), "compressed with gzip");
        check_refused(&[7; 1024], "no header at byte 0");
        check_refused(&[7; 100], "truncated");
        let whole = packed(&[("a.jpg", &[1; 2000])]);
        check_refused(&whole[..1500], "ends at byte 1500, inside a member of 2000 bytes that starts at byte 0");
        assert!(members(&[]).unwrap().is_empty());
        assert!(members(&[0; 4096]).unwrap().is_empty());
    }

    #[test]
    fn false_sizes_are_refused() {
        for size in [u64::MAX, u64::MAX - 511, u64::MAX / 2, 1 << 40] {
            for kind in [EntryType::Regular, EntryType::GNULongName, EntryType::XHeader] {
                let mut header = Header::new_gnu();
                header.set_path("a.jpg").unwrap();
                header.set_entry_type(kind);
                header.set_size(size);
                header.set_cksum();
                check_refused(&[header.as_bytes().as_slice(), &[0; 2048]].concat(), "truncated");
            }
        }
        let mut pax = tar::Builder::new(Vec::new());
        pax.append_pax_extensions([("size", b"18446744073709551615".as_slice())]).unwrap();
        let pax = pax.into_inner().unwrap();
        check_refused(&[&pax[..1024], &packed(&[("a.jpg", b"x")])].concat(), "truncated");
    }

    #[test]
    fn endless_names_and_sparse_files_are_refused() {
        let long = "x".repeat(MAX_NAME_BYTES as usize + 1);
        check_refused(&packed(&[(&long, b"x")]), "limit");
        let mut header = Header::new_gnu();
        header.set_path("a.jpg").unwrap();
        header.set_entry_type(EntryType::GNUSparse);
        header.set_size(0);
        header.set_cksum();
        check_refused(header.as_bytes(), "sparse");
    }

    #[test]
    fn any_byte_changed_in_any_header_ends_in_an_error_or_in_members_inside_the_file() {
        let long = "y".repeat(200);
        let whole = packed(&[("a.jpg", &[1; 700]), (&long, b"2"), ("c.cls", b"3")]);
        for place in 0..whole.len() {
            for change in [0x01, 0x20, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[place] ^= change;
                for member in members(&bytes).unwrap_or_default() {
                    assert!(member.data.start <= member.data.end && member.data.end <= bytes.len() as u64);
                }
            }
        }
    }
}
