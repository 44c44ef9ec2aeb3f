//! The sizes of samples, known before their data is read. They indicate the cost.
//!
//! In: the source's facts about its samples. Out: for each sample its stored bytes, and the number of elements according to its
//! headers. Each is looked up once: bytes by opening files, elements by reading the first bytes of files.

use feedline_codec::read_header;
use feedline_order::{Ordinal, SampleId};

use super::Plan;
use crate::batch::Kind;
use crate::memory::{Cancel, Cancelled, Workspace};
use crate::source::{OpenPart, Origin};
use crate::volume::VolumeFile;

/// Bytes at the start of a picture in which to look for its header. The first number nearly always suffices.
const HEAD_BYTES: [usize; 2] = [4 << 10, 64 << 10];

impl Plan {
    /// Stored bytes of each sample, by ordinal. A file that cannot be opened counts as one byte. Opens each file once.
    pub fn sizes(&self) -> &[u64] {
        self.sizes.get_or_init(|| {
            let sizes: Result<_, Cancelled> = self.look_up_sizes(&Cancel::default());
            sizes.expect("this token is never cancelled")
        })
    }

    /// Looks up bytes and elements. Stops if cancelled. Does nothing if each sample would need a request to a peer.
    pub fn find_sizes(&self, cancel: &Cancel) {
        if !self.is_near() {
            return;
        }
        if self.sizes.get().is_none()
            && let Ok(sizes) = self.look_up_sizes(cancel)
        {
            // Another thread may have looked them up meanwhile. Both results are equal.
            self.sizes.get_or_init(|| sizes);
        }
        if self.elements.get().is_none()
            && let Ok(elements) = self.look_up_elements(cancel)
        {
            self.elements.get_or_init(|| elements);
        }
    }

    /// The stored bytes, if they were looked up before.
    pub fn known_sizes(&self) -> Option<&[u64]> {
        self.sizes.get().map(Vec::as_slice)
    }

    /// Number of pixels or volume elements of each sample by ordinal, if they were looked up before. 0 if the header is unknown.
    pub fn known_elements(&self) -> Option<&[u64]> {
        self.elements.get().map(Vec::as_slice)
    }

    fn is_near(&self) -> bool {
        let source = self.source();
        let is_near = |field: &str| match source.origin(source.id_at(Ordinal(0)), field) {
            Origin::Whole { store, .. } => store.is_near(),
            Origin::Part { .. } | Origin::Made => true,
        };
        !source.is_empty() && self.loaded().iter().all(|(field, _)| is_near(field))
    }

    fn look_up_sizes(&self, cancel: &Cancel) -> Result<Vec<u64>, Cancelled> {
        self.look_up(cancel, |id, field, _| match self.source().origin(id, field).open() {
            Ok(Some((_, range))) => range.end - range.start,
            // A bad file must not fail the plan. It fails later, as a sample.
            Ok(None) | Err(_) => 1,
        })
    }

    fn look_up_elements(&self, cancel: &Cancel) -> Result<Vec<u64>, Cancelled> {
        let workspace = Workspace::new(cancel.clone(), 0);
        self.look_up(cancel, |id, field, kind| {
            let is_volume = matches!(kind, Kind::Volume(_));
            if !is_volume && self.chain().decoder_of(field).is_none() {
                return 0;
            }
            let Ok(Some(part)) = self.source().origin(id, field).open() else { return 0 };
            // Reading a header would cost a request per sample.
            if part.0.remote().is_some() {
                return 0;
            }
            let found = if is_volume { elements_of(part, &workspace) } else { pixels_of(&part) };
            found.unwrap_or(0)
        })
    }

    fn look_up(&self, cancel: &Cancel, of: impl Fn(SampleId, &str, &Kind) -> u64) -> Result<Vec<u64>, Cancelled> {
        let source = self.source();
        let of_sample = |ordinal| {
            cancel.check()?;
            let id = source.id_at(Ordinal(ordinal));
            Ok(self.loaded().iter().map(|(field, kind)| of(id, field, kind)).sum())
        };
        (0..source.len()).map(of_sample).collect()
    }
}

fn pixels_of((object, range): &OpenPart) -> Option<u64> {
    let len = usize::try_from(range.end.saturating_sub(range.start)).ok()?;
    // A picture with large metadata, such as an embedded preview, needs the second, longer read.
    HEAD_BYTES.into_iter().find_map(|bytes| {
        let mut head = vec![0; bytes.min(len)];
        object.read_at(range.start, &mut head).ok()?;
        let header = read_header(&head).ok()?;
        Some(u64::from(header.width) * u64::from(header.height))
    })
}

fn elements_of((object, range): OpenPart, workspace: &Workspace) -> Option<u64> {
    let file = VolumeFile::open(object, range, workspace).ok()?;
    Some(file.header().shape().iter().map(|&side| side as u64).product())
}
