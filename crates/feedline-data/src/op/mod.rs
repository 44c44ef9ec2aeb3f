//! Ops: functions that change a sample's fields.
//!
//! In: a [`Sample`] and the op's [`Draw`] for it. Out: the changed sample. Parameters are data: they deserialise from a plan and
//! serialise into its fingerprint. Behaviour is code behind the [`Op`] trait. A new op is one file here, one line in `OPS`, and one
//! typed class in Python.
//!
//! Always true: an op's result depends only on its parameters, the sample and the draw (law 1).

mod ahead;
mod cast;
mod center_crop;
mod chain;
mod check;
mod clip_normalize;
mod color_jitter;
mod decode_image;
mod decoding;
mod delay;
mod gaussian_noise;
mod grayscale;
mod normalize;
mod on;
mod pad;
mod pad_to;
mod pixels;
mod planned;
mod random_balanced_crop;
mod random_brightness;
mod random_crop;
mod random_erasing;
mod random_flip;
mod random_flip3d;
mod random_resized_crop;
mod resample_spacing;
mod resize;
mod runner;
mod size;
mod to_tensor;
mod volumes;
mod work_hint;

use std::fmt::Debug;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use feedline_codec::Rect;

pub use ahead::Ahead;
pub use chain::OpChain;
pub use check::{CheckError, MisplacedOp};
pub use decoding::Decoding;
pub(crate) use decoding::{DEFAULT_MOST_PIXELS, is_mask_field};
pub use on::On;
pub use planned::{PlannedOp, UnwritableOp};
pub use runner::{ChainObserver, FailedOp, OpRange};
pub use work_hint::WorkHint;

use crate::batch::{FieldError, FieldTypes, OutputError, Sample};
use crate::memory::{Cancelled, NoMemory, Workspace};
use crate::spec::{self, SpecError};
use crate::volume::{Foreground, Region};
use feedline_order::Draw;

/// A function on samples.
pub trait Op: Send + Sync + Debug {
    /// The fields that it works on.
    fn on(&self) -> &On;

    /// Checks the kinds of its fields, and sets their kinds after the op.
    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError>;

    /// Whether the result depends on the draw.
    fn is_random(&self) -> bool {
        false
    }

    /// Whether the op has work to do with this draw. A random op that leaves a sample unchanged is fast, and says so in advance.
    fn fires(&self, _draw: &Draw) -> bool {
        true
    }

    /// Whether another machine may run it. Not if it runs a user's code, or only takes time.
    fn runs_anywhere(&self) -> bool {
        true
    }

    /// Whether it runs code of another language, whose interpreter all threads share.
    fn is_foreign(&self) -> bool {
        false
    }

    /// Whether it reads the key of the sample, as the text field `key`.
    fn reads_key(&self) -> bool {
        false
    }

    /// Ends what the op has started outside this process, such as other processes. It starts them again when it runs again.
    fn release(&self) {}

    /// A hash of the code that a user gave to the op. It is part of the keys of caches and of shared runs, but not of states.
    fn code_hash(&self) -> Option<String> {
        None
    }

    /// Parameters that say where the op runs. They are part of a written plan, but decide no value.
    fn run_params(&self) -> toml::Table {
        toml::Table::new()
    }

    /// Further parameters for another process of this user on this machine, if it needs more than a written plan has.
    fn carried(&self) -> Option<Result<toml::Table, String>> {
        None
    }

    /// Why a plan with this op cannot be written down, if it cannot.
    fn unserialisable(&self) -> Option<String> {
        None
    }

    /// The parameters that a draw gives for a picture of known size, by name. They are known before any data is read.
    fn resolve(&self, _draw: &Draw, _facts: Facts) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// The part of a picture of known size that the op reads. `None` if it reads all of it. `later` returns the part of its result
    /// that the next op reads, for a result of a given size.
    fn needs(&self, _draw: &Draw, _facts: Facts, _later: &LaterNeed<'_>) -> Option<Need> {
        None
    }

    /// The region that the op reads of volumes with these sides. `None` if it reads all of them. `foreground` finds the foreground
    /// of their label, if there is one.
    fn needs_region(&self, _draw: &Draw, _sides: [usize; 3], _foreground: &mut FindForeground<'_>) -> Option<Region> {
        None
    }

    /// Whether the op may ask for the foreground of a label among its fields.
    fn looks_for_foreground(&self) -> bool {
        false
    }

    /// Whether it will ask with this draw. Searching for an unknown foreground takes time.
    fn will_look_for_foreground(&self, _draw: &Draw) -> bool {
        false
    }

    /// Whether each element of the result depends only on the element at the same place, so that a part can be computed alone.
    fn keeps_places(&self) -> bool {
        false
    }

    /// Whether a uint8 label leaves the op unchanged, so that its foreground stays that of the file.
    fn keeps_labels(&self) -> bool {
        false
    }

    /// How the op decodes a field, if it is a decoder.
    fn decoding(&self, _field: &str) -> Option<Decoding> {
        None
    }

    /// Like [`Op::apply`], but may skip pixels that later ops do not use (law 8). `ahead` tells which pixels they use.
    fn apply_ahead(
        &self,
        sample: &mut Sample<'_>,
        draw: &Draw,
        _ahead: &Ahead<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), OpError> {
        self.apply(sample, draw, workspace)
    }

    /// Changes the sample.
    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError>;
}

/// Returns the part of a picture of a given size that later ops read. `None` if they read all of it.
pub type LaterNeed<'a> = dyn Fn(Facts) -> Option<Need> + 'a;

/// Finds the foreground of a sample's label, if it has one. It may require a search, so an op calls this at most once.
pub type FindForeground<'a> = dyn FnMut() -> Option<Arc<Foreground>> + 'a;

/// Facts about a sample that are known before its data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The width of its picture.
    pub width: u32,
    /// The height of its picture.
    pub height: u32,
}

/// The part of a picture that an op reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The part.
    pub rect: Rect,
    /// Width and height to which the part is resized, if it is.
    pub resized: Option<(u32, u32)>,
}

/// Why an op failed on one sample.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the causes say it")]
pub enum OpError {
    #[error(transparent)]
    Codec(#[from] feedline_codec::CodecError),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("{0:?} and {1:?} differ in size ({2}x{3} and {4}x{5}), but one draw is made for both")]
    SizesDiffer(String, String, u32, u32, u32, u32),
    #[error(
        "a crop of {width}x{height} does not fit in a picture of {has_width}x{has_height}; resize or pad it before"
    )]
    CropTooLarge { width: u32, height: u32, has_width: u32, has_height: u32 },
    #[error("{0:?} is {1:?} and {2:?} is {3:?}, but one draw is made for both")]
    SidesDiffer(String, [usize; 3], String, [usize; 3]),
    #[error("a crop of {size:?} does not fit in a volume of {has:?}; add PadTo before it")]
    RegionTooLarge { size: [usize; 3], has: [usize; 3] },
    #[error("the spacing of {field:?} is {spacing:?}; each number has to be above 0")]
    Spacing { field: String, spacing: [f64; 3] },
    #[error("{field:?} has no spacing: its file is not NIfTI")]
    NoSpacing { field: String },
    #[error("the picture has no pixels")]
    NoPixels,
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    #[error(transparent)]
    Memory(NoMemory),
    /// An op from outside this crate, such as a Python function.
    #[error(transparent)]
    Foreign(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl From<NoMemory> for OpError {
    fn from(memory: NoMemory) -> Self {
        match memory {
            // A cancelled wait for memory is a cancellation of the run, not a failure of the sample.
            NoMemory::Cancelled(cancelled) => Self::Cancelled(cancelled),
            other => Self::Memory(other),
        }
    }
}

impl From<OutputError> for OpError {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::Field(field) => Self::Field(field),
            OutputError::Memory(memory) => memory.into(),
        }
    }
}

/// Builds an op from its name and its table in a plan.
pub(crate) type BuildOp = fn(&str, toml::Table) -> Result<PlannedOp, SpecError>;

/// Builds an op whose parameters are plain data.
fn build<O: Op + Serialize + DeserializeOwned + 'static>(
    name: &str,
    params: toml::Table,
) -> Result<PlannedOp, SpecError> {
    Ok(PlannedOp::of_data::<O>(name, spec::parameters(|| format!("op {name}"), params)?))
}

/// The ops of this crate by name. The name is the same in plans, in Python and in messages.
pub(crate) const OPS: &[(&str, BuildOp)] = &[
    ("DecodeImage", build::<decode_image::DecodeImage>),
    ("Resize", build::<resize::Resize>),
    ("CenterCrop", build::<center_crop::CenterCrop>),
    ("RandomCrop", build::<random_crop::RandomCrop>),
    ("RandomResizedCrop", build::<random_resized_crop::RandomResizedCrop>),
    ("RandomHorizontalFlip", build::<random_flip::RandomHorizontalFlip>),
    ("RandomVerticalFlip", build::<random_flip::RandomVerticalFlip>),
    ("ColorJitter", build::<color_jitter::ColorJitter>),
    ("Grayscale", build::<grayscale::Grayscale>),
    ("RandomErasing", build::<random_erasing::RandomErasing>),
    ("ToTensor", build::<to_tensor::ToTensor>),
    ("Normalize", build::<normalize::Normalize>),
    ("Delay", build::<delay::Delay>),
    ("ResampleSpacing", build::<resample_spacing::ResampleSpacing>),
    ("ClipNormalize", build::<clip_normalize::ClipNormalize>),
    ("PadTo", build::<pad_to::PadTo>),
    ("RandomBalancedCrop", build::<random_balanced_crop::RandomBalancedCrop>),
    ("RandomFlip3d", build::<random_flip3d::RandomFlip3d>),
    ("Cast", build::<cast::Cast>),
    ("RandomBrightness", build::<random_brightness::RandomBrightness>),
    ("GaussianNoise", build::<gaussian_noise::GaussianNoise>),
];
