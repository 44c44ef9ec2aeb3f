//! What a decoder has to know of a JPEG before its entropy-coded data: sizes, sampling and tables.
//!
//! In: the segments of a file up to its scan. Out: a [`Frame`], if the file is baseline or extended sequential with one scan
//! of all components. A frame is written in two forms: as the segments of another JPEG, and compactly as part of an index.

use super::huffman::Code;
use super::packed::{Reader, put_number};

/// Limits of libjpeg.
const MAX_BLOCKS_IN_MCU: usize = 10;
const MOST_SIDE: u32 = 65_500;

/// The header of a sequential JPEG with one scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// 0xc0 baseline, 0xc1 extended.
    kind: u8,
    pub width: u32,
    pub height: u32,
    pub components: Vec<Component>,
    /// MCUs between restarts; 0 without.
    pub restart_interval: u32,
    has_jfif: bool,
    adobe_transform: Option<u8>,
    quantisers: [Option<Box<[u16; 64]>>; 4],
    pub dc: [Option<Code>; 4],
    pub ac: [Option<Code>; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Component {
    id: u8,
    /// Blocks of an MCU, across and down.
    pub across: u8,
    pub down: u8,
    quantiser: u8,
    pub dc: u8,
    pub ac: u8,
}

impl Component {
    /// Blocks of an MCU.
    pub fn blocks(self) -> usize {
        usize::from(self.across) * usize::from(self.down)
    }
}

impl Frame {
    /// Reads the segments of a file up to the first byte of its scan, whose place is given too.
    pub fn read(file: &[u8]) -> Result<(Self, usize), &'static str> {
        let mut this = Self {
            kind: 0,
            width: 0,
            height: 0,
            components: Vec::new(),
            restart_interval: 0,
            has_jfif: false,
            adobe_transform: None,
            quantisers: [None, None, None, None],
            dc: [None, None, None, None],
            ac: [None, None, None, None],
        };
        let cut_short = "the header is cut short";
        if !file.starts_with(&[0xff, 0xd8]) {
            return Err("it is not a JPEG file");
        }
        let mut at = 2;
        loop {
            if file.get(at) != Some(&0xff) {
                return Err("there are bytes between segments");
            }
            while file.get(at + 1) == Some(&0xff) {
                at += 1;
            }
            let marker = *file.get(at + 1).ok_or(cut_short)?;
            let length = file.get(at + 2..at + 4).and_then(|bytes| bytes.first_chunk()).ok_or(cut_short)?;
            let length = usize::from(u16::from_be_bytes(*length));
            let segment = file.get(at + 4..at + 2 + length).ok_or(cut_short)?;
            at += 2 + length;
            match marker {
                0xc0 | 0xc1 if this.components.is_empty() => {
                    this.kind = marker;
                    this.read_size(segment).ok_or("the frame header is not valid")?;
                }
                0xc4 => this.read_codes(segment).ok_or("a Huffman table is not valid")?,
                0xdb => this.read_quantisers(segment).ok_or("a quantisation table is not valid")?,
                0xdd => {
                    let interval = segment.first_chunk().ok_or(cut_short)?;
                    this.restart_interval = u32::from(u16::from_be_bytes(*interval));
                }
                0xda => {
                    this.read_scan(segment).ok_or("the scan is not one of all components in their order")?;
                    this.check()?;
                    return Ok((this, at));
                }
                0xe0 => this.has_jfif |= segment.starts_with(b"JFIF\0") && segment.len() >= 14,
                0xee => {
                    if segment.starts_with(b"Adobe") && segment.len() >= 12 {
                        this.adobe_transform = Some(segment[11]);
                    }
                }
                0xe1..=0xef | 0xfe => {}
                0xc2 | 0xc6 | 0xca | 0xce => return Err("it is progressive"),
                0xc9 | 0xcb | 0xcd | 0xcf => return Err("it is coded arithmetically"),
                _ => return Err("it has segments that are not part of sequential files"),
            }
        }
    }

    fn read_size(&mut self, segment: &[u8]) -> Option<()> {
        let (head, components) = segment.split_first_chunk::<6>()?;
        let [precision, high_rows, rows, high_columns, columns, count] = *head;
        self.height = u32::from(u16::from_be_bytes([high_rows, rows]));
        self.width = u32::from(u16::from_be_bytes([high_columns, columns]));
        if precision != 8 || components.len() != usize::from(count) * 3 || !(1..=4).contains(&count) {
            return None;
        }
        let component = |&[id, sampling, quantiser]: &[u8; 3]| Component {
            id,
            across: sampling >> 4,
            down: sampling & 15,
            quantiser,
            dc: 0,
            ac: 0,
        };
        self.components = components.as_chunks().0.iter().map(component).collect();
        Some(())
    }

    fn read_codes(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((&place, rest)) = segment.split_first() {
            let (code, rest) = Code::read(rest)?;
            let codes = match place >> 4 {
                0 if code.symbols.iter().all(|&category| category <= 15) => &mut self.dc,
                1 => &mut self.ac,
                _ => return None,
            };
            *codes.get_mut(usize::from(place & 15))? = Some(code);
            segment = rest;
        }
        Some(())
    }

    fn read_quantisers(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((&place, rest)) = segment.split_first() {
            let mut values = Box::new([0; 64]);
            let rest = match place >> 4 {
                0 => {
                    let (bytes, rest) = rest.split_first_chunk::<64>()?;
                    *values = bytes.map(u16::from);
                    rest
                }
                1 => {
                    let (bytes, rest) = rest.split_at_checked(128)?;
                    for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                        *value = u16::from_be_bytes(*bytes);
                    }
                    rest
                }
                _ => return None,
            };
            *self.quantisers.get_mut(usize::from(place & 15))? = Some(values);
            segment = rest;
        }
        Some(())
    }

    fn read_scan(&mut self, segment: &[u8]) -> Option<()> {
        let (&count, rest) = segment.split_first()?;
        if usize::from(count) != self.components.len() || rest.len() != usize::from(count) * 2 + 3 {
            return None;
        }
        for (component, &[id, tables]) in self.components.iter_mut().zip(rest.as_chunks().0) {
            if component.id != id {
                return None;
            }
            (component.dc, component.ac) = (tables >> 4, tables & 15);
        }
        rest.ends_with(&[0, 63, 0]).then_some(())
    }

    /// Whether everything that the components name is there, and libjpeg would take it.
    fn check(&mut self) -> Result<(), &'static str> {
        let sides = |component: &Component| [component.across, component.down];
        if self.components.iter().flat_map(sides).any(|side| !(1..=4).contains(&side)) {
            return Err("its sampling is not valid");
        }
        if let [grey] = self.components.as_mut_slice() {
            // A scan of one component has MCUs of one block, whatever its sampling.
            (grey.across, grey.down) = (1, 1);
        }
        let (across, down) = self.sampling();
        if self
            .components
            .iter()
            .any(|c| !across.is_multiple_of(c.across.into()) || !down.is_multiple_of(c.down.into()))
        {
            return Err("its sampling is fractional");
        }
        if self.components.iter().map(|c| c.blocks()).sum::<usize>() > MAX_BLOCKS_IN_MCU {
            return Err("its MCUs have more than 10 blocks");
        }
        let is_there = |c: &Component| {
            self.quantisers.get(usize::from(c.quantiser)).is_some_and(Option::is_some)
                && self.dc.get(usize::from(c.dc)).is_some_and(Option::is_some)
                && self.ac.get(usize::from(c.ac)).is_some_and(Option::is_some)
        };
        if !self.components.iter().all(is_there) {
            return Err("a table is missing");
        }
        // What no component uses is not part of the picture.
        for place in 0..4_u8 {
            let is_used = |of: fn(&Component) -> u8| self.components.iter().any(|c| of(c) == place);
            let (quantiser, dc, ac) = (is_used(|c| c.quantiser), is_used(|c| c.dc), is_used(|c| c.ac));
            let place = usize::from(place);
            self.quantisers[place].take_if(|_| !quantiser);
            self.dc[place].take_if(|_| !dc);
            self.ac[place].take_if(|_| !ac);
        }
        if self.width.max(self.height) > MOST_SIDE {
            return Err("it is larger than libjpeg takes");
        }
        if self.width == 0 || self.height == 0 { Err("its size is given later or not at all") } else { Ok(()) }
    }

    /// Most blocks across and down of any component.
    fn sampling(&self) -> (u32, u32) {
        let most = |of: fn(&Component) -> u8| self.components.iter().map(of).max().unwrap_or(1).into();
        (most(|c| c.across), most(|c| c.down))
    }

    /// Width and height of an MCU in pixels.
    pub fn mcu_size(&self) -> (u32, u32) {
        let (across, down) = self.sampling();
        (8 * across, 8 * down)
    }

    /// MCUs in a row, and rows of MCUs.
    pub fn mcus(&self) -> (u32, u32) {
        let (width, height) = self.mcu_size();
        (self.width.div_ceil(width), self.height.div_ceil(height))
    }

    /// Writes a header for a picture of another size whose scan follows, without restarts, with these codes for DC.
    pub fn write(&self, (width, height): (u32, u32), dc: &[Option<Code>; 4], out: &mut Vec<u8>) {
        out.extend([0xff, 0xd8]);
        if self.has_jfif {
            segment(out, 0xe0, |out| out.extend(b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"));
        }
        if let Some(transform) = self.adobe_transform {
            segment(out, 0xee, |out| out.extend([&b"Adobe\0\x64\0\0\0\0"[..], &[transform]].concat()));
        }
        segment(out, 0xdb, |out| {
            for (place, values) in (0..).zip(&self.quantisers) {
                let Some(values) = values else { continue };
                if values.iter().all(|&value| value <= 255) {
                    out.push(place);
                    out.extend(values.map(|value| value as u8));
                } else {
                    out.push(0x10 | place);
                    out.extend(values.iter().flat_map(|value| value.to_be_bytes()));
                }
            }
        });
        segment(out, self.kind, |out| {
            out.push(8);
            out.extend((height as u16).to_be_bytes());
            out.extend((width as u16).to_be_bytes());
            out.push(self.components.len() as u8);
            out.extend(self.components.iter().flat_map(|c| [c.id, c.across << 4 | c.down, c.quantiser]));
        });
        segment(out, 0xc4, |out| {
            for (class, codes) in [(0, dc), (0x10, &self.ac)] {
                for (place, code) in (0..).zip(codes) {
                    let Some(code) = code else { continue };
                    out.push(class | place);
                    out.extend(code.counts);
                    out.extend(&code.symbols);
                }
            }
        });
        segment(out, 0xda, |out| {
            out.push(self.components.len() as u8);
            out.extend(self.components.iter().flat_map(|c| [c.id, c.dc << 4 | c.ac]));
            out.extend([0, 63, 0]);
        });
    }

    /// Writes it as part of an index.
    pub fn pack(&self, out: &mut Vec<u8>) {
        out.extend([self.kind, u8::from(self.has_jfif), self.components.len() as u8]);
        put_number(out, u64::from(self.width));
        put_number(out, u64::from(self.height));
        put_number(out, u64::from(self.restart_interval));
        put_number(out, self.adobe_transform.map_or(0, |transform| 1 + u64::from(transform)));
        for c in &self.components {
            out.extend([c.id, c.across << 4 | c.down, c.quantiser, c.dc << 4 | c.ac]);
        }
        for values in self.quantisers.iter().flatten() {
            values.iter().for_each(|&value| put_number(out, u64::from(value)));
        }
        for (codes, standard) in [(&self.dc, &standard::DC), (&self.ac, &standard::AC)] {
            for code in codes.iter().flatten() {
                let known =
                    standard.iter().position(|(counts, symbols)| *counts == code.counts && *symbols == code.symbols);
                out.push(known.map_or(0xff, |known| known as u8));
                if known.is_none() {
                    out.extend(code.counts);
                    out.extend(&code.symbols);
                }
            }
        }
    }

    /// Reads what [`Frame::pack`] wrote.
    pub fn unpack(reader: &mut Reader<'_>) -> Option<Self> {
        let [kind, has_jfif, count] = *reader.array()?;
        let mut number = || u32::try_from(reader.number()?).ok();
        let (width, height, restart_interval, adobe) = (number()?, number()?, number()?, number()?);
        let component = |reader: &mut Reader<'_>| {
            let [id, sampling, quantiser, tables] = *reader.array()?;
            let (across, down) = (sampling >> 4, sampling & 15);
            Some(Component { id, across, down, quantiser, dc: tables >> 4, ac: tables & 15 })
        };
        let components: Option<Vec<_>> = (0..count.min(4)).map(|_| component(reader)).collect();
        let mut this = Self {
            kind,
            width,
            height,
            components: components?,
            restart_interval,
            has_jfif: has_jfif != 0,
            adobe_transform: adobe.checked_sub(1).and_then(|transform| u8::try_from(transform).ok()),
            quantisers: [None, None, None, None],
            dc: [None, None, None, None],
            ac: [None, None, None, None],
        };
        let components = this.components.clone();
        let is_used = |of: fn(&Component) -> u8, place: u8| components.iter().any(|c| of(c) == place);
        for place in (0..4).filter(|&place| is_used(|c| c.quantiser, place)) {
            let mut values = Box::new([0; 64]);
            for value in values.iter_mut() {
                *value = u16::try_from(reader.number()?).ok()?;
            }
            this.quantisers[usize::from(place)] = Some(values);
        }
        for place in (0..4).filter(|&place| is_used(|c| c.dc, place)) {
            this.dc[usize::from(place)] = Some(unpack_code(reader, &standard::DC)?);
        }
        for place in (0..4).filter(|&place| is_used(|c| c.ac, place)) {
            this.ac[usize::from(place)] = Some(unpack_code(reader, &standard::AC)?);
        }
        let is_categories = |code: &Code| code.symbols.iter().all(|&category| category <= 15);
        let is_sound = matches!(kind, 0xc0 | 0xc1)
            && this.width <= 0xffff
            && this.height <= 0xffff
            && !this.components.is_empty()
            && this.dc.iter().flatten().all(is_categories);
        (is_sound && this.check().is_ok()).then_some(this)
    }
}

fn unpack_code(reader: &mut Reader<'_>, standard: &[([u8; 16], &[u8]); 2]) -> Option<Code> {
    match reader.array::<1>()? {
        [0xff] => {
            let (code, rest) = Code::read(reader.rest())?;
            *reader = Reader::new(rest);
            Some(code)
        }
        [known] => {
            let (counts, symbols) = standard.get(usize::from(*known))?;
            Some(Code { counts: *counts, symbols: symbols.to_vec() })
        }
    }
}

fn segment(out: &mut Vec<u8>, marker: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend([0xff, marker, 0, 0]);
    let start = out.len();
    write(out);
    let length = (out.len() - start + 2) as u16;
    out[start - 2..start].copy_from_slice(&length.to_be_bytes());
}

/// The codes of the standard's Annex K, which most files use: luma, chroma.
mod standard {
    type Definition = ([u8; 16], &'static [u8]);

    pub const DC: [Definition; 2] = [
        ([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        ([0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ];
    pub const AC: [Definition; 2] = [
        ([0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7d], &LUMA),
        ([0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77], &CHROMA),
    ];
    #[rustfmt::skip]
    const LUMA: [u8; 162] = [
        0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71, 0x14, 0x32, 0x81,
        0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17, 0x18,
        0x19, 0x1a, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
        0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75,
        0x76, 0x77, 0x78, 0x79, 0x7a, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
        0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3,
        0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5,
        0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
    ];
    #[rustfmt::skip]
    const CHROMA: [u8; 162] = [
        0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13, 0x22, 0x32, 0x81, 0x08,
        0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33, 0x52, 0xf0, 0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25,
        0xf1, 0x17, 0x18, 0x19, 0x1a, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47,
        0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74,
        0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97,
        0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba,
        0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe2, 0xe3, 0xe4,
        0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
    ];
}
