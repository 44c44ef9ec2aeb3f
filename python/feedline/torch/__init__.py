"""Feedline for PyTorch: a drop-in DataLoader, and tensors over the engine's memory.

A name is imported when it is first used, so that worker processes start quickly: they need none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feedline.torch.device import DevicePrefetcher, prefetch
    from feedline.torch.diagnosis import DatasetReport
    from feedline.torch.loader import DataLoader
    from feedline.torch.native.conversion import NativeOps, native_ops
    from feedline.torch.shared_list import SharedList
    from feedline.torch.tensors import to_tensor
    from feedline.torch.trainers import TrainerMixin, prepare, skip_first_batches
    from feedline.torch.verification import Finding, Verification, verify

_HOMES = {
    "DataLoader": "loader",
    "DatasetReport": "diagnosis",
    "DevicePrefetcher": "device",
    "Finding": "verification",
    "NativeOps": "native.conversion",
    "SharedList": "shared_list",
    "TrainerMixin": "trainers",
    "Verification": "verification",
    "native_ops": "native.conversion",
    "prefetch": "device",
    "prepare": "trainers",
    "skip_first_batches": "trainers",
    "to_tensor": "tensors",
    "verify": "verification",
}
"""The module of each public name. No module has the name of a function: importing it would hide the function."""

__all__ = [
    "DataLoader",
    "DatasetReport",
    "DevicePrefetcher",
    "Finding",
    "NativeOps",
    "SharedList",
    "TrainerMixin",
    "Verification",
    "native_ops",
    "prefetch",
    "prepare",
    "skip_first_batches",
    "to_tensor",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'feedline.torch' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"feedline.torch.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
