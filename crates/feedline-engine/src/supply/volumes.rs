//! Loads the volumes of a sample. Of an uncompressed file only the crop is read.
//!
//! A balanced crop is drawn around the foreground of the label, so the foreground must be known before the image is read. It is
//! found once per label and kept in the cache folder, with the stamp of the file. From then on only the crops of image and label
//! are read.

use std::path::Path;
use std::sync::Arc;

use feedline_data::batch::{Kind, Memory, Sample, Value, Volume, VolumeKind, VolumeShape, volume_shape};
use feedline_data::memory::Workspace;
use feedline_data::op::WorkHint;
use feedline_data::plan::Plan;
use feedline_data::private_files::CacheFolder;
use feedline_data::source::{OpenPart, stamp};
use feedline_data::volume::{Foreground, Region, VolumeError, VolumeFile};
use feedline_order::SampleRequest;

use super::counted::counted;
use super::seek::shelf_name;
use super::{Reading, SupplyError};
use crate::cache::Shelf;
use crate::metrics::Metrics;
use crate::supply::Loading;

/// The fields of a plan that are volumes.
#[derive(Debug)]
pub(super) struct Volumes {
    fields: Vec<VolumeField>,
}

#[derive(Debug)]
struct VolumeField {
    name: Arc<str>,
    kind: VolumeKind,
    /// The saved foregrounds. `None` for images, and without a cache folder.
    foregrounds: Option<Shelf>,
}

/// One volume of a sample.
struct OpenVolume<'a> {
    field: &'a VolumeField,
    file: VolumeFile,
    stamp: u64,
    /// A label that was read whole to find its foreground.
    whole: Option<Memory<'static>>,
    foreground: Option<Arc<Foreground>>,
}

impl Volumes {
    pub(super) fn new(plan: &Plan, cache_folder: Option<&CacheFolder>) -> Self {
        let source = plan.source();
        let volume = |(name, kind): (&Arc<str>, &Kind)| {
            let Kind::Volume(kind) = *kind else { return None };
            let below = || Path::new("foreground").join(shelf_name(&**source, name));
            let folder = cache_folder.filter(|_| kind.is_label);
            let foregrounds = folder.map(|folder| Shelf::new(folder.clone(), below(), None));
            Some(VolumeField { name: Arc::clone(name), kind, foregrounds })
        };
        Self { fields: plan.loaded().iter().filter_map(volume).collect() }
    }

    /// Predicts whether a label must be searched for its foreground, which takes much longer than reading a crop.
    pub(super) fn work_hint(&self, plan: &Plan, request: SampleRequest) -> WorkHint {
        let is_searched = |field: &VolumeField| {
            field.kind.is_label
                && plan.chain().ahead_from(0, request).will_ask_for_foreground(&field.name)
                && !field.foregrounds.as_ref().is_some_and(|shelf| shelf.has(request.id.0))
        };
        if self.fields.iter().any(is_searched) { WorkHint::Search } else { WorkHint::Usual }
    }

    /// The bytes of its volumes that a sample will need. If the foreground of a label is needed and not known, that is all of the
    /// label, and nothing of the images that are cropped with it.
    pub(super) fn needs(
        &self,
        plan: &Plan,
        request: SampleRequest,
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) -> Result<Vec<OpenPart>, SupplyError> {
        let mut volumes = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            volumes.push(OpenVolume::open(plan, request, field, workspace, metrics)?);
        }
        let Some(sides) = volumes.first().map(|volume| volume.file.header().sides) else { return Ok(Vec::new()) };
        let ahead = plan.chain().ahead_from(0, request);
        let mut parts = Vec::new();
        for volume in &volumes {
            let mut is_unknown = false;
            let region = ahead.region(&volume.field.name, sides, &mut |label| {
                let label = volumes.iter().find(|volume| *volume.field.name == *label)?;
                let kept = label.kept_foreground(request, workspace).ok().flatten();
                is_unknown = kept.is_none();
                kept
            });
            if is_unknown && !volume.field.kind.is_label {
                continue;
            }
            let ranges = volume.file.stored_ranges(region.unwrap_or(Region::whole(sides)));
            parts.extend(ranges.into_iter().map(|range| (Arc::clone(volume.file.object()), range)));
        }
        Ok(parts)
    }

    /// Loads the volumes of a sample.
    pub(super) fn load(&self, plan: &Plan, loading: Loading<'_, '_>) -> Result<(), SupplyError> {
        let Loading { request, reading, sample, workspace, metrics } = loading;
        let mut volumes = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            volumes.push(OpenVolume::open(plan, request, field, workspace, metrics)?);
        }
        check_shapes(&volumes)?;
        let Some(sides) = volumes.first().map(|volume| volume.file.header().sides) else { return Ok(()) };
        // The regions of all fields are drawn before any field is read, because the region of an image may depend on its label.
        let mut regions = vec![None; volumes.len()];
        if reading == Reading::Trimmed {
            let ahead = plan.chain().ahead_from(0, request);
            let mut failure = None;
            for (field, region) in self.fields.iter().zip(&mut regions) {
                *region = ahead.region(&field.name, sides, &mut |label| {
                    let label = volumes.iter_mut().find(|volume| *volume.field.name == *label)?;
                    let found = label.foreground(request, workspace, metrics);
                    found.map_err(|error| failure = Some(error)).ok()
                });
                if let Some(failure) = failure.take() {
                    return Err(failure);
                }
            }
        }
        for (volume, region) in volumes.into_iter().zip(regions) {
            let name = &volume.field.name;
            let value = volume.read(region.unwrap_or(Region::whole(sides)), sample, workspace, metrics)?;
            sample.put(name, Value::Volume(value));
        }
        Ok(())
    }
}

fn check_shapes(volumes: &[OpenVolume<'_>]) -> Result<(), VolumeError> {
    let Some((first, others)) = volumes.split_first() else { return Ok(()) };
    for other in others {
        let (first_shape, second_shape) = (first.file.header().sides, other.file.header().sides);
        if first_shape != second_shape {
            let (first, second) = (first.file.address(), other.file.address());
            return Err(VolumeError::ShapesDiffer { first, first_shape, second, second_shape });
        }
    }
    Ok(())
}

impl<'a> OpenVolume<'a> {
    fn open(
        plan: &Plan,
        request: SampleRequest,
        field: &'a VolumeField,
        workspace: &Workspace,
        metrics: &Metrics,
    ) -> Result<Self, SupplyError> {
        let opened = plan.source().origin(request.id, &field.name).open()?;
        let (object, all) = opened.expect("a volume is stored, not made");
        let stamp = stamp(&*object, &all);
        let object = counted(object, request.epoch, &metrics.traffic, workspace.cancel());
        let file = VolumeFile::open(object, all, workspace)?;
        let (has, wants) = (file.header().channels, field.kind.channels);
        if has != wants {
            return Err(VolumeError::Channels { path: file.address(), has, wants }.into());
        }
        Ok(Self { field, file, stamp, whole: None, foreground: None })
    }

    /// The foreground of a label: from the cache folder, or from a search of the whole label.
    fn foreground(
        &mut self,
        request: SampleRequest,
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) -> Result<Arc<Foreground>, SupplyError> {
        if let Some(found) = &self.foreground {
            return Ok(Arc::clone(found));
        }
        let found = match self.kept_foreground(request, workspace)? {
            Some(kept) => kept,
            None => self.search(request, workspace, metrics)?,
        };
        self.foreground = Some(Arc::clone(&found));
        Ok(found)
    }

    /// The foreground of a label from the cache folder, if it is there.
    fn kept_foreground(
        &self,
        request: SampleRequest,
        workspace: &mut Workspace,
    ) -> Result<Option<Arc<Foreground>>, SupplyError> {
        let Some(shelf) = &self.field.foregrounds else { return Ok(None) };
        let mut record = Vec::new();
        let read = shelf.get(request.id.0, self.stamp, &mut record, |len| workspace.reserve(len));
        let is_kept = read.map_err(VolumeError::from)?;
        let sides = self.file.header().sides;
        Ok(is_kept.then(|| Foreground::from_bytes(&record, sides)).flatten().map(Arc::new))
    }

    /// Reads the whole label, finds its foreground and saves it.
    fn search(
        &mut self,
        request: SampleRequest,
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) -> Result<Arc<Foreground>, SupplyError> {
        let whole = Region::whole(self.file.header().sides);
        let VolumeShape { dtype, channels, sides, is_label } = self.shape(whole.sides);
        // Labels have one byte per voxel.
        let mut buffer = workspace.buffer(channels * whole.elements()).map_err(VolumeError::from)?;
        self.fill(whole, buffer.as_mut_slice(), workspace, metrics)?;
        let label = Volume::packed(Memory::Heap(buffer), dtype, channels, sides, is_label);
        let found = label.foreground(workspace).map_err(VolumeError::from)?;
        if let Some(shelf) = &self.field.foregrounds {
            shelf.put(request.id.0, self.stamp, &found.to_bytes());
        }
        self.whole = Some(label.memory);
        Ok(found)
    }

    fn shape(&self, sides: [usize; 3]) -> VolumeShape {
        let VolumeKind { dtype, channels, is_label, .. } = self.field.kind;
        VolumeShape { dtype, channels, sides, is_label }
    }

    fn fill(
        &self,
        region: Region,
        target: &mut [u8],
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) -> Result<(), VolumeError> {
        let read = metrics.read.time(|| self.file.read(region, self.field.kind.dtype, target, workspace))?;
        metrics.read.add_bytes(read as usize);
        Ok(())
    }

    fn read<'s>(
        self,
        region: Region,
        sample: &mut Sample<'s>,
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) -> Result<Volume<'s>, SupplyError> {
        let sides = self.file.header().sides;
        let VolumeShape { dtype, channels, .. } = self.shape(sides);
        let memory = match &self.whole {
            // The search has read the whole label. Its crop is copied instead of read again.
            Some(whole) if region != Region::whole(sides) => {
                let mut memory =
                    sample.output(&self.field.name, dtype, &volume_shape(channels, region.sides), workspace)?;
                region.copy_from(whole, channels, sides, dtype.bytes(), &mut memory);
                memory
            }
            _ => {
                let mut memory =
                    sample.output(&self.field.name, dtype, &volume_shape(channels, region.sides), workspace)?;
                self.fill(region, &mut memory, workspace, metrics)?;
                memory
            }
        };
        let volume = Volume::part(memory, region, self.shape(sides));
        if let Some(Memory::Heap(buffer)) = self.whole {
            workspace.recycle(buffer);
        }
        Ok(volume.with_spacing(self.file.header().spacing).with_foreground(self.foreground))
    }
}
