"""Applies a function to every tensor of a batch.

In: a batch, nested as a dataset or a ``collate_fn`` made it. Out: the same structure with the results in place of the
tensors. Strings, numbers and objects of other classes stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def map_tensors(batch: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """Apply a function to every tensor in dicts, lists, tuples and named tuples."""
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        moved = {key: map_tensors(value, function) for key, value in batch.items()}
        try:
            return type(batch)(moved)  # type: ignore[call-arg]
        except TypeError:  # Such as a defaultdict, whose first argument is something else.
            return moved
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(value, function) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map_tensors(value, function) for value in batch)
    return batch
