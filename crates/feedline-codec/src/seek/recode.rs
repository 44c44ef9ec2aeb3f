//! Encodes the coefficients that a picture needs, perhaps a smaller one.
//!
//! In: a scan of MCUs or decoded blocks, and the wanted coefficients. Out: these coefficients, in their order, with codes made for
//! them. The MCUs of all rows follow each other. Coefficients that the decoder of a smaller picture multiplies by zero are left out,
//! so its pixels do not change.

use std::borrow::Cow;
use std::ops::Range;

use super::bits::BitWriter;
use super::coefficients::{Order, ZIGZAG_TO_NATURAL};
use super::frame::{Component, EXTENDED, JpegFrame};
use super::huffman::Code;
use super::optimal::{SymbolCounts, cheapest};
use super::packed_frame::{standard_ac, standard_dc};
use super::scan::{McuRun, Mcus, Scan, sum};
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
    segments: Vec<McuRun>,
    order: &'static Order,
}

impl Recoded {
    /// Keeps the coefficients of an order.
    pub(super) fn of(frame: &JpegFrame, scan: &Scan<'_>, order: &'static Order) -> Result<Self, BadIndex> {
        // Two passes: the codes depend on how often each symbol occurs.
        let tokens = Tokens::of(frame, scan, order)?;
        let mcus = scan.segments.iter().map(|segment| segment.mcus).sum();
        Ok(Self::of_tokens(frame.clone(), &tokens, &[TokenRun::of_all(&tokens, mcus)], order))
    }

    /// Encodes decoded blocks, MCU after MCU, of rows of so many MCUs. The codes of `frame` are not used.
    pub(super) fn of_blocks(
        frame: &JpegFrame,
        blocks: &[[i16; 64]],
        columns: u32,
        order: &'static Order,
    ) -> Result<Self, BadIndex> {
        let mut frame = frame.clone();
        frame.kind = EXTENDED;
        (frame.dc, frame.ac) = ([const { None }; 4], [const { None }; 4]);
        for (number, component) in frame.components.iter_mut().enumerate() {
            // Luma and black share codes, and so do the colours.
            let place = u8::from(matches!(number, 1 | 2));
            (component.dc, component.ac) = (place, place);
            let code = Some(Code { counts: [0; 16], symbols: Vec::new() });
            (frame.dc[usize::from(place)], frame.ac[usize::from(place)]) = (code.clone(), code);
        }
        let (tokens, rows) = Tokens::of_blocks(&frame, blocks, columns, order)?;
        let mcus = rows.iter().map(|row| row.mcus).sum();
        let rows = if order == Order::WHOLE { rows } else { vec![TokenRun::of_all(&tokens, mcus)] };
        Ok(Self::of_tokens(frame, &tokens, &rows, order))
    }

    /// Makes codes, and writes the tokens.
    fn of_tokens(mut frame: JpegFrame, tokens: &Tokens, runs: &[TokenRun], order: &'static Order) -> Self {
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
        let mut segments = Vec::with_capacity(runs.len());
        let mut bits = 0;
        for run in runs {
            let start = bits;
            for token in &tokens.list[run.tokens.clone()] {
                // The symbol's code, then the bits of the value.
                let (code, len) = codes[token.code()][usize::from(token.symbol())];
                let size = token.size();
                writer.put(u32::from(code) << size | token.value(), len + size);
                bits += (len + size) as usize;
            }
            let TokenRun { mcus, predictors, sum_after, .. } = *run;
            segments.push(McuRun { bits: start..bits, mcus, predictors, padding: 0, sum_after });
        }
        writer.finish();
        Self { frame, bytes, segments, order }
    }

    /// The data.
    pub(super) fn scan(&self) -> Scan<'_> {
        Scan { bytes: &self.bytes, segments: Cow::Borrowed(&self.segments), order: self.order }
    }
}

/// The tokens of some MCUs, which become a segment.
struct TokenRun {
    tokens: Range<usize>,
    mcus: u64,
    /// As in [`McuRun`].
    predictors: [i32; COMPONENTS],
    sum_after: Option<u16>,
}

impl TokenRun {
    /// All tokens, without predictors.
    fn of_all(tokens: &Tokens, mcus: u64) -> Self {
        Self { tokens: 0..tokens.list.len(), mcus, predictors: [0; COMPONENTS], sum_after: None }
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

    /// Returns also a run for each row.
    fn of_blocks(
        frame: &JpegFrame,
        blocks: &[[i16; 64]],
        columns: u32,
        order: &Order,
    ) -> Result<(Self, Vec<TokenRun>), BadIndex> {
        let mut this = Self { list: Vec::with_capacity(blocks.len() * 8), counts: Box::new([[0; 256]; CODES]) };
        let (ranks, count) = (order.ranks(), order.count());
        let of_mcu: Vec<usize> = frame
            .components
            .iter()
            .enumerate()
            .flat_map(|(number, c)| std::iter::repeat_n(number, c.blocks()))
            .collect();
        let mut predictors = [0; COMPONENTS];
        let mut rows = Vec::new();
        let unusable = BadIndex("a coefficient is too large");
        for row in blocks.chunks(of_mcu.len() * columns as usize) {
            let (start, before) = (this.list.len(), predictors);
            for (block, &number) in row.iter().zip(of_mcu.iter().cycle()) {
                let component = frame.components[number];
                let difference = block[0].wrapping_sub(predictors[number] as i16);
                if difference == i16::MIN || (order != Order::WHOLE && !is_small(frame, component, block)) {
                    return Err(unusable);
                }
                predictors[number] = block[0].into();
                this.add(component.dc.into(), 0, difference);
                let (code, mut last) = (CODES / 2 + usize::from(component.ac), 0);
                for (&natural, &rank) in ZIGZAG_TO_NATURAL.iter().zip(&ranks) {
                    let value = block[usize::from(natural)];
                    if rank != 0 && value != 0 {
                        if value == i16::MIN {
                            return Err(unusable);
                        }
                        this.add_after_zeros(code, rank - last - 1, value);
                        last = rank;
                    }
                }
                if last < count {
                    this.push(code, END, 0, 0);
                }
            }
            let (tokens, sum_after) = (start..this.list.len(), Some(sum(predictors)));
            rows.push(TokenRun { tokens, mcus: columns.into(), predictors: before, sum_after });
        }
        Ok((this, rows))
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

/// Whether the decoder of a smaller picture may get this block without some of its coefficients.
fn is_small(frame: &JpegFrame, component: Component, block: &[i16; 64]) -> bool {
    let Some(quantiser) = frame.quantiser(component) else { return false };
    let mut values = quantiser.iter().zip(&ZIGZAG_TO_NATURAL);
    values.all(|(&factor, &natural)| {
        i32::from(block[usize::from(natural)]).saturating_mul(factor.into()).abs() < MAX_MULTIPLIED
    })
}
