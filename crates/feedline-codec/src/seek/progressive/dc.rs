//! Reads the scans with DC coefficients.

use std::ops::Range;

use super::blocks::{UnitRow, Units};
use crate::seek::bits::BitReader;
use crate::seek::huffman::{Code, Symbols, difference};
use crate::seek::walk::COMPONENTS;

/// Upper limit of DC values. Those of valid pictures are far below.
const MAX_DC: u32 = 1 << 20;

/// The first scan of DC coefficients.
#[derive(Debug)]
pub(super) struct FirstDc {
    tables: Vec<Symbols>,
    predictors: [i32; COMPONENTS],
    low: u8,
}

impl FirstDc {
    pub(super) fn new(codes: &[Code], low: u8) -> Self {
        Self { tables: codes.iter().map(Symbols::new).collect(), predictors: [0; COMPONENTS], low }
    }

    /// A restart resets the predictors.
    pub(super) fn restart(&mut self) {
        self.predictors = [0; COMPONENTS];
    }

    /// Reads some units of a row.
    pub(super) fn read(
        &mut self,
        bits: &mut BitReader<'_>,
        units: &Units,
        row: &mut UnitRow<'_>,
        columns: Range<u32>,
    ) -> Option<()> {
        for column in columns {
            let slot = row.window.contains(&column).then(|| row.slots[(column - row.window.start) as usize]);
            for &(component, place) in &units.members {
                let value = &mut self.predictors[component];
                *value += difference(&self.tables[component], bits)?;
                if value.unsigned_abs() > MAX_DC {
                    return None;
                }
                if let Some(slot) = slot {
                    row.coefficients[slot + place][0] = (*value << self.low) as i16;
                }
            }
        }
        Some(())
    }
}

/// Reads one more bit of the DC coefficients of some units of a row.
pub(super) fn refine_dc(bits: &mut BitReader<'_>, units: &Units, row: &mut UnitRow<'_>, columns: Range<u32>, low: u8) {
    let in_each = units.members.len();
    let inside =
        columns.start.max(row.window.start).min(columns.end)..columns.end.min(row.window.end).max(columns.start);
    if inside.is_empty() {
        bits.skip(columns.len() * in_each);
        return;
    }
    bits.skip((inside.start - columns.start) as usize * in_each);
    for column in inside.clone() {
        let slot = row.slots[(column - row.window.start) as usize];
        bits.refill();
        for &(_, place) in &units.members {
            row.coefficients[slot + place][0] |= (bits.peek(1) << low) as i16;
            bits.consume(1);
        }
    }
    bits.skip((columns.end - inside.end) as usize * in_each);
}
