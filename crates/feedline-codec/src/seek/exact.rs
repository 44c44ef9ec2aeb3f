//! Extracts the entropy-coded data of exactly the MCUs that a crop needs.
//!
//! In: an index, and the bytes of the file that contain the MCUs. Out: a [`Scan`] that starts and ends, in each row, at the exact
//! bits of the first and last MCU. The index has a place every few MCUs. From there the MCUs are walked, a few at each end of a
//! row.

use std::ops::Range;

use super::bits::BitReader;
use super::coefficients::Order;
use super::cut::Extent;
use super::huffman::{Runs, difference};
use super::jpeg::JpegIndex;
use super::scan::{Scan, add_segments, last_bit, sum, unstuff};
use super::table_cache::Block;
use super::walk::{COMPONENTS, blocks};
use crate::error::BadIndex;

impl<'m> Scan<'m> {
    /// Extracts the data of MCUs into `memory`. `bytes` begin at byte `offset` of the file and contain the MCUs' groups.
    pub(super) fn gather_exact(
        index: &JpegIndex,
        extent: &Extent,
        bytes: &[u8],
        offset: u64,
        memory: &'m mut Vec<u8>,
    ) -> Result<Self, BadIndex> {
        memory.clear();
        let mut segments = Vec::with_capacity(extent.rows.len());
        let mut restarts = Vec::new();
        let blocks = blocks(&index.frame);
        let in_row = index.frame.mcus().0;
        let interval = index.frame.restart_interval;
        let every = JpegIndex::every();
        let Range { start: first, end } = extent.columns;
        let (first_group, last_group) = (first / every, (end - 1) / every);
        for row in extent.rows.clone() {
            let place = |group: u32| index.place(row, group);
            let (start, last, group_end_place) = (place(first_group)?, place(last_group)?, place(last_group + 1)?);
            let number = |column: u32| u64::from(row) * u64::from(in_row) + u64::from(column);
            restarts.clear();
            let head = memory.len() * 8 + (start % 8) as usize;
            // Up to the byte in which the last group starts, so that its place in the memory is known.
            unstuff(index.data(start..last / 8 * 8, bytes, offset)?, memory, &mut restarts);
            let tail = memory.len() * 8 + (last % 8) as usize;
            unstuff(index.data(last..group_end_place, bytes, offset)?, memory, &mut restarts);

            let predictors = index.predictors_before(row, first_group, number(first_group * every))?;
            let mut steps = Steps { blocks: &blocks, bits: BitReader::new(memory), predictors, interval };
            steps.bits.go_to(head);
            // From the start of the group to the first MCU of the crop.
            steps.skip(number(first_group * every)..number(first))?;
            steps.pass_restart(number(first));
            let (start, predictors) = (steps.bits.position(), steps.predictors);
            let group_end = (last_group * every + every).min(in_row);
            let (last, sum_after) = if end == group_end {
                (last_bit(memory, group_end_place), index.predictors_after(row, last_group).map(sum))
            } else {
                steps.predictors = index.predictors_before(row, last_group, number(last_group * every))?;
                steps.bits.go_to(tail);
                steps.skip(number(last_group * every)..number(end))?;
                let found = (steps.bits.position(), Some(sum(steps.predictors)));
                // Otherwise changed data would define its own end. After a restart no bit position is known.
                if interval == 0 {
                    steps.skip(number(end)..number(group_end))?;
                    let is_as_indexed = steps.bits.position() == last_bit(memory, group_end_place)
                        && Some(steps.predictors) == index.predictors_after(row, last_group);
                    is_as_indexed.then_some(()).ok_or_else(BadIndex::of_part)?;
                }
                found
            };
            if last > memory.len() * 8 {
                return Err(BadIndex("a row ends too early"));
            }
            add_segments(&mut segments, start..last, &restarts, number(first)..number(end), predictors, interval)?;
            if let Some(last) = segments.last_mut().filter(|_| interval == 0) {
                last.sum_after = sum_after;
            }
        }
        Ok(Self { bytes: memory, segments: segments.into(), order: Order::WHOLE })
    }
}

/// Walks over MCUs.
struct Steps<'a> {
    blocks: &'a [Block<Runs>],
    bits: BitReader<'a>,
    predictors: [i32; COMPONENTS],
    interval: u32,
}

impl Steps<'_> {
    /// Skips MCUs, given by their numbers in the scan.
    fn skip(&mut self, mcus: Range<u64>) -> Result<(), BadIndex> {
        for mcu in mcus {
            self.pass_restart(mcu);
            for Block { component, dc, ac } in self.blocks {
                let damage = BadIndex("the data is no sequence of blocks");
                let predictor = &mut self.predictors[*component];
                *predictor = predictor.wrapping_add(difference(dc, &mut self.bits).ok_or(damage)?);
                ac.skip_block(&mut self.bits).ok_or(damage)?;
            }
        }
        Ok(())
    }

    /// Skips to the next whole byte if there is a restart before an MCU. The marker itself was removed.
    fn pass_restart(&mut self, mcu: u64) {
        if self.interval > 0 && mcu.is_multiple_of(self.interval.into()) {
            self.bits.go_to(self.bits.position().next_multiple_of(8));
            self.predictors = [0; COMPONENTS];
        }
    }
}
