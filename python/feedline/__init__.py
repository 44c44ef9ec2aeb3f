"""Feedline keeps accelerators fed: prepared batches in a reproducible, resumable order, from one Rust engine.

>>> import feedline as fl
>>> from feedline import ops
>>> loader = fl.Loader(fl.folder("data/train"), [ops.DecodeImage(), ops.RandomResizedCrop(224), ops.Normalize()],
...                    batch_size=64, shuffle=True, seed=0)
>>> for batch in loader:
...     images, labels, indices = batch["image"], batch["label"], batch["index"]
"""

from feedline import errors, ops, telemetry
from feedline._feedline import has_jpeg_simd
from feedline._feedline import version as _version
from feedline.batch_log import Wrapped, wrap
from feedline.diagnosis import Diagnosis, Report, doctor
from feedline.errors import (
    ArgumentError,
    ClosedError,
    FeedlineError,
    ForkError,
    MetricsError,
    NodeError,
    OutOfMemoryError,
    PlanError,
    RaggedError,
    SampleError,
    SourceError,
    SourceNotFoundError,
    StateError,
    SupersededError,
    TooManyFailuresError,
)
from feedline.loader import Loader
from feedline.order import Arrival, Planned, arrival, planned
from feedline.plan import Plan
from feedline.policy import Cache, Substitute, cache, substitute
from feedline.sampler import ClassBalanced, Weighted, class_balanced, weighted
from feedline.sharing import Share, share
from feedline.shuffle import Reservoir, reservoir
from feedline.source import Source, array, files, folder, synthetic, tar, volumes
from feedline.tuning import Tuning, tuning

__version__ = _version()

__all__ = [
    "ArgumentError",
    "Arrival",
    "Cache",
    "ClassBalanced",
    "ClosedError",
    "Diagnosis",
    "FeedlineError",
    "ForkError",
    "Loader",
    "MetricsError",
    "NodeError",
    "OutOfMemoryError",
    "Plan",
    "PlanError",
    "Planned",
    "RaggedError",
    "Report",
    "Reservoir",
    "SampleError",
    "Share",
    "Source",
    "SourceError",
    "SourceNotFoundError",
    "StateError",
    "Substitute",
    "SupersededError",
    "TooManyFailuresError",
    "Tuning",
    "Weighted",
    "Wrapped",
    "array",
    "arrival",
    "cache",
    "class_balanced",
    "doctor",
    "errors",
    "files",
    "folder",
    "has_jpeg_simd",
    "ops",
    "planned",
    "reservoir",
    "share",
    "substitute",
    "synthetic",
    "tar",
    "telemetry",
    "tuning",
    "volumes",
    "weighted",
    "wrap",
]
