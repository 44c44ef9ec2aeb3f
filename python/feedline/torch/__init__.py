"""Feedline for PyTorch: a drop-in DataLoader, and tensors over the engine's memory."""

from __future__ import annotations

from feedline.torch.device import DevicePrefetcher, prefetch
from feedline.torch.loader import DataLoader
from feedline.torch.native_ops import NativeOps, native_ops
from feedline.torch.shared_list import SharedList
from feedline.torch.tensors import to_tensor
from feedline.torch.trainers import TrainerMixin, prepare, skip_first_batches

__all__ = [
    "DataLoader",
    "DevicePrefetcher",
    "NativeOps",
    "SharedList",
    "TrainerMixin",
    "native_ops",
    "prefetch",
    "prepare",
    "skip_first_batches",
    "to_tensor",
]
