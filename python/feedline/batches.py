"""Converts the engine's batches into the dicts and tuples that users receive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from feedline import _feedline

Batch = dict[str, Any] | tuple[Any, ...]


def to_batch(
    convert: Callable[[_feedline.Array], Any], names: list[str] | None, fields: list[tuple[str, Any]]
) -> Batch:
    """Return a batch of the engine as a dict, or as a tuple of the named fields."""
    batch = {
        name: [value if isinstance(value, str) else convert(value) for value in data]
        if isinstance(data, list)
        else convert(data)
        for name, data in fields
    }
    return batch if names is None else tuple(batch[name] for name in names)


def converter(framework: Literal["numpy", "torch"]) -> Callable[[_feedline.Array], Any]:
    """Return the function that makes an array of a framework over the engine's memory, without a copy."""
    if framework == "torch":
        # Imported here, so that programs without torch never import it.
        from feedline.torch import to_tensor

        return to_tensor
    return np.asarray
