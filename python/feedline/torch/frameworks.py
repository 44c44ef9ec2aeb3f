"""Batches as arrays of another framework than torch.

In: batches of tensors on the CPU. Out: the same batches with NumPy or JAX arrays, over the same memory where that is
possible. Frameworks are imported when a loader asks for them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch

from feedline.errors import PlanError
from feedline.torch.nested import map_tensors

Framework = Literal["torch", "numpy", "jax"]
FRAMEWORKS: tuple[Framework, ...] = ("torch", "numpy", "jax")


def batch_converter(framework: Framework) -> Callable[[Any], Any] | None:
    """Return a function that converts the tensors of a batch, or ``None`` for torch's own."""
    if framework == "torch":
        return None
    if framework == "numpy":
        return partial(map_tensors, function=_to_numpy)
    from_dlpack = importlib.import_module("jax.numpy").from_dlpack
    # JAX takes compact memory only. It copies what is not aligned to 64 bytes, and 64-bit types to their 32-bit ones.
    return partial(map_tensors, function=lambda tensor: from_dlpack(tensor.detach().contiguous()))


def _to_numpy(tensor: torch.Tensor) -> Any:
    if tensor.dtype is torch.bfloat16:
        raise PlanError('NumPy has no bfloat16; use framework="torch" or "jax", or another dtype')
    return tensor.detach().numpy()
