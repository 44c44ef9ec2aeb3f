"""Compares the contents of loaders: the same samples with the same values, in any order.

In: the batches of one epoch. Out: rows of numbers that two loaders can be compared by. Exact contents give one row: the
number of samples and the sum of their hashes. Pictures give one row each: the label and the means of 16 tiles, because
decoders may differ by one grey level.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

Fingerprint = list[list[float]]
TILES = 4
PICTURE_TOLERANCE = 1 / 255 / 0.22
"""One grey level after normalisation by a standard deviation of at least 0.22."""


def of_tensors(batches: Iterable[Any]) -> Fingerprint:
    """Fingerprint of batches that are a tensor or a sequence of tensors."""

    def samples(batch: Any) -> Iterator[bytes]:
        arrays = [part.numpy() for part in ([batch] if isinstance(batch, torch.Tensor) else batch)]
        return (b"".join(part.tobytes() for part in sample) for sample in zip(*arrays, strict=True))

    return _exact(batches, samples)


def of_padded(batches: Iterable[torch.Tensor]) -> Fingerprint:
    """Fingerprint of rows of tokens without their padding."""
    return _exact(batches, lambda batch: (np.trim_zeros(row, "b").tobytes() for row in batch.numpy()))


def of_dicts(batches: Iterable[dict[str, Any]]) -> Fingerprint:
    """Fingerprint of batches that are a dict of tensors and lists of strings."""

    def samples(batch: dict[str, Any]) -> Iterator[bytes]:
        columns = [part.tolist() if isinstance(part, torch.Tensor) else part for part in batch.values()]
        return (repr((list(batch), sample)).encode() for sample in zip(*columns, strict=True))

    return _exact(batches, samples)


def of_pictures(batches: Iterable[Any]) -> Fingerprint:
    """Fingerprint of normalised pictures with labels."""
    rows: Fingerprint = []
    for pictures, labels in batches:
        means = torch.nn.functional.adaptive_avg_pool2d(pictures, TILES).flatten(1)
        rows += [[float(label), *tiles] for label, tiles in zip(labels.tolist(), means.double().tolist(), strict=True)]
    return sorted(rows)


def difference(one: Fingerprint, other: Fingerprint, tolerance: float) -> str | None:
    """Say how two epochs differ, if they do by more than `tolerance`."""
    if len(one) != len(other):
        return f"{len(one)} samples, not {len(other)}"
    largest = float(np.abs(np.asarray(one) - np.asarray(other)).max(initial=0.0))
    return f"contents differ by {largest:g}, at most {tolerance:g} is allowed" if largest > tolerance else None


def _exact(batches: Iterable[Any], samples: Callable[[Any], Iterable[bytes]]) -> Fingerprint:
    count = total = 0
    for batch in batches:
        for sample in samples(batch):
            count += 1
            total += int.from_bytes(hashlib.blake2b(sample, digest_size=8).digest(), "little")
    # Two halves, because JSON and float64 keep 53 bits.
    return [[count, total >> 32 & 0xFFFFFFFF, total & 0xFFFFFFFF]]
