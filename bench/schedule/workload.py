"""The workloads: what each sample costs, and how often.

A workload is a list of delays, each with milliseconds per sample and the probability that it is spent. All loaders
run the same delays; those that are spent with a probability are drawn anew each epoch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WORKERS = 8
BATCH = 8
SAMPLES = 6400


@dataclass(frozen=True)
class Delay:
    """Milliseconds for each sample, spent with probability `p`."""

    costs_ms: np.ndarray[Any, np.dtype[np.float64]]
    p: float = 1.0


@dataclass(frozen=True)
class Workload:
    """Delays, one after the other."""

    delays: tuple[Delay, ...]
    workers: int = WORKERS
    batch: int = BATCH
    # The slots at which first-come is compared, if not those that least slack takes.
    slots: int | None = None

    @property
    def samples(self) -> int:
        """Samples of an epoch."""
        return len(self.delays[0].costs_ms)

    @property
    def mean_ms(self) -> float:
        """What a sample costs on average."""
        return float(sum(delay.p * delay.costs_ms.mean() for delay in self.delays))


def _mixed(seed: int, share: float, slow_ms: float, fast_ms: float = 5.0, samples: int = SAMPLES) -> Workload:
    """Samples of two costs; the number of slow ones is exact."""
    costs = np.full(samples, fast_ms)
    costs[np.random.default_rng(seed).permutation(samples)[: round(share * samples)]] = slow_ms
    return Workload((Delay(costs),))


def _redrawn(seed: int) -> Workload:
    """A slow op that a quarter of the samples get, other ones each epoch."""
    del seed
    return Workload((Delay(np.full(SAMPLES, 5.0)), Delay(np.full(SAMPLES, 120.0), p=0.25)))


# Milliseconds of the ops of MLPerf's 3D U-Net for a volume of mean size, and how often each has work to do, as measured
# by the authors of SpeedyLoader; run at a twentieth.
KITS_OPS = ((380, 1.0), (115, 1.0), (55, 1.0), (965, 0.4), (32, 0.7), (3, 1.0), (6, 0.1), (149, 0.1))
KITS_SCALE = 1 / 20
KITS_BATCH = 4
KITS_QUEUE = 20


def _kits(shapes: Path) -> Workload:
    """Volumes of KiTS19 by their true shapes, the ops as delays."""
    voxels = np.array([np.prod(case["shape"], dtype=np.float64) for case in json.loads(shapes.read_text())])
    sizes = np.resize(voxels / voxels.mean(), SAMPLES)
    delays = tuple(Delay(sizes * ms * KITS_SCALE, p) for ms, p in KITS_OPS)
    return Workload(delays, batch=KITS_BATCH, slots=KITS_QUEUE * KITS_BATCH)


def workloads(seed: int, shapes: Path | None = None) -> dict[str, Workload]:
    """All workloads by name; that of KiTS19 needs the shapes of its volumes."""
    kits = {} if shapes is None else {"KiTS19": _kits(shapes)}
    sweep = {f"{percent} % slow": _mixed(seed, percent / 100, 125.0) for percent in (0, 10, 25, 50, 75, 100)}
    tail = _mixed(seed, 0.01, 2000.0)
    return {
        "bimodal": sweep["25 % slow"],
        "heavy tail": tail,
        "heavy tail, 256 slots": Workload(tail.delays, slots=256),
        "redrawn": _redrawn(seed),
        **{name: workload for name, workload in sweep.items() if name != "25 % slow"},
        **kits,
    }
