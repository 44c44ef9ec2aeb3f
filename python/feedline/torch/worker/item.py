"""What a worker needs to make one item: indices, or the number of samples to take from an iterable dataset."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any, NamedTuple

import numpy as np

_WORD = (1 << 64) - 1


class Item(NamedTuple):
    """A request for one item in mode ``"unit"``."""

    wanted: Any
    """The index or list of indices, or the number of samples of an iterable dataset."""
    seeds: list[int] | None = None
    """One seed for each index, if samples are seeded."""
    epoch: int = 0
    """The epoch of an iterable dataset. A worker ignores requests of an earlier one."""
    number: int | None = None
    """How many items of an iterable dataset this worker gave before in this epoch. A new worker skips that many."""
    start: bytes | None = None
    """The pickled state from which the worker begins an iterable dataset, if not at the first item."""


class StatefulItem(NamedTuple):
    """An item of an iterable dataset that has a state."""

    value: Any
    state: bytes
    """The pickled state of the dataset or of its iterator after this item."""


class DataEnded(NamedTuple):
    """Comes instead of an item: the iterable dataset of the worker has ended, and has a state."""

    state: bytes
    """The pickled state of the dataset or of its iterator."""


def index_id(index: Any) -> int:
    """Return a number for an index of any kind: the index itself, or a hash of it."""
    if isinstance(index, (int, np.integer)):
        return int(index) & _WORD
    digest = hashlib.blake2b(pickle.dumps(index), digest_size=6).digest()
    return int.from_bytes(digest, "little")
