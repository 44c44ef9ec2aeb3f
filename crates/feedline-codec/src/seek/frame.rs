//! The header of a JPEG: sizes, sampling and tables.
//!
//! In: the segments of a file up to its scan. Out: a [`JpegFrame`], if the file is baseline or extended sequential with one scan of
//! all components. It can be written again for a part of the picture. `progressive/script.rs` reads the headers of several scans.

use super::huffman::Code;
use crate::rect::Rect;

/// Limits of libjpeg.
const MAX_BLOCKS_IN_MCU: usize = 10;
const MAX_SIDE: u32 = 65_500;

/// Markers of frame headers.
pub(super) const EXTENDED: u8 = 0xc1;
pub(super) const PROGRESSIVE: u8 = 0xc2;

/// The header of a JPEG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JpegFrame {
    /// 0xc0 baseline, 0xc1 extended, 0xc2 progressive.
    pub kind: u8,
    pub width: u32,
    pub height: u32,
    pub components: Vec<Component>,
    /// MCUs between restarts; 0 without.
    pub restart_interval: u32,
    pub has_jfif: bool,
    pub adobe_transform: Option<u8>,
    pub quantisers: [Option<Box<[u16; 64]>>; 4],
    pub dc: [Option<Code>; 4],
    pub ac: [Option<Code>; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Component {
    pub id: u8,
    /// Blocks per MCU, horizontally and vertically.
    pub across: u8,
    pub down: u8,
    pub quantiser: u8,
    pub dc: u8,
    pub ac: u8,
}

impl Component {
    /// Blocks of an MCU.
    pub(super) fn blocks(self) -> usize {
        usize::from(self.across) * usize::from(self.down)
    }
}

/// A marker and what follows it.
#[derive(Debug)]
pub(super) struct Segment<'a> {
    pub marker: u8,
    pub content: &'a [u8],
    /// Where it ends in the file.
    pub end: usize,
}

impl<'a> Segment<'a> {
    /// Reads the segment that begins at a place of the file.
    pub(super) fn read(file: &'a [u8], mut at: usize) -> Result<Self, &'static str> {
        let truncated = "the header is truncated";
        if file.get(at) != Some(&0xff) {
            return Err("there are bytes between segments");
        }
        // Any number of 0xff fill bytes may precede a marker.
        while file.get(at + 1) == Some(&0xff) {
            at += 1;
        }
        let marker = *file.get(at + 1).ok_or(truncated)?;
        let length = file.get(at + 2..at + 4).and_then(|bytes| bytes.first_chunk()).ok_or(truncated)?;
        // The length includes its own two bytes.
        let end = at + 2 + usize::from(u16::from_be_bytes(*length));
        let content = file.get(at + 4..end).ok_or(truncated)?;
        Ok(Self { marker, content, end })
    }
}

impl JpegFrame {
    /// A header of which nothing is known yet.
    pub(super) fn empty() -> Self {
        Self {
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
        }
    }

    /// Reads the segments of a file up to the first byte of its scan. Returns that place too.
    pub(super) fn read(file: &[u8]) -> Result<(Self, usize), &'static str> {
        let mut this = Self::empty();
        if !file.starts_with(&[0xff, 0xd8]) {
            return Err("it is not a JPEG file");
        }
        let mut at = 2;
        loop {
            let Segment { marker, content, end } = Segment::read(file, at)?;
            at = end;
            match marker {
                0xc0 | 0xc1 if this.components.is_empty() => {
                    this.read_size(marker, content).ok_or("the frame header is not valid")?;
                }
                0xda => {
                    this.read_scan(content).ok_or("the scan does not contain all components in order")?;
                    this.check()?;
                    return Ok((this, at));
                }
                0xc2 | 0xc6 | 0xca | 0xce => return Err("it is progressive"),
                0xc9 | 0xcb | 0xcd | 0xcf => return Err("it is coded arithmetically"),
                _ => this.read_table(marker, content)?,
            }
        }
    }

    /// Reads a segment that may come before any scan.
    pub(super) fn read_table(&mut self, marker: u8, content: &[u8]) -> Result<(), &'static str> {
        match marker {
            0xc4 => self.read_codes(content).ok_or("a Huffman table is not valid")?,
            0xdb => self.read_quantisers(content).ok_or("a quantisation table is not valid")?,
            0xdd => {
                // libjpeg rejects a segment of another length, so such a file gets no index either.
                let interval: &[u8; 2] = content.try_into().map_err(|_| "the restart interval is not valid")?;
                self.restart_interval = u32::from(u16::from_be_bytes(*interval));
            }
            0xe0 => self.has_jfif |= content.starts_with(b"JFIF\0") && content.len() >= 14,
            0xee => {
                if content.starts_with(b"Adobe") && content.len() >= 12 {
                    self.adobe_transform = Some(content[11]);
                }
            }
            0xe1..=0xef | 0xfe => {}
            _ => return Err("it has segments that are not part of sequential files"),
        }
        Ok(())
    }

    /// Reads the frame header.
    pub(super) fn read_size(&mut self, kind: u8, segment: &[u8]) -> Option<()> {
        self.kind = kind;
        let (head, components) = segment.split_first_chunk::<6>()?;
        // SOF: precision 1, height 2, width 2, number of components 1; then id, sampling and quantiser of each.
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
            // DHT: class in the high four bits (0 DC, 1 AC), number of the table in the low ones.
            let codes = match place >> 4 {
                // A DC symbol is the number of bits of a difference. More than 15 would not fit into 16 bits.
                0 if code.symbols.iter().all(|&category| category <= 15) => &mut self.dc,
                1 => &mut self.ac,
                _ => return None,
            };
            *codes.get_mut(usize::from(place & 15))? = Some(code);
            segment = rest;
        }
        Some(())
    }

    /// The quantisers of a component, in file order.
    pub(super) fn quantiser(&self, component: Component) -> Option<&[u16; 64]> {
        self.quantisers.get(usize::from(component.quantiser))?.as_deref()
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
        // Spectral selection 0 to 63 and no successive approximation: a sequential scan.
        rest.ends_with(&[0, 63, 0]).then_some(())
    }

    /// Checks that everything the components refer to exists, and that libjpeg would accept it.
    pub(super) fn check(&mut self) -> Result<(), &'static str> {
        self.check_layout()?;
        let is_there = |c: &Component| {
            self.dc.get(usize::from(c.dc)).is_some_and(Option::is_some)
                && self.ac.get(usize::from(c.ac)).is_some_and(Option::is_some)
        };
        if !self.components.iter().all(is_there) {
            return Err("a table is missing");
        }
        // Tables that no component uses are not a part of the picture.
        for place in 0..4_u8 {
            let is_used = |of: fn(&Component) -> u8| self.components.iter().any(|c| of(c) == place);
            let (dc, ac) = (is_used(|c| c.dc), is_used(|c| c.ac));
            let place = usize::from(place);
            self.dc[place].take_if(|_| !dc);
            self.ac[place].take_if(|_| !ac);
        }
        Ok(())
    }

    /// Checks sizes, sampling and quantisers, as libjpeg does.
    pub(super) fn check_layout(&mut self) -> Result<(), &'static str> {
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
        if !self.components.iter().all(|c| self.quantiser(*c).is_some()) {
            return Err("a table is missing");
        }
        for place in 0..4_u8 {
            let is_used = self.components.iter().any(|c| c.quantiser == place);
            self.quantisers[usize::from(place)].take_if(|_| !is_used);
        }
        if self.width.max(self.height) > MAX_SIDE {
            return Err("it is larger than libjpeg accepts");
        }
        if self.width == 0 || self.height == 0 { Err("its size is given later or not at all") } else { Ok(()) }
    }

    /// Most blocks across and down of any component.
    fn sampling(&self) -> (u32, u32) {
        let most = |of: fn(&Component) -> u8| self.components.iter().map(of).max().unwrap_or(1).into();
        (most(|c| c.across), most(|c| c.down))
    }

    /// Width and height of an MCU in pixels.
    pub(super) fn mcu_size(&self) -> (u32, u32) {
        let (across, down) = self.sampling();
        (8 * across, 8 * down)
    }

    /// MCUs in a row, and rows of MCUs.
    pub(super) fn mcus(&self) -> (u32, u32) {
        let (width, height) = self.mcu_size();
        (self.width.div_ceil(width), self.height.div_ceil(height))
    }

    /// Number of blocks in a row of a component, and number of rows. Blocks that only fill up the last MCUs do not count.
    pub(super) fn blocks_of(&self, component: Component) -> (u32, u32) {
        let (across, down) = self.sampling();
        let count = |side: u32, own: u8, most: u32| (side * u32::from(own)).div_ceil(8 * most);
        (count(self.width, component.across, across), count(self.height, component.down, down))
    }

    /// A header for a part of the picture as a picture of its own, without codes. It is for a decoder that gets coefficients.
    pub(super) fn header_of(&self, part: Rect) -> Vec<u8> {
        let mut header = Vec::new();
        self.write((part.width, part.height), &mut header);
        header
    }

    fn write(&self, (width, height): (u32, u32), out: &mut Vec<u8>) {
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
        // The decoder gets all coefficients MCU by MCU, also those of a progressive file.
        segment(out, if self.kind == PROGRESSIVE { EXTENDED } else { self.kind }, |out| {
            out.push(8);
            out.extend((height as u16).to_be_bytes());
            out.extend((width as u16).to_be_bytes());
            out.push(self.components.len() as u8);
            out.extend(self.components.iter().flat_map(|c| [c.id, c.across << 4 | c.down, c.quantiser]));
        });
        segment(out, 0xda, |out| {
            out.push(self.components.len() as u8);
            out.extend(self.components.iter().flat_map(|c| [c.id, 0]));
            out.extend([0, 63, 0]);
        });
    }
}

fn segment(out: &mut Vec<u8>, marker: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend([0xff, marker, 0, 0]);
    let start = out.len();
    write(out);
    let length = (out.len() - start + 2) as u16;
    // The length is known only now. It includes its own two bytes.
    out[start - 2..start].copy_from_slice(&length.to_be_bytes());
}
