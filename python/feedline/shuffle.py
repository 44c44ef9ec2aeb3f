"""The reservoir shuffle, which reads in sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.errors import PlanError


@dataclass(frozen=True)
class Reservoir:
    """A shuffle that reads in sequence; made by :func:`reservoir`.

    >>> fl.reservoir(1000).size
    1000
    """

    size: int | float | None = None
    readers: int = 4
    block: int | str = "64MB"


def reservoir(size: int | float | None = None, *, readers: int = 4, block: int | str = "64MB") -> Reservoir:
    """Shuffle by reading in sequence: ``Loader(fl.tar(...), shuffle=fl.reservoir(0.1))``.

    Shards are divided into blocks. Each epoch visits the blocks in a new order. Readers take turns and fill a
    reservoir, from which the next sample is drawn at random. A hard disk reads at full speed this way. Each sample
    still comes once per epoch, in an order that depends only on the plan and the seed. The price: samples that lie
    close together in a shard also come close together, within about the size of the reservoir. ``feedline shuffle
    PLAN`` measures this.

    Args:
        size: samples in the reservoir of each rank: a whole number, or a fraction of the rank's samples such as
            ``0.1``. By default a tenth of them, limited to 2 GB. Their stored bytes are held in memory, in addition to
            ``memory_budget``; ``loader.snapshot()["reservoir"]`` counts them.
        readers: number of places in the sequence of blocks that are read in turns. More readers mix sorted data better.
        block: length of the blocks, a number of bytes or a text such as ``"64MB"``. Shorter blocks mix better and
            cost more seeks.

    >>> loader = fl.Loader(fl.tar("shards/*.tar"), [ops.DecodeImage(), ops.Resize((64, 64))], batch_size=64,
    ...                    shuffle=fl.reservoir(0.1))
    """
    return Reservoir(size, readers, block)


def to_plan(shuffle: bool | Reservoir) -> bool | dict[str, Any]:
    """Return the shuffle as a setting of a plan."""
    # NumPy's bool is not a subclass of Python's.
    if isinstance(shuffle, (bool, np.bool_)):
        return bool(shuffle)
    if not isinstance(shuffle, Reservoir):
        raise PlanError(f"shuffle is {shuffle!r}; it must be True, False or fl.reservoir(size=0.1)")
    table: dict[str, Any] = {"kind": "reservoir", "block": shuffle.block}
    if isinstance(shuffle.readers, bool) or not isinstance(shuffle.readers, (int, np.integer)) or shuffle.readers < 1:
        raise PlanError(f"readers is {shuffle.readers!r}; it must be a whole number from 1 on")
    table["readers"] = int(shuffle.readers)
    size = shuffle.size
    if size is None:
        return table
    is_number = isinstance(size, (int, float, np.integer, np.floating)) and not isinstance(size, bool)
    if not is_number or not size > 0:
        raise PlanError(f"size is {size!r}; it must be a number of samples, or a part of them such as 0.1")
    # A whole number counts samples. A float is a fraction, so 1.0 means all of them.
    table["size"] = int(size) if isinstance(size, (int, np.integer)) else float(size)
    return table
