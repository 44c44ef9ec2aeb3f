//! The tar reader. Any bytes, also with correct checksums, are samples inside the shard or an error.

use crate::memory::MemoryStore;
use crate::shard::{SHARD, read_all};

const BLOCK: usize = 512;

/// Reads the bytes as a shard: as they are, and with corrected checksums.
pub fn run(data: &[u8]) {
    for bytes in [data.to_vec(), summed(data)] {
        read_all(MemoryStore::default().with(SHARD, bytes, None));
    }
}

/// Corrects the checksum of each block that could be a header. A wrong one would end the reading there.
fn summed(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    for block in bytes.chunks_exact_mut(BLOCK).filter(|block| block.iter().any(|&byte| byte != 0)) {
        let mut header = ::tar::Header::from_byte_slice(block).clone();
        header.set_cksum();
        block.copy_from_slice(header.as_bytes());
    }
    bytes
}

/// Shards of samples, with long names, extended headers, folders and links.
pub fn seeds() -> Vec<Vec<u8>> {
    let long = format!("{}/9.jpg", "folder/".repeat(20));
    let sets: [&[(&str, &[u8])]; 4] = [
        &[("a/1.jpg", b"one"), ("a/1.cls", b" 7\n"), ("a/1.mask.PNG", b"mask"), ("a/2.jpg", b"two"), ("a/2.cls", b"8")],
        &[("README", b"text"), (&long, b"nine"), ("b.json", b"{}")],
        &[("x.jpg", b""), ("x.jpeg", b"2"), ("y.cls", &[b'9'; 70])],
        &[],
    ];
    let mut seeds: Vec<Vec<u8>> = sets.iter().map(|files| packed(files, &[])).collect();
    seeds.push(packed(&[("short", b"abc")], &[("path", b"e/b.cls"), ("size", b"3")]));
    seeds.push(packed(&[("s.jpg", b"abc")], &[("GNU.sparse.major", b"1")]));
    let mut links = ::tar::Builder::new(Vec::new());
    for kind in [::tar::EntryType::Symlink, ::tar::EntryType::Directory, ::tar::EntryType::XGlobalHeader] {
        let mut header = ::tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        links.append_data(&mut header, "c.jpg", [].as_slice()).expect("memory can be written");
    }
    seeds.push(links.into_inner().expect("memory can be written"));
    seeds
}

fn packed(files: &[(&str, &[u8])], extensions: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = ::tar::Builder::new(Vec::new());
    builder.append_pax_extensions(extensions.iter().copied()).expect("memory can be written");
    for (name, bytes) in files {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, *bytes).expect("memory can be written");
    }
    builder.into_inner().expect("memory can be written")
}
