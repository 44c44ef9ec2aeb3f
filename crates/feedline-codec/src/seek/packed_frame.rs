//! A [`JpegFrame`] as a part of an index.
//!
//! In: a frame. Out: few bytes, since codes of the standard are stored by number. Reading checks it like the header of a file,
//! because an index may be hostile.

use super::frame::{Component, JpegFrame};
use super::huffman::Code;
use super::packed::{PackedReader, put_number};

impl JpegFrame {
    /// Writes it as part of an index.
    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        out.extend([self.kind, u8::from(self.has_jfif), self.components.len() as u8]);
        put_number(out, u64::from(self.width));
        put_number(out, u64::from(self.height));
        put_number(out, u64::from(self.restart_interval));
        // 0 means no Adobe segment.
        put_number(out, self.adobe_transform.map_or(0, |transform| 1 + u64::from(transform)));
        for c in &self.components {
            out.extend([c.id, c.across << 4 | c.down, c.quantiser, c.dc << 4 | c.ac]);
        }
        // Only tables that a component uses are present, so a reader knows from the components which ones follow.
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

    /// Reads what [`JpegFrame::pack`] wrote.
    pub(super) fn unpack(reader: &mut PackedReader<'_>) -> Option<Self> {
        let [kind, has_jfif, count] = *reader.array()?;
        let mut number = || u32::try_from(reader.number()?).ok();
        let (width, height, restart_interval, adobe) = (number()?, number()?, number()?, number()?);
        let component = |reader: &mut PackedReader<'_>| {
            let [id, sampling, quantiser, tables] = *reader.array()?;
            let (across, down) = (sampling >> 4, sampling & 15);
            Some(Component { id, across, down, quantiser, dc: tables >> 4, ac: tables & 15 })
        };
        if count > 4 {
            return None;
        }
        let components: Option<Vec<_>> = (0..count).map(|_| component(reader)).collect();
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

fn unpack_code(reader: &mut PackedReader<'_>, standard: &[([u8; 16], &[u8]); 2]) -> Option<Code> {
    match reader.array::<1>()? {
        [0xff] => {
            let (code, rest) = Code::read(reader.rest())?;
            *reader = PackedReader::new(rest);
            Some(code)
        }
        [known] => standard.get(usize::from(*known)).copied().map(defined),
    }
}

/// The standard's codes of DC differences.
pub(super) fn standard_dc() -> impl Iterator<Item = Code> {
    standard::DC.into_iter().map(defined)
}

/// The standard's codes of AC coefficients.
pub(super) fn standard_ac() -> impl Iterator<Item = Code> {
    standard::AC.into_iter().map(defined)
}

fn defined((counts, symbols): ([u8; 16], &[u8])) -> Code {
    Code { counts, symbols: symbols.to_vec() }
}

/// The codes of the standard's Annex K, which most files use: luma, chroma.
mod standard {
    type Definition = ([u8; 16], &'static [u8]);

    pub(super) const DC: [Definition; 2] = [
        ([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        ([0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ];
    pub(super) const AC: [Definition; 2] = [
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
