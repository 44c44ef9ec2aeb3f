"""Whether ``default_collate`` does what torch wrote, or was extended by the program.

In: torch's registry of collate functions, ``default_collate_fn_map``. Out: what the program changed in it. Feedline
puts arrays together itself, which is right only as long as the registry says nothing about their types.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def extension() -> dict[Any, Any]:
    """Return what the program changed: functions by type, and ``None`` for types that it removed."""
    registry = torch_collate.default_collate_fn_map
    keys = {**_TORCH_FUNCTIONS, **registry}
    return {key: registry.get(key) for key in keys if registry.get(key) is not _TORCH_FUNCTIONS.get(key)}


def extend(functions: Mapping[Any, Any]) -> None:
    """Make the same changes in this process."""
    for key, function in functions.items():
        if function is None:
            torch_collate.default_collate_fn_map.pop(key, None)
        else:
            torch_collate.default_collate_fn_map[key] = function


def concerns_assembled_types() -> bool:
    """Return whether the program changed the registry for types that Feedline assembles."""
    kinds = (kind for key in extension() for kind in (key if isinstance(key, tuple) else (key,)))
    return any(
        issubclass(kind, (tuple, np.generic)) or any(issubclass(assembled, kind) for assembled in _ASSEMBLED)
        for kind in kinds
    )
