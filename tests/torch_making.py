"""Datasets and comparisons for tests of feedline.torch.DataLoader beside torch's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, get_worker_info

from feedline.torch import DataLoader

LOADERS = {"torch": TorchDataLoader, "feedline": DataLoader}
WORKERS = [0, 1, 2]


def make(kind: str, dataset: Any, num_workers: int = 0, **options: Any) -> TorchDataLoader[Any]:
    """Make a loader of torch or of Feedline. Its workers are forked, which is the quickest way."""
    if num_workers and "multiprocessing_context" not in options:
        options["multiprocessing_context"] = "fork"
    return LOADERS[kind](dataset, num_workers=num_workers, **options)


def ours(dataset: Any, num_workers: int = 0, **options: Any) -> DataLoader[Any]:
    """Make a loader of Feedline."""
    return make("feedline", dataset, num_workers, **options)  # type: ignore[return-value]


class Calls:
    """Map-style: the result of a function of the index."""

    def __init__(self, function: Callable[[Any], Any], length: int = 8) -> None:
        self.function, self.length = function, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.function(index)


class Yields(IterableDataset):
    """Iterable: what a function yields."""

    def __init__(self, function: Callable[[], Iterator[Any]], length: int | None = None) -> None:
        self.function, self.length = function, length

    def __iter__(self) -> Iterator[Any]:
        return self.function()

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("this dataset has no length")
        return self.length


def shard_of(count: int) -> Iterator[int]:
    """Yield the part of a range that belongs to this worker."""
    info = get_worker_info()
    yield from range(count) if info is None else range(info.id, count, info.num_workers)


def plain(value: Any) -> Any:
    """Give a batch in a form that ``==`` compares with types, shapes and bits."""
    if isinstance(value, torch.Tensor):
        bits = value.detach()
        bits = torch.view_as_real(bits) if bits.is_complex() else bits
        bits = bits.view(torch.int16) if bits.dtype == torch.bfloat16 else bits
        return (type(value), value.dtype, tuple(value.shape), bits.numpy().tobytes())
    if isinstance(value, np.ndarray):
        return (np.ndarray, value.dtype, value.shape, value.tobytes())
    if isinstance(value, Mapping):
        return (type(value), [(key, plain(part)) for key, part in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value), [plain(part) for part in value])
    return (type(value), value)


def lists(loader: Any) -> list[Any]:
    """Give all batches of a loader of tensors as lists."""
    return [batch.tolist() for batch in loader]


def drain(loader: Any) -> list[Any]:
    """Give all batches. The workers end at once, even if an exception keeps the iterator alive."""
    iterator = iter(loader)
    try:
        return list(iterator)
    finally:
        _end(iterator)


def outcomes(loader: Any, count: int) -> list[Any]:
    """Give the results of ``count`` calls of ``next``: batches, or exceptions."""
    found: list[Any] = []
    iterator = iter(loader)
    for _ in range(count):
        try:
            batch = next(iterator)
            found.append(batch.tolist() if isinstance(batch, torch.Tensor) else batch)
        except Exception as error:
            found.append(error.with_traceback(None))
    _end(iterator)
    return found


def _end(iterator: Any) -> None:
    if hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
