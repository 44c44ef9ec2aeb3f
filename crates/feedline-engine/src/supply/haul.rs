//! What is read of an object in one go.
//!
//! In: where the bytes of some samples lie, in the order in which they are wanted. Out: long ranges that cover them, each read from
//! its begin to its end. What lies between two samples is read too where that is cheaper than to move on: headers of a tar
//! file, samples of another part of the data, what has left the reservoir before a resume.
//!
//! Always true: every part lies in one haul; no haul is longer than a limit, but for a single part that is.

use std::ops::Range;
use std::sync::Arc;

use feedline_data::source::OpenPart;
use feedline_data::store::Object;
use feedline_order::{Epoch, SampleRequest};

use super::ahead::Cargo;
use super::reader::{Fetched, Part};
use super::{LocalSupply, Reading};

/// The longest haul, from a disk and from a peer, of which several are fetched at once.
const MOST_BYTES: u64 = 32 << 20;
const REMOTE_MOST_BYTES: u64 = 8 << 20;
/// What is read rather than skipped: as long as a seek, or as a request.
const GAP_BYTES: u64 = 1 << 20;
const REMOTE_GAP_BYTES: u64 = 128 << 10;

/// What is read between two looks at whether anybody wants it.
const PIECE_BYTES: usize = 4 << 20;

/// What one who reads hauls one after the other keeps: memory for them, and where the last one ended.
#[derive(Debug, Default)]
pub(super) struct Desk {
    memory: Vec<u8>,
    last: Option<(Arc<dyn Object>, u64)>,
}

/// A range of an object, and what is cut out of it.
#[derive(Debug)]
pub(super) struct Haul {
    pub object: Arc<dyn Object>,
    pub range: Range<u64>,
    pub epoch: Epoch,
    cuts: Vec<(SampleRequest, Range<u64>)>,
}

impl Haul {
    /// Its length.
    pub fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// The samples that it is read for.
    pub fn samples(&self) -> impl Iterator<Item = &SampleRequest> {
        self.cuts.iter().map(|(wanted, _)| wanted)
    }

    /// Reads it from a disk as long as it `is_wanted`; nothing if it is not. What could not be read in one go has no bytes: it is
    /// tried sample by sample when it is loaded, and fails there by name.
    pub fn read<'a>(&mut self, desk: &'a mut Desk, is_wanted: impl Fn() -> bool) -> Option<&'a [u8]> {
        self.join(desk.last.as_ref());
        let (len, memory) = (self.len(), &mut desk.memory);
        let has_room = len <= memory.len() || memory.try_reserve_exact(len - memory.len()).is_ok();
        if has_room && len > memory.len() {
            memory.resize(len, 0);
        }
        let bytes = if has_room { &mut memory[..len] } else { &mut [] };
        let mut offset = self.range.start;
        let mut is_read = has_room;
        for piece in bytes.chunks_mut(PIECE_BYTES) {
            if !is_wanted() {
                return None;
            }
            is_read = is_read && self.object.read_at(offset, piece).is_ok();
            offset += piece.len() as u64;
        }
        desk.last = Some((Arc::clone(&self.object), self.range.end));
        Some(if is_read { bytes } else { &[] })
    }

    /// Begins where the last haul ended, if what lies between is short: then the disk need not seek.
    fn join(&mut self, last: Option<&(Arc<dyn Object>, u64)>) {
        if let Some((object, end)) = last
            && Arc::ptr_eq(object, &self.object)
            && *end < self.range.start
            && self.range.start - end <= GAP_BYTES
        {
            self.range.start = *end;
        }
    }

    /// Cuts the parts out of its bytes.
    pub fn cut(&self, bytes: &[u8]) -> Vec<(SampleRequest, Option<Part>)> {
        let part = |(wanted, range): &(SampleRequest, Range<u64>)| {
            let place = (range.start - self.range.start) as usize..(range.end - self.range.start) as usize;
            let mut own = Vec::new();
            let part = bytes.get(place).filter(|bytes| own.try_reserve_exact(bytes.len()).is_ok()).map(|bytes| {
                own.extend_from_slice(bytes);
                let cargo = Cargo::Range { object: Arc::clone(&self.object), range: range.clone() };
                Arc::new(Fetched { cargo, bytes: Ok(own), _room: None })
            });
            (*wanted, part)
        };
        self.cuts.iter().map(part).collect()
    }
}

/// The stored bytes of a sample. Where that cannot be said, nothing: to load it will say why.
pub(super) fn stored_parts(local: &LocalSupply, wanted: SampleRequest) -> Vec<OpenPart> {
    let parts = local.needs(wanted, Reading::Trimmed).unwrap_or_default();
    let is_read = |(object, range): &OpenPart| !range.is_empty() && !object.is_in_memory();
    parts.into_iter().filter(is_read).collect()
}

/// The hauls that get the parts of samples, that with the sample wanted first at first.
pub(super) fn hauls(samples: &[(SampleRequest, Vec<OpenPart>)]) -> Vec<Haul> {
    let mut parts: Vec<(usize, &SampleRequest, &OpenPart)> = Vec::new();
    for (number, (wanted, of_sample)) in samples.iter().enumerate() {
        parts.extend(of_sample.iter().map(|part| (number, wanted, part)));
    }
    let place = |(object, range): &OpenPart| (Arc::as_ptr(object).cast::<()>().addr(), range.start, range.end);
    parts.sort_by_key(|(_, wanted, part)| (wanted.epoch, place(part)));
    let mut hauls: Vec<(usize, Haul)> = Vec::new();
    for (number, wanted, (object, range)) in parts {
        if let Some((first, last)) = hauls.last_mut() {
            let is_remote = object.remote().is_some();
            let (gap, most) = if is_remote { (REMOTE_GAP_BYTES, REMOTE_MOST_BYTES) } else { (GAP_BYTES, MOST_BYTES) };
            let end = last.range.end.max(range.end);
            let is_close = Arc::ptr_eq(object, &last.object) && range.start <= last.range.end.saturating_add(gap);
            if is_close && last.epoch == wanted.epoch && end - last.range.start <= most {
                last.range.end = end;
                last.cuts.push((*wanted, range.clone()));
                *first = number.min(*first);
                continue;
            }
        }
        let (object, cuts) = (Arc::clone(object), vec![(*wanted, range.clone())]);
        hauls.push((number, Haul { object, range: range.clone(), epoch: wanted.epoch, cuts }));
    }
    hauls.sort_by_key(|(first, _)| *first);
    hauls.into_iter().map(|(_, haul)| haul).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::store::{DiskStore, Store as _};
    use feedline_order::{Occurrence, SampleId};

    fn wanted(id: u64) -> SampleRequest {
        SampleRequest { id: SampleId(id), epoch: Epoch(0), occurrence: Occurrence(0) }
    }

    /// Hauls as ranges, for samples of one object given by their ranges.
    fn ranges(samples: &[Range<u64>]) -> Vec<Range<u64>> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x"), b"").unwrap();
        let object = DiskStore::new(folder.path()).open("x").unwrap();
        let part = |range: &Range<u64>| vec![(Arc::clone(&object), range.clone())];
        let samples: Vec<_> = samples.iter().enumerate().map(|(id, range)| (wanted(id as u64), part(range))).collect();
        let hauls = hauls(&samples);
        assert_eq!(hauls.iter().map(|haul| haul.cuts.len()).sum::<usize>(), samples.len());
        hauls.into_iter().map(|haul| haul.range).collect()
    }

    #[test]
    fn neighbours_are_read_together_and_what_is_wanted_first_comes_first() {
        let far = 100 << 20;
        assert_eq!(ranges(&[far..far + 10, 0..10, 500..900, far + 20..far + 30]), [far..far + 30, 0..900]);
        assert_eq!(ranges(&[0..10, 11 + GAP_BYTES..12 + GAP_BYTES]).len(), 2);
    }

    #[test]
    fn a_long_stretch_is_read_in_several_hauls() {
        let samples: Vec<_> = (0..40).map(|number| number << 21..(number + 1) << 21).collect();
        let hauls = ranges(&samples);
        assert_eq!(hauls, [0..32 << 20, 32 << 20..64 << 20, 64 << 20..80 << 20]);
        let giant = 5 * MOST_BYTES;
        assert_eq!(ranges(&[0..giant, giant..giant + 1]), [0..giant, giant..giant + 1]);
    }

    #[test]
    fn a_haul_is_cut_into_the_bytes_of_its_samples() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x"), b"").unwrap();
        let object = DiskStore::new(folder.path()).open("x").unwrap();
        let part = |range| vec![(Arc::clone(&object), range)];
        let mut hauls = hauls(&[(wanted(0), part(10..12)), (wanted(1), part(14..17))]);
        let haul = &mut hauls[0];
        haul.join(Some(&(Arc::clone(&object), 8)));
        assert_eq!(haul.range, 8..17);
        let bytes = |part: Option<Part>| part.unwrap().bytes.as_ref().unwrap().clone();
        let cuts: Vec<_> = haul.cut(&[8, 9, 10, 11, 12, 13, 14, 15, 16]).into_iter().collect();
        assert_eq!(cuts.into_iter().map(|(_, part)| bytes(part)).collect::<Vec<_>>(), [vec![10, 11], vec![14, 15, 16]]);
        assert!(haul.cut(&[8, 9]).iter().all(|(_, part)| part.is_none()), "what did not come is not made up");
    }
}
