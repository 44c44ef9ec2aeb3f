//! The blocks of a picture while its scans are read: coefficients inside the crop, one bit per coefficient outside.

use std::ops::Range;

use crate::error::CodecError;
use crate::seek::cut::Extent;
use crate::seek::frame::JpegFrame;

/// All blocks of a picture.
#[derive(Debug)]
pub(super) struct Blocks {
    /// The blocks of the MCUs around the crop, MCU after MCU.
    pub coefficients: Vec<[i16; 64]>,
    /// For each component.
    planes: Vec<Plane>,
    extent: Extent,
    /// MCUs in a row and rows of MCUs, of the whole picture.
    mcus: (u32, u32),
    /// Blocks in an MCU.
    pub in_each: usize,
}

/// The blocks of a component.
#[derive(Debug)]
struct Plane {
    /// Blocks in an MCU, horizontally and vertically.
    across: usize,
    down: usize,
    /// The number of its first block in an MCU.
    offset: usize,
    /// Number of blocks in a row, and number of rows. Blocks that only fill up the last MCUs do not count.
    columns: u32,
    rows: u32,
    /// For each block, which coefficients are not zero, by bits in zigzag order. The bit of DC is not used.
    nonzero: Vec<u64>,
}

/// The units of a scan: MCUs if it has several components, otherwise blocks.
#[derive(Debug)]
pub(super) struct Units {
    /// Units in a row, and rows.
    pub columns: u32,
    pub rows: u32,
    /// The units of which coefficients are kept.
    window: Extent,
    /// For each column of the window, the number of its first block after that of the row.
    slots: Vec<usize>,
    /// Rows of units in a row of MCUs, blocks between two of them, and the first block of the first one.
    down: u32,
    across: usize,
    offset: usize,
    /// Blocks in a row of MCUs of the crop.
    stride: usize,
    /// The component if there is only one.
    plane: Option<usize>,
    /// For each block of a unit: its component's number in the scan, and its place after that of the unit.
    pub members: Vec<(usize, usize)>,
}

/// One row of units.
pub(super) struct UnitRow<'a> {
    /// The columns whose coefficients are kept.
    pub window: Range<u32>,
    /// For each of these, the place of its first block.
    pub slots: &'a [usize],
    /// The blocks from the row on. Empty outside of the window.
    pub coefficients: &'a mut [[i16; 64]],
    /// For each column of a single component, which coefficients are not zero.
    pub nonzero: &'a mut [u64],
}

impl Blocks {
    /// Zeroed blocks.
    pub(super) fn new(frame: &JpegFrame, extent: Extent) -> Result<Self, CodecError> {
        let mut offset = 0;
        let mut planes = Vec::new();
        for component in &frame.components {
            let (columns, rows) = frame.blocks_of(*component);
            let nonzero = zeroed(columns as usize * rows as usize, 0)?;
            let (across, down) = (component.across.into(), component.down.into());
            planes.push(Plane { across, down, offset, columns, rows, nonzero });
            offset += component.blocks();
        }
        let mcus = extent.rows.len() * extent.columns.len();
        let coefficients = zeroed(mcus * offset, [0; 64])?;
        Ok(Self { coefficients, planes, extent, mcus: frame.mcus(), in_each: offset })
    }

    /// The units of a scan with these components.
    pub(super) fn units(&self, components: &[usize]) -> Units {
        let Extent { rows, columns } = &self.extent;
        let stride = columns.len() * self.in_each;
        if let &[component] = components {
            let Plane { across, down, offset, .. } = self.planes[component];
            let plane = &self.planes[component];
            let within = |mcus: &Range<u32>, in_each: usize, end: u32| {
                (mcus.start * in_each as u32).min(end)..(mcus.end * in_each as u32).min(end)
            };
            let window =
                Extent { rows: within(rows, down, plane.rows), columns: within(columns, across, plane.columns) };
            let slot = |column: usize| column / across * self.in_each + column % across;
            let slots = (0..window.columns.len()).map(slot).collect();
            let (columns, rows) = (plane.columns, plane.rows);
            let down = down as u32;
            let members = vec![(0, 0)];
            return Units {
                columns,
                rows,
                window,
                slots,
                down,
                across,
                offset,
                stride,
                plane: Some(component),
                members,
            };
        }
        let of_component = |(number, &component): (usize, &usize)| {
            let Plane { across, down, offset, .. } = self.planes[component];
            (offset..offset + across * down).map(move |place| (number, place))
        };
        Units {
            columns: self.mcus.0,
            rows: self.mcus.1,
            window: self.extent.clone(),
            slots: (0..columns.len()).map(|column| column * self.in_each).collect(),
            down: 1,
            across: 0,
            offset: 0,
            stride,
            plane: None,
            members: components.iter().enumerate().flat_map(of_component).collect(),
        }
    }

    /// A row of the units of a scan.
    pub(super) fn row<'a>(&'a mut self, units: &'a Units, row: u32) -> UnitRow<'a> {
        let nonzero = match units.plane {
            Some(plane) => {
                let columns = units.columns as usize;
                &mut self.planes[plane].nonzero[row as usize * columns..][..columns]
            }
            None => &mut [],
        };
        let Extent { rows, columns } = &units.window;
        if !rows.contains(&row) {
            return UnitRow { window: 0..0, slots: &[], coefficients: &mut [], nonzero };
        }
        // The window begins with a whole MCU.
        let below = row - rows.start;
        let first = (below / units.down) as usize * units.stride + (below % units.down) as usize * units.across;
        let coefficients = &mut self.coefficients[first + units.offset..];
        UnitRow { window: columns.clone(), slots: &units.slots, coefficients, nonzero }
    }
}

fn zeroed<T: Copy>(count: usize, zero: T) -> Result<Vec<T>, CodecError> {
    let mut memory = Vec::new();
    let refused = CodecError::OutOfMemory { bytes: (count * size_of::<T>()) as u64 };
    memory.try_reserve_exact(count).map_err(|_| refused)?;
    memory.resize(count, zero);
    Ok(memory)
}
