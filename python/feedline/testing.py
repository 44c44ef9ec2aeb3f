"""For tests, benchmarks and what-ifs: ops and steps that only take time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from feedline.ops import Op


@dataclass(frozen=True)
class Delay(Op):
    """Take time for each sample; made by :func:`delay`."""

    costs_ms: tuple[float, ...]
    kind: Literal["sleep", "cpu"] = "sleep"
    p: float = 1.0


def delay(costs_ms: float | Sequence[float] | Any, kind: Literal["sleep", "cpu"] = "sleep", p: float = 1.0) -> Delay:
    """Give an op of known cost, to see what a slow op or slow samples would do to a run.

    ``costs_ms`` is milliseconds for all samples, or a list by sample id, which begins again behind its end. ``"sleep"``
    waits, ``"cpu"`` uses the thread's processor time. With ``p`` the time is spent with that probability, drawn
    anew each epoch. The op does not announce its cost: the scheduler learns it as it learns that of any other.

    >>> delay([5, 5, 5, 125]).kind
    'sleep'
    """
    costs = np.ravel(costs_ms)
    return Delay(tuple(float(cost) for cost in costs), kind, float(p))


def step(ms: float) -> None:
    """Simulate the step of an accelerator: wait, without holding the interpreter."""
    time.sleep(ms / 1e3)
