"""Whether ``default_collate`` does what torch wrote, or was extended by the program.

In: torch's registry of collate functions, ``default_collate_fn_map``. Out: what the program changed in it. Feedline
puts arrays together itself, which is right only as long as the registry says nothing about their types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils import collate as torch_collate

# Not a copy of the registry: a program may have extended it before it imported Feedline.
_TORCH_FUNCTIONS: dict[Any, Any] = {
    torch.Tensor: torch_collate.collate_tensor_fn,
    np.ndarray: torch_collate.collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): torch_collate.collate_numpy_scalar_fn,
    float: torch_collate.collate_float_fn,
    int: torch_collate.collate_int_fn,
    str: torch_collate.collate_str_fn,
    bytes: torch_collate.collate_str_fn,
}
_ASSEMBLED = (torch.Tensor, np.ndarray, np.bool_, np.number, bool, int, float, dict, list, tuple)
"""Feedline assembles batches of these types, and of named tuples, without ``default_collate``."""


def is_extended() -> bool:
    """Return whether the program changed the registry."""
    return any(True for _ in _changed_types())


def concerns_assembled_types() -> bool:
    """Return whether the program changed the registry for types that Feedline assembles."""
    return any(
        issubclass(kind, (tuple, np.generic)) or any(issubclass(assembled, kind) for assembled in _ASSEMBLED)
        for kind in _changed_types()
    )


def _changed_types() -> Iterator[type]:
    registry = torch_collate.default_collate_fn_map
    for key in {**_TORCH_FUNCTIONS, **registry}:
        if registry.get(key) is not _TORCH_FUNCTIONS.get(key):
            yield from key if isinstance(key, tuple) else (key,)
