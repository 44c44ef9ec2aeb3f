//! A volume while a sample is prepared: an array of depth x height x width for each channel.

use std::sync::{Arc, OnceLock};

use super::Memory;
use crate::dtype::{Dtype, array_bytes};
use crate::memory::{NoMemory, Workspace};
use crate::volume::{Foreground, Region};

/// A volume, or the part of one that an op reads.
#[derive(Debug)]
pub struct Volume<'s> {
    /// The elements in memory, native-endian and packed, channel by channel.
    pub memory: Memory<'s>,
    /// Element type.
    pub dtype: Dtype,
    /// Number of channels.
    pub channels: usize,
    /// Depth, height and width of the whole.
    pub sides: [usize; 3],
    /// Millimetres between elements along each axis, if known.
    pub spacing: Option<[f64; 3]>,
    /// Whether values are labels, which are never blended.
    pub is_label: bool,
    /// Set if only a part is in memory.
    pub excerpt: Option<Region>,
    foreground: OnceLock<Arc<Foreground>>,
}

impl<'s> Volume<'s> {
    /// A volume that is completely in memory.
    pub fn packed(memory: Memory<'s>, dtype: Dtype, channels: usize, sides: [usize; 3], is_label: bool) -> Self {
        let this = Self {
            memory,
            dtype,
            channels,
            sides,
            spacing: None,
            is_label,
            excerpt: None,
            foreground: OnceLock::new(),
        };
        this.check_memory(sides);
        this
    }

    /// A volume with these sides, of which `memory` holds a region.
    pub fn part(memory: Memory<'s>, excerpt: Region, whole: VolumeShape) -> Self {
        let VolumeShape { dtype, channels, sides, is_label } = whole;
        assert!(excerpt.is_inside(sides), "{excerpt:?} lies in a volume of {sides:?}");
        let part = Self::packed(memory, dtype, channels, excerpt.sides, is_label);
        // A region that is the whole volume is no excerpt, so all ops may read it.
        Self { sides, excerpt: (excerpt != Region::whole(sides)).then_some(excerpt), ..part }
    }

    fn check_memory(&self, sides: [usize; 3]) {
        let bytes = array_bytes(self.dtype, &volume_shape(self.channels, sides));
        assert_eq!(bytes, Some(self.memory.len()), "memory of a volume has its size");
    }

    /// The same volume with other elements in the same places.
    #[must_use]
    pub(crate) fn with_memory<'t>(&self, memory: Memory<'t>, dtype: Dtype) -> Volume<'t> {
        let Self { channels, sides, spacing, is_label, excerpt, .. } = *self;
        // Without the foreground: other elements may be other classes.
        let this = Volume { memory, dtype, channels, sides, spacing, is_label, excerpt, foreground: OnceLock::new() };
        this.check_memory(excerpt.map_or(sides, |excerpt| excerpt.sides));
        this
    }

    /// The same volume with a known spacing.
    #[must_use]
    pub fn with_spacing(self, spacing: Option<[f64; 3]>) -> Self {
        Self { spacing, ..self }
    }

    /// The same label with a known foreground.
    #[must_use]
    pub fn with_foreground(self, foreground: Option<Arc<Foreground>>) -> Self {
        Self { foreground: foreground.map(OnceLock::from).unwrap_or_default(), ..self }
    }

    /// The delivered shape: channels, depth, height, width.
    pub fn shape(&self) -> Vec<usize> {
        volume_shape(self.channels, self.sides).to_vec()
    }

    /// The foreground of a label, if it is known already.
    pub fn known_foreground(&self) -> Option<&Arc<Foreground>> {
        self.foreground.get()
    }

    /// The foreground of a label. It is searched once.
    pub fn foreground(&self, workspace: &mut Workspace) -> Result<Arc<Foreground>, NoMemory> {
        if let Some(known) = self.foreground.get() {
            return Ok(Arc::clone(known));
        }
        assert!(self.excerpt.is_none() && self.dtype == Dtype::U8, "the foreground is that of a whole label");
        // The search allocates on its own, so its upper limit is reserved in the budget first.
        workspace.reserve(Foreground::search_bytes(self.sides))?;
        let found = Foreground::of(&self.memory, self.sides, || workspace.cancel().check())?;
        // A `OnceLock`, because the result is stored through a shared reference.
        Ok(Arc::clone(self.foreground.get_or_init(|| Arc::new(found))))
    }
}

/// The properties of a volume besides its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeShape {
    /// Element type.
    pub dtype: Dtype,
    /// Number of channels.
    pub channels: usize,
    /// Depth, height and width.
    pub sides: [usize; 3],
    /// Whether values are labels.
    pub is_label: bool,
}

/// Channels, depth, height, width.
pub fn volume_shape(channels: usize, [depth, height, width]: [usize; 3]) -> [usize; 4] {
    [channels, depth, height, width]
}
