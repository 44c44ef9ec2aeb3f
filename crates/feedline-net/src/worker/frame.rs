//! The bytes of requests to a worker and of its replies.
//!
//! All numbers are little endian. A frame is its length as `u32`, then the body. The first byte of the body is its kind. The other
//! side is a process of the same user, but its code is the user's: every length is checked before it is used.

use std::time::Duration;

use feedline_data::batch::Leaf;
use feedline_data::dtype::{Dtype, array_bytes};
use feedline_engine::supply::{LeafForm, LeafSlots};

/// Upper limit of a frame. A schema or a list of indices may be long.
pub(super) const MAX_FRAME: usize = 256 << 20;
/// Upper limit of the arrays of a sample.
const MAX_LEAVES: usize = 4096;
const MAX_DIMENSIONS: usize = 64;

const MAKE: u8 = 0;
const CALL: u8 = 1;
const HELLO: u8 = 2;

const HAS_SLAB: u8 = 1;
const IS_NEW_SLAB: u8 = 2;
const HAS_INDICES: u8 = 4;

/// One sample of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub time: Duration,
    pub offset: u64,
    pub len: u64,
    pub status: Status,
}

/// What a worker did with a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    InSlot,
    Payload,
    Raised,
    /// An iterable dataset has ended.
    Ended,
}

/// A request for samples. `is_new_slab` tells the worker where its slots are; the descriptor travels with the frame.
pub(super) fn make_frame(
    samples: impl ExactSizeIterator<Item = (u64, u64)>,
    slots: Option<(&LeafSlots<'_>, bool)>,
    indices: Option<&[u8]>,
    frame: &mut Vec<u8>,
) {
    frame.clear();
    frame.extend([0; 4]);
    let mut flags = 0;
    let (mut number, mut first_slot) = (0, 0);
    if let Some((slots, is_new)) = slots {
        flags |= if is_new { HAS_SLAB | IS_NEW_SLAB } else { HAS_SLAB };
        (number, first_slot) = (slots.slab.number, slots.first_slot as u32);
    }
    if indices.is_some() {
        flags |= HAS_INDICES;
    }
    frame.extend([MAKE, flags, 0, 0]);
    frame.extend((samples.len() as u32).to_le_bytes());
    frame.extend(number.to_le_bytes());
    frame.extend(first_slot.to_le_bytes());
    frame.extend([0; 4]);
    for (index, seed) in samples {
        frame.extend(index.to_le_bytes());
        frame.extend(seed.to_le_bytes());
    }
    if let Some((slots, true)) = slots {
        let layout = slots.slab.layout;
        frame.extend((layout.total_bytes() as u64).to_le_bytes());
        frame.extend((layout.slots() as u32).to_le_bytes());
        frame.extend((slots.form.leaves.len() as u32).to_le_bytes());
        for leaf in 0..slots.form.leaves.len() {
            let region = slots.first_region + leaf;
            frame.extend((layout.region_range(region).start as u64).to_le_bytes());
            frame.extend((layout.slot_bytes(region) as u64).to_le_bytes());
        }
        put_blob(frame, &slots.form.schema);
    }
    if let Some(indices) = indices {
        put_blob(frame, indices);
    }
    end(frame);
}

/// A request to call a function of the worker. `content` is opaque.
pub(super) fn call_frame(content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 0, 0, 0, CALL, 0, 0, 0];
    frame.extend(content);
    end(&mut frame);
    frame
}

pub(super) fn put_blob(frame: &mut Vec<u8>, blob: &[u8]) {
    frame.extend((blob.len() as u32).to_le_bytes());
    frame.extend(blob);
}

/// Writes the length of the body in front of it.
pub(super) fn end(frame: &mut [u8]) {
    let body = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&body.to_le_bytes());
}

/// The process id of a worker that says hello.
pub(super) fn read_hello(body: &[u8]) -> Result<u32, String> {
    let mut reader = Reader(body);
    if reader.kind()? == HELLO { reader.u32() } else { Err("it does not begin with a hello".to_owned()) }
}

/// The result of a call, and whether it succeeded.
pub(super) fn read_result(body: &[u8]) -> Result<(bool, Vec<u8>), String> {
    match body {
        [CALL, is_ok, _, _, content @ ..] => Ok((*is_ok == 1, content.to_vec())),
        _ => Err("it is not the result of a call".to_owned()),
    }
}

/// The samples of a reply, and the form of their leaves if the worker proposes one.
pub(super) fn read_made(body: &[u8], asked: usize) -> Result<(Vec<Record>, Option<LeafForm>), String> {
    let mut reader = Reader(body);
    let &[kind, flags, _, _] = reader.take::<4>()?;
    let count = reader.u32()? as usize;
    if kind != MAKE || count > asked {
        return Err(format!("it is of kind {kind} with {count} samples, but {asked} were requested"));
    }
    let mut records = Vec::with_capacity(count);
    for _ in 0..count {
        let (time, offset, len) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let status = match reader.u32()? {
            0 => Status::InSlot,
            1 => Status::Payload,
            2 => Status::Raised,
            3 => Status::Ended,
            other => return Err(format!("{other} is no status")),
        };
        reader.u32()?;
        records.push(Record { time: Duration::from_nanos(time), offset, len, status });
    }
    let form = if flags & 1 == 1 { Some(read_form(&mut reader)?) } else { None };
    Ok((records, form))
}

fn read_form(reader: &mut Reader<'_>) -> Result<LeafForm, String> {
    let count = reader.u32()? as usize;
    if count > MAX_LEAVES {
        return Err(format!("a sample of {count} arrays; at most {MAX_LEAVES} are possible"));
    }
    let mut leaves = Vec::with_capacity(count);
    for _ in 0..count {
        let &[code, dimensions, ..] = reader.take::<8>()?;
        let (dtype, shape, _) = reader.array(code, dimensions)?;
        leaves.push(Leaf { dtype, shape });
    }
    let len = reader.u32()? as usize;
    let schema = reader.0.get(..len).ok_or("it ends early")?.to_vec();
    Ok(LeafForm { leaves, schema })
}

/// Reads numbers from a body, each after a check that they are there.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], String> {
        let (first, rest) = self.0.split_first_chunk().ok_or("it ends early")?;
        self.0 = rest;
        Ok(first)
    }

    /// Reads the sides of an array. Returns its element type, its shape and its size in bytes.
    pub(super) fn array(&mut self, code: u8, dimensions: u8) -> Result<(Dtype, Vec<usize>, usize), String> {
        let dtype = *Dtype::ALL.get(usize::from(code)).ok_or_else(|| format!("{code} is no element type"))?;
        if usize::from(dimensions) > MAX_DIMENSIONS {
            return Err(format!("an array of {dimensions} dimensions"));
        }
        let mut shape = Vec::with_capacity(dimensions.into());
        for _ in 0..dimensions {
            shape.push(usize::try_from(self.u64()?).map_err(|error| error.to_string())?);
        }
        let bytes = array_bytes(dtype, &shape).ok_or_else(|| format!("an array of shape {shape:?}"))?;
        Ok((dtype, shape, bytes))
    }

    /// The kind of a frame, and three unused bytes.
    fn kind(&mut self) -> Result<u8, String> {
        Ok(self.take::<4>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(*self.take()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(*self.take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(records: &[(u64, u64, u64, u32)], form: Option<&[u8]>) -> Vec<u8> {
        let mut body = vec![MAKE, u8::from(form.is_some()), 0, 0];
        body.extend((records.len() as u32).to_le_bytes());
        for (time, offset, len, status) in records {
            for number in [time, offset, len] {
                body.extend(number.to_le_bytes());
            }
            body.extend(status.to_le_bytes());
            body.extend([0; 4]);
        }
        body.extend(form.unwrap_or_default());
        body
    }

    #[test]
    fn a_reply_and_the_form_of_its_leaves_are_read() {
        let mut form = 1_u32.to_le_bytes().to_vec();
        form.extend([11, 2, 0, 0, 0, 0, 0, 0]);
        for side in [3_u64, 4] {
            form.extend(side.to_le_bytes());
        }
        form.extend(2_u32.to_le_bytes());
        form.extend(b"ab");
        let (records, form) = read_made(&reply(&[(7, 64, 5, 1), (8, 0, 0, 0)], Some(&form)), 2).unwrap();
        assert_eq!((records[0].time, records[0].offset, records[0].len), (Duration::from_nanos(7), 64, 5));
        assert_eq!((records[0].status, records[1].status), (Status::Payload, Status::InSlot));
        let leaves = vec![Leaf { dtype: Dtype::F32, shape: vec![3, 4] }];
        assert_eq!(form, Some(LeafForm { leaves, schema: b"ab".to_vec() }));
    }

    #[test]
    fn a_reply_that_is_cut_or_too_long_is_refused() {
        let whole = reply(&[(7, 64, 5, 1), (8, 0, 0, 0)], None);
        assert!(read_made(&whole, 1).is_err(), "more samples than requested");
        for len in 0..whole.len() {
            assert!(read_made(&whole[..len], 2).is_err(), "{len}");
        }
        assert!(read_made(&reply(&[(7, 64, 5, 9)], None), 1).is_err(), "an unknown status");
        assert!(read_made(&reply(&[], Some(&u32::MAX.to_le_bytes())), 1).is_err(), "too many leaves");
    }
}
