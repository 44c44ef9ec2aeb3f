//! An open volume: its header, and any region of it.

use std::ops::Range;
use std::sync::Arc;

use super::bytes::{Bytes, GZIP};
use super::elements::{NotALabel, convert, is_plain, transpose};
use super::header::{Fastest, HEAD_BYTES};
use super::{Region, VolumeError, VolumeHeader, nifti};
use crate::dtype::Dtype;
use crate::memory::Workspace;
use crate::store::Object;
use crate::volume::npy;

/// The highest compression ratio of DEFLATE: at most 258 bytes from 2 bits. A header that claims more is false.
const MAX_UNPACKED_PER_BYTE: u64 = 1032;
/// Bytes of a cache line. Planes are transposed in groups that fill one.
const LINE_BYTES: usize = 64;

/// One channel of a region, and the memory for its packed elements of type `to`.
struct ChannelRead<'t> {
    channel: usize,
    region: Region,
    to: Dtype,
    target: &'t mut [u8],
}

/// An open volume.
#[derive(Debug)]
pub struct VolumeFile {
    object: Arc<dyn Object>,
    range: Range<u64>,
    header: VolumeHeader,
    is_gzip: bool,
}

impl VolumeFile {
    /// Opens a volume and reads its header. The format is detected by content.
    pub fn open(object: Arc<dyn Object>, range: Range<u64>, workspace: &Workspace) -> Result<Self, VolumeError> {
        // By content, not by name: a `.nii` may be compressed, and a `.nii.gz` may not be.
        let is_gzip = {
            let mut magic = [0; GZIP.len()];
            let len = Bytes::plain(&*object, range.clone()).read_head(&mut magic)?;
            magic[..len] == GZIP
        };
        let bytes = |cancel| Bytes::open(&*object, range.clone(), is_gzip, cancel);
        let mut head = [0; HEAD_BYTES];
        let len = bytes(workspace.cancel()).read_head(&mut head)?;
        let wrong = |problem: String| VolumeError::Header { path: object.address(), problem };
        let header = if head.starts_with(npy::MAGIC) {
            let text_range = npy::header_range(&head[..npy::PREFIX_BYTES]).map_err(wrong)?;
            let mut start = vec![0; text_range.end];
            let len = bytes(workspace.cancel()).read_head(&mut start)?;
            let text = start.get(text_range.clone()).filter(|_| len == text_range.end);
            let text = text.and_then(|text| std::str::from_utf8(text).ok());
            let text = text.ok_or_else(|| wrong(format!("its header is not text of {} bytes", text_range.len())))?;
            VolumeHeader::of_npy(text, text_range.end as u64).map_err(wrong)?
        } else {
            nifti::parse(&head[..len]).map_err(wrong)?
        };
        let this = Self { object, range, header, is_gzip };
        this.check_length()?;
        Ok(this)
    }

    /// Rejects a header that claims more elements than the file can contain, before memory is allocated for them.
    fn check_length(&self) -> Result<(), VolumeError> {
        let header = &self.header;
        let stored = self.range.end - self.range.start;
        // Of a compressed file only an upper limit is known.
        let has = if self.is_gzip { stored.saturating_mul(MAX_UNPACKED_PER_BYTE) } else { stored };
        let expected = header.data_offset + header.data_bytes().expect("the header was checked") as u64;
        if expected <= has {
            return Ok(());
        }
        let (dtype, shape) = (header.dtype.name(), header.shape());
        Err(VolumeError::Short { path: self.address(), dtype, shape, expected, has })
    }

    /// What the header says.
    pub fn header(&self) -> &VolumeHeader {
        &self.header
    }

    /// The object with its bytes.
    pub fn object(&self) -> &Arc<dyn Object> {
        &self.object
    }

    /// The path, for messages.
    pub fn address(&self) -> String {
        self.object.address()
    }

    /// Reads a region of all channels as packed elements of type `to`, float32 or uint8. Returns the number of bytes read from the
    /// store.
    pub fn read(
        &self,
        region: Region,
        to: Dtype,
        target: &mut [u8],
        workspace: &mut Workspace,
    ) -> Result<u64, VolumeError> {
        let cancel = workspace.cancel().clone();
        let mut bytes = Bytes::open(&*self.object, self.range.clone(), self.is_gzip, &cancel);
        let channel_bytes = region.elements() * to.bytes();
        // Channels are stored one after the other, so a forward reader can serve them in turn.
        for (channel, target) in target.chunks_exact_mut(channel_bytes.max(1)).enumerate() {
            let part = ChannelRead { channel, region, to, target };
            match self.header.fastest {
                Fastest::Last => self.read_rows(&mut bytes, part, workspace)?,
                Fastest::First => self.read_transposed(&mut bytes, part, workspace)?,
            }
        }
        // The checksum of gzip is at the end. It is verified only if everything was decompressed anyway.
        if region == Region::whole(self.header.sides) {
            bytes.finish()?;
        }
        Ok(bytes.bytes_read())
    }

    /// The ranges of the object that [`Self::read`] reads for a region, one for each slice and channel.
    pub fn stored_ranges(&self, region: Region) -> Vec<Range<u64>> {
        if self.is_gzip || region.elements() == 0 {
            return vec![self.range.clone()];
        }
        // The axes from the slowest in the file to the fastest.
        let axes = match self.header.fastest {
            Fastest::Last => [0, 1, 2],
            Fastest::First => [2, 1, 0],
        };
        let last = |axis: usize| region.end(axis) - 1;
        let slices = (0..self.header.channels)
            .flat_map(|channel| (region.start[axes[0]]..region.end(axes[0])).map(move |slow| (channel, slow)));
        let range = |(channel, slow): (usize, usize)| {
            let first = self.offset(channel, [slow, region.start[axes[1]], region.start[axes[2]]]);
            let end = self.offset(channel, [slow, last(axes[1]), last(axes[2])]) + self.header.dtype.bytes() as u64;
            self.range.start + first..self.range.start + end
        };
        slices.map(range).collect()
    }

    /// The offset of an element in the file. `place` goes from the slowest axis to the fastest.
    fn offset(&self, channel: usize, place: [usize; 3]) -> u64 {
        let [depth, height, width] = self.header.sides;
        let [slow, middle, fast] = place;
        let number = match self.header.fastest {
            Fastest::Last => ((channel * depth + slow) * height + middle) * width + fast,
            Fastest::First => ((channel * width + slow) * height + middle) * depth + fast,
        };
        self.header.data_offset + (number * self.header.dtype.bytes()) as u64
    }

    fn not_a_label(&self, NotALabel(value): NotALabel) -> VolumeError {
        VolumeError::NotALabel { path: self.address(), value }
    }

    /// Reads a region whose rows are in the file in the order of the result: one read per slice.
    fn read_rows(
        &self,
        bytes: &mut Bytes<'_>,
        part: ChannelRead<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), VolumeError> {
        let ChannelRead { channel, region, to, target } = part;
        let Region { start: [z, y, x], sides: [_, rows, columns] } = region;
        let (stored, width) = (self.header.dtype.bytes(), self.header.sides[2]);
        let slice_bytes = rows * columns * to.bytes();
        // Whole rows that need no conversion are read straight into the target.
        let is_direct = columns == width && is_plain(&self.header, to);
        // From the first element of the region in this slice to its last, including the elements between its rows.
        let span = ((rows - 1) * width + columns) * stored;
        let mut raw = if is_direct { None } else { Some(workspace.buffer(span)?) };
        for (slice, target) in target.chunks_exact_mut(slice_bytes).enumerate() {
            workspace.cancel().check().map_err(crate::memory::NoMemory::from)?;
            let offset = self.offset(channel, [z + slice, y, x]);
            let Some(raw) = &mut raw else {
                bytes.read_at(offset, target)?;
                continue;
            };
            bytes.read_at(offset, raw.as_mut_slice())?;
            for (row, target) in target.chunks_exact_mut(columns * to.bytes()).enumerate() {
                let raw = &raw.as_slice()[row * width * stored..][..columns * stored];
                convert(&self.header, to, raw, target).map_err(|value| self.not_a_label(value))?;
            }
        }
        if let Some(raw) = raw {
            workspace.recycle(raw);
        }
        Ok(())
    }

    /// Reads a region of a file whose first axis is the fastest. Planes are transposed in groups that fill a cache line.
    fn read_transposed(
        &self,
        bytes: &mut Bytes<'_>,
        part: ChannelRead<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), VolumeError> {
        let ChannelRead { channel, region, to, target } = part;
        let Region { start: [x, y, z], sides: [columns, rows, width] } = region;
        let (stored, line) = (self.header.dtype.bytes(), self.header.sides[0]);
        let row_bytes = columns * to.bytes();
        // Here `x` is the first axis. In the file `(x + 1, y, z)` follows `(x, y, z)`. In the result `(x, y, z + 1)` does, which is
        // in the next plane of the file. So a group of planes is written at once, which fills whole cache lines.
        let group_planes = (LINE_BYTES / to.bytes()).min(width);
        let mut raw = workspace.buffer(((rows - 1) * line + columns) * stored)?;
        let mut planes = workspace.buffer(group_planes * rows * row_bytes)?;
        for first in (0..width).step_by(group_planes) {
            let count = group_planes.min(width - first);
            let group = planes.as_mut_slice().chunks_exact_mut(rows * row_bytes).take(count);
            for (plane, target) in group.enumerate() {
                workspace.cancel().check().map_err(crate::memory::NoMemory::from)?;
                bytes.read_at(self.offset(channel, [z + first + plane, y, x]), raw.as_mut_slice())?;
                for (row, target) in target.chunks_exact_mut(row_bytes).enumerate() {
                    let raw = &raw.as_slice()[row * line * stored..][..columns * stored];
                    convert(&self.header, to, raw, target).map_err(|value| self.not_a_label(value))?;
                }
            }
            let (shape, place) = ((count, rows, columns), (first, width));
            match to {
                Dtype::F32 => transpose::<4>(planes.as_slice(), shape, target, place),
                _ => transpose::<1>(planes.as_slice(), shape, target, place),
            }
        }
        workspace.recycle(raw);
        workspace.recycle(planes);
        Ok(())
    }
}
