//! The bytes of a call to a function worker and of its reply.
//!
//! In: the fields of one sample, and what else the function may ask for. Out: the values that it returned, or its exception. The
//! contents travel in memory that both processes map: arguments in the *inbox* of the worker, results in its arena. The frame only
//! says where they are. Every length of a reply is checked, because the code of the worker is the user's.

use std::borrow::Cow;

use feedline_data::dtype::Dtype;

use super::frame::{Reader, end, put_blob};

const MAP: u8 = 3;
const ARRAY: u8 = 0;
const BYTES: u8 = 1;
const TEXT: u8 = 2;
const RETURNED: u8 = 0;
const RAISED: u8 = 1;
/// Contents in the inbox begin at multiples of this, so that arrays are aligned.
const ALIGNMENT: usize = 64;
/// Upper limit of the values that a function may return.
const MAX_VALUES: usize = 1024;

/// A value of a field, as a function gets and returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionValue<'a> {
    /// An array in row-major order.
    Array {
        /// Element type.
        dtype: Dtype,
        /// Sides, outermost first.
        shape: Vec<usize>,
        /// The elements.
        bytes: Cow<'a, [u8]>,
    },
    /// Bytes, such as an encoded picture.
    Bytes(Cow<'a, [u8]>),
    /// Text.
    Text(Cow<'a, str>),
}

impl FunctionValue<'_> {
    fn content(&self) -> &[u8] {
        match self {
            Self::Array { bytes, .. } | Self::Bytes(bytes) => bytes,
            Self::Text(text) => text.as_bytes(),
        }
    }
}

/// One call of a function.
#[derive(Debug)]
pub struct FunctionCall<'a> {
    /// The fields that it gets.
    pub values: &'a [FunctionValue<'a>],
    /// Random bits from which its generators are seeded.
    pub seeds: [u64; 2],
    /// The index of the sample.
    pub index: u64,
    /// The epoch.
    pub epoch: u64,
    /// The key of the sample, if the function asks for it.
    pub key: Option<&'a str>,
}

/// Writes a call into `frame`. Returns the places of the contents in the inbox, and the size that the inbox needs.
pub(super) fn call_frame(call: &FunctionCall<'_>, frame: &mut Vec<u8>) -> (Vec<usize>, usize) {
    frame.clear();
    frame.extend([0; 4]);
    frame.extend([MAP, u8::from(call.key.is_some()), 0, 0]);
    frame.extend((call.values.len() as u32).to_le_bytes());
    for number in [call.seeds[0], call.seeds[1], call.index, call.epoch] {
        frame.extend(number.to_le_bytes());
    }
    put_blob(frame, call.key.unwrap_or_default().as_bytes());
    let (mut places, mut used) = (Vec::with_capacity(call.values.len()), 0_usize);
    for value in call.values {
        let (kind, code, shape): (u8, u8, &[usize]) = match value {
            FunctionValue::Array { dtype, shape, .. } => (ARRAY, code_of(*dtype), shape),
            FunctionValue::Bytes(_) => (BYTES, 0, &[]),
            FunctionValue::Text(_) => (TEXT, 0, &[]),
        };
        frame.extend([kind, code, shape.len() as u8, 0]);
        for side in shape {
            frame.extend((*side as u64).to_le_bytes());
        }
        frame.extend((used as u64).to_le_bytes());
        frame.extend((value.content().len() as u64).to_le_bytes());
        places.push(used);
        used = (used + value.content().len()).next_multiple_of(ALIGNMENT);
    }
    end(frame);
    (places, used)
}

/// The contents of the values, in the order of their places.
pub(super) fn contents<'a>(call: &'a FunctionCall<'a>) -> impl Iterator<Item = &'a [u8]> {
    call.values.iter().map(FunctionValue::content)
}

fn code_of(dtype: Dtype) -> u8 {
    Dtype::ALL.iter().position(|&other| other == dtype).expect("every element type is in the list") as u8
}

/// A reply: where the results are in the arena, the pickled exception of the function, or the pickled reason why its result cannot
/// be used.
#[derive(Debug)]
pub(super) enum FunctionReply {
    Returned(Vec<Returned>),
    Raised(Vec<u8>),
    Unusable(Vec<u8>),
}

/// A result in the arena of the worker.
#[derive(Debug)]
pub(super) struct Returned {
    kind: ReturnedKind,
    pub offset: u64,
    pub len: u64,
}

#[derive(Debug)]
enum ReturnedKind {
    Array(Dtype, Vec<usize>),
    Bytes,
    Text,
}

impl Returned {
    /// The value, given its content.
    pub(super) fn value(self, content: Vec<u8>) -> Result<FunctionValue<'static>, String> {
        Ok(match self.kind {
            ReturnedKind::Array(dtype, shape) => FunctionValue::Array { dtype, shape, bytes: content.into() },
            ReturnedKind::Bytes => FunctionValue::Bytes(content.into()),
            ReturnedKind::Text => {
                FunctionValue::Text(String::from_utf8(content).map_err(|error| error.to_string())?.into())
            }
        })
    }
}

/// Reads a reply.
pub(super) fn read_reply(body: &[u8]) -> Result<FunctionReply, String> {
    let mut reader = Reader(body);
    let &[kind, status, _, _] = reader.take::<4>()?;
    if kind != MAP {
        return Err(format!("it is of kind {kind}"));
    }
    match status {
        RETURNED => {}
        RAISED => return Ok(FunctionReply::Raised(reader.0.to_vec())),
        _ => return Ok(FunctionReply::Unusable(reader.0.to_vec())),
    }
    let count = reader.u32()? as usize;
    if count > MAX_VALUES {
        return Err(format!("{count} values; at most {MAX_VALUES} are possible"));
    }
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let &[kind, code, dimensions, _] = reader.take::<4>()?;
        let (kind, size) = match kind {
            ARRAY => {
                let (dtype, shape, bytes) = reader.array(code, dimensions)?;
                (ReturnedKind::Array(dtype, shape), Some(bytes as u64))
            }
            BYTES => (ReturnedKind::Bytes, None),
            TEXT => (ReturnedKind::Text, None),
            other => return Err(format!("{other} is no kind of value")),
        };
        let (offset, len) = (reader.u64()?, reader.u64()?);
        if size.is_some_and(|size| size != len) {
            return Err(format!("{len} bytes for an array of {} bytes", size.unwrap_or_default()));
        }
        values.push(Returned { kind, offset, len });
    }
    Ok(FunctionReply::Returned(values))
}

/// Reads a reply without the memory of its worker. Returns the number of values. For the fuzz target `worker_reply`.
#[doc(hidden)]
pub fn values_in_reply(body: &[u8]) -> Result<usize, String> {
    read_reply(body).map(|reply| if let FunctionReply::Returned(values) = reply { values.len() } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(len: u64) -> Vec<u8> {
        let mut body = vec![MAP, RETURNED, 0, 0];
        body.extend(2_u32.to_le_bytes());
        body.extend([ARRAY, code_of(Dtype::F32), 1, 0]);
        for number in [3, 64, len] {
            body.extend(number.to_le_bytes());
        }
        body.extend([TEXT, 0, 0, 0]);
        for number in [128_u64, 2] {
            body.extend(number.to_le_bytes());
        }
        body
    }

    #[test]
    fn a_reply_is_read_and_a_damaged_one_is_refused() {
        let FunctionReply::Returned(values) = read_reply(&reply(12)).unwrap() else { panic!("it returned") };
        let values: Vec<_> = values
            .into_iter()
            .zip([vec![0; 12], b"ab".to_vec()])
            .map(|(value, content)| value.value(content).unwrap())
            .collect();
        assert_eq!(
            values,
            [
                FunctionValue::Array { dtype: Dtype::F32, shape: vec![3], bytes: vec![0; 12].into() },
                FunctionValue::Text("ab".into())
            ]
        );
        assert!(read_reply(&reply(13)).is_err(), "another length than the shape has");
        let whole = reply(12);
        for len in 0..whole.len() {
            assert!(read_reply(&whole[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn contents_do_not_overlap_and_are_aligned() {
        let values = [FunctionValue::Bytes(vec![1; 65].into()), FunctionValue::Text("ab".into())];
        let call = FunctionCall { values: &values, seeds: [0; 2], index: 0, epoch: 0, key: None };
        assert_eq!(call_frame(&call, &mut Vec::new()), (vec![0, 128], 192));
    }
}
