//! Encodes only the coefficients that a smaller picture needs.
//!
//! In: a scan of MCUs, and the wanted coefficients. Out: these coefficients, in their order, with codes made for them. The MCUs of
//! all rows follow each other. Coefficients that the decoder of a smaller picture multiplies by zero are left out, so its pixels do
//! not change.

use std::borrow::Cow;

use super::bits::BitWriter;
use super::coefficients::Order;
use super::frame::JpegFrame;
use super::huffman::Code;
use super::optimal::{SymbolCounts, cheapest};
use super::packed_frame::{standard_ac, standard_dc};
use super::scan::{McuRun, Mcus, Scan};
use super::walk::COMPONENTS;
use crate::error::BadIndex;

/// Number of codes in a frame: four for DC differences, then four for AC coefficients.
const CODES: usize = 8;
/// A run of 16 zeros, and the end of a block.
const ZEROS: u8 = 0xf0;
const END: u8 = 0;

/// Coefficients of pictures stay within about 1100 after dequantisation. From 8192 on (2^15 less the two bits by which they are
/// shifted), the decoder of a smaller picture gives other pixels for a block with missing coefficients: its shortcut for blocks
/// with few coefficients wraps around, where the longer path saturates.
const MAX_MULTIPLIED: i32 = 8192;

/// Re-encoded data.
pub(super) struct Recoded {
    /// The header with the codes of the data.
    pub frame: JpegFrame,
    bytes: Vec<u8>,
    segment: [McuRun; 1],
    order: &'static Order,
}

impl Recoded {
    /// Keeps the coefficients of an order.
    pub(super) fn of(frame: &JpegFrame, scan: &Scan<'_>, order: &'static Order) -> Result<Self, BadIndex> {
        // Two passes: the codes depend on how often each symbol occurs.
        let tokens = Tokens::of(frame, scan, order)?;
        let mut frame = frame.clone();
        frame.restart_interval = 0;
        let (dc, ac) = tokens.counts.split_at(CODES / 2);
        for (code, counts) in frame.dc.iter_mut().zip(dc).filter(|(code, _)| code.is_some()) {
            *code = Some(cheapest(counts, standard_dc()));
        }
        for (code, counts) in frame.ac.iter_mut().zip(ac).filter(|(code, _)| code.is_some()) {
            *code = Some(cheapest(counts, standard_ac()));
        }
        let codes: Vec<Lookup> = frame.dc.iter().chain(&frame.ac).map(|code| lookup(code.as_ref())).collect();
        let mut bytes = Vec::with_capacity(tokens.list.len());
        let mut writer = BitWriter::new(&mut bytes);
        let mut bits = 0;
        for token in tokens.list {
            // The symbol's code, then the bits of the value.
            let (code, len) = codes[token.code()][usize::from(token.symbol())];
            let size = token.size();
            writer.put(u32::from(code) << size | token.value(), len + size);
            bits += (len + size) as usize;
        }
        writer.finish();
        let mcus = scan.segments.iter().map(|segment| segment.mcus).sum();
        let segment = McuRun { bits: 0..bits, mcus, predictors: [0; COMPONENTS], padding: 0, sum_after: None };
        Ok(Self { frame, bytes, segment: [segment], order })
    }

    /// The data.
    pub(super) fn scan(&self) -> Scan<'_> {
        Scan { bytes: &self.bytes, segments: Cow::Borrowed(&self.segment), order: self.order }
    }
}

/// Code and length for each symbol.
type Lookup = [(u16, u32); 256];

fn lookup(code: Option<&Code>) -> Lookup {
    let mut lookup = [(0, 0); 256];
    for (code, len, symbol) in code.into_iter().flat_map(Code::codes) {
        lookup[usize::from(symbol)] = (code as u16, len);
    }
    lookup
}

/// A symbol and its value: value (16 bits), its size (4), symbol (8), code number (3).
#[derive(Clone, Copy)]
struct Token(u32);

impl Token {
    fn new(code: usize, symbol: u8, size: u32, value: u32) -> Self {
        Self(value | size << 16 | u32::from(symbol) << 20 | (code as u32) << 28)
    }

    fn code(self) -> usize {
        (self.0 >> 28) as usize
    }

    fn symbol(self) -> u8 {
        (self.0 >> 20) as u8
    }

    fn size(self) -> u32 {
        self.0 >> 16 & 15
    }

    fn value(self) -> u32 {
        self.0 & 0xffff
    }
}

/// The symbols of the data in order, and how often each occurs with each code.
struct Tokens {
    list: Vec<Token>,
    counts: Box<[SymbolCounts; CODES]>,
}

impl Tokens {
    fn of(frame: &JpegFrame, scan: &Scan<'_>, order: &Order) -> Result<Self, BadIndex> {
        let mut this = Self { list: Vec::with_capacity(scan.bytes.len()), counts: Box::new([[0; 256]; CODES]) };
        let mut mcus = Mcus::new(frame, scan);
        let (ranks, count) = (order.ranks(), order.count());
        let quantisers: Option<Vec<&[u16; 64]>> = frame.components.iter().map(|one| frame.quantiser(*one)).collect();
        let quantisers = quantisers.ok_or(BadIndex("a table is missing"))?;
        let mut predictors = [0; COMPONENTS];
        for _ in 0..scan.segments.iter().map(|segment| segment.mcus).sum() {
            let next = mcus.next_with(|block, dc, bits| {
                let component = frame.components[block.component];
                let quantiser = quantisers[block.component];
                let is_small = |place: usize, value: i16| {
                    i32::from(value).saturating_mul(quantiser[place].into()).abs() < MAX_MULTIPLIED
                };
                let mut are_small = is_small(0, dc as i16);
                // A decoder takes DC values modulo 2^16.
                let difference =
                    (dc as i16).wrapping_sub(std::mem::replace(&mut predictors[block.component], dc as i16));
                this.add(component.dc.into(), 0, Some(difference).filter(|&difference| difference != i16::MIN)?);
                let (code, mut last) = (CODES / 2 + usize::from(component.ac), 0);
                block.ac.read_each(bits, 1, |place, value| {
                    let rank = ranks[place];
                    if rank != 0 && value != 0 {
                        are_small &= is_small(place, value);
                        this.add_after_zeros(code, rank.wrapping_sub(last + 1), value);
                        last = rank;
                    }
                })?;
                if last < count {
                    this.push(code, END, 0, 0);
                }
                are_small.then_some(())
            });
            next.ok_or(BadIndex("the data is no sequence of blocks"))?;
        }
        Ok(this)
    }

    fn add_after_zeros(&mut self, code: usize, mut zeros: u8, value: i16) {
        while zeros > 15 {
            self.push(code, ZEROS, 0, 0);
            zeros -= 16;
        }
        self.add(code, zeros, value);
    }

    /// Adds a value of at most 15 bits after at most 15 zeros.
    fn add(&mut self, code: usize, zeros: u8, value: i16) {
        let value = i32::from(value);
        // The category of T.81: the number of bits of the magnitude. Negative values are stored minus one, in that many bits.
        let size = 32 - value.unsigned_abs().leading_zeros();
        let bits = if value < 0 { value - 1 } else { value } & ((1 << size) - 1);
        self.push(code, zeros << 4 | size as u8, size, bits.cast_unsigned());
    }

    fn push(&mut self, code: usize, symbol: u8, size: u32, value: u32) {
        self.counts[code][usize::from(symbol)] += 1;
        self.list.push(Token::new(code, symbol, size, value));
    }
}
