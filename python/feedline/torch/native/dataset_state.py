"""Notices that a dataset was changed after it was promoted, such as ``dataset.transform = ...`` between epochs.

In: a dataset. Out: :class:`DatasetState`, which is equal for the same content. It is cheap: lists are compared entry by
entry (12 ms for the files of ImageNet), arrays and tensors by identity and by torch's count of changes in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from feedline.torch.native.conversion import native_ops

_LISTS = ("samples", "targets", "indices", "tensors", "datasets", "data")
_FUNCTIONS = ("loader", "target_transform")


@dataclass(frozen=True)
class DatasetState:
    """What decides the samples of a dataset.

    Attributes:
        kind: the class of the dataset.
        content: its lists, arrays and functions.
        ops: the ops of its transform, with the text of the report for those that are Python functions.
        inner: the states of the datasets inside of it.
    """

    kind: type
    content: list[Any]
    ops: list[Any]
    inner: list[DatasetState]

    @classmethod
    def of(cls, dataset: Any) -> DatasetState:
        """Return the state of a dataset as it is now."""
        content = [_comparable(getattr(dataset, name, None)) for name in _LISTS]
        content += [_Identity(getattr(dataset, name, None)) for name in _FUNCTIONS]
        transform = getattr(dataset, "transform", None)
        native = None if transform is None else native_ops(transform)
        inner = [*getattr(dataset, "datasets", ()), *([dataset.dataset] if hasattr(dataset, "dataset") else ())]
        return cls(
            type(dataset),
            content,
            [] if native is None else [*native.ops, *native.report],
            [cls.of(part) for part in inner],
        )


class _Identity:
    """An object that is equal only to itself. It is kept alive, so that its address is not used again."""

    def __init__(self, value: object, changes: int = 0) -> None:
        self.value, self.changes = value, changes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value and self.changes == other.changes

    __hash__ = None  # type: ignore[assignment]


def _comparable(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Identity(value, value._version)
    if isinstance(value, (list, tuple)):
        if len(value) > 0 and isinstance(value[0], (str, int, tuple)):
            return list(value)  # A copy: the user may change the list in place.
        return [_comparable(entry) for entry in value]
    return value if isinstance(value, (range, type(None))) else _Identity(value)
