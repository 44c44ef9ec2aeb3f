"""Simulated ops, training steps and disks, for tests, benchmarks and experiments."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from feedline.errors import PlanError
from feedline.ops import Op


@dataclass(frozen=True)
class Delay(Op):
    """An op that only takes time; made by :func:`delay`.

    >>> delay(5).costs_ms
    (5.0,)
    """

    costs_ms: tuple[float, ...]
    kind: Literal["sleep", "cpu"] = "sleep"
    p: float = 1.0


def delay(costs_ms: float | Sequence[float] | Any, kind: Literal["sleep", "cpu"] = "sleep", p: float = 1.0) -> Delay:
    """Return an op of known cost, to see what a slow op or slow samples would do to a run.

    ``costs_ms`` is a number of milliseconds for all samples, or a list by sample index, which repeats after its end.
    ``"sleep"`` waits, ``"cpu"`` uses the thread's processor time. With probability ``p`` the op takes this time,
    otherwise none. The draw is different for each sample and epoch. The scheduler does not know the cost beforehand.
    It learns the cost, as for any other op.

    >>> delay([5, 5, 5, 125]).kind
    'sleep'
    """
    costs = np.ravel(costs_ms)
    return Delay(tuple(float(cost) for cost in costs), kind, float(p))


def step(ms: float) -> None:
    """Simulate the step of an accelerator: wait, without holding the GIL.

    >>> step(1.5)
    """
    # Releases the GIL, as a kernel on an accelerator would.
    time.sleep(ms / 1e3)


def slow_disk(path: str | os.PathLike[str], *, seek_ms: float = 8.0, mb_per_second: float = 150.0) -> str:
    """Return an address that simulates a hard disk, for ``fl.tar``, ``fl.folder`` and ``fl.volumes``.

    The disk has one head: it serves one read after the other, at ``mb_per_second``. A read that does not begin where
    the last one ended takes ``seek_ms`` more. All files of a source share one disk, and each source has its own disk.

    >>> slow_disk("/data/train", seek_ms=10)
    'slow-disk://seek_ms=10.0,mb_per_second=150.0/data/train'
    """
    if not (seek_ms >= 0 and 0 < mb_per_second < float("inf")):
        raise PlanError(f"a disk with seek_ms={seek_ms} and mb_per_second={mb_per_second} cannot read")
    speed = f"seek_ms={float(seek_ms)},mb_per_second={float(mb_per_second)}"
    return f"slow-disk://{speed}{os.path.abspath(os.path.expanduser(os.fspath(path)))}"
