"""For tests, benchmarks and experiments: ops, steps and disks that only take time."""

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

    ``costs_ms`` is milliseconds for all samples, or a list by sample index, which repeats after its end.
    ``"sleep"`` waits, ``"cpu"`` uses the thread's processor time. With ``p`` the time is spent with that probability,
    drawn anew each epoch. The op does not announce its cost: the scheduler learns it as it learns that of any other.

    >>> delay([5, 5, 5, 125]).kind
    'sleep'
    """
    costs = np.ravel(costs_ms)
    return Delay(tuple(float(cost) for cost in costs), kind, float(p))


def step(ms: float) -> None:
    """Simulate the step of an accelerator: wait, without holding the interpreter.

    >>> step(1.5)
    """
    # Releases the GIL, as a kernel on an accelerator would.
    time.sleep(ms / 1e3)


def slow_disk(path: str | os.PathLike[str], *, seek_ms: float = 8.0, mb_per_second: float = 150.0) -> str:
    """Return an address that simulates a hard disk, for ``fl.tar``, ``fl.folder`` and ``fl.volumes``.

    The disk has one head. A read that does not begin where the last one ended waits ``seek_ms``, and reads queue behind
    each other at ``mb_per_second``. All files of a source share the disk; each source has one of its own.

    >>> slow_disk("/data/train", seek_ms=10)
    'slow-disk://seek_ms=10.0,mb_per_second=150.0/data/train'
    """
    if not (seek_ms >= 0 and 0 < mb_per_second < float("inf")):
        raise PlanError(f"a disk with seek_ms={seek_ms} and mb_per_second={mb_per_second} cannot read")
    speed = f"seek_ms={float(seek_ms)},mb_per_second={float(mb_per_second)}"
    return f"slow-disk://{speed}{os.path.abspath(os.path.expanduser(os.fspath(path)))}"
