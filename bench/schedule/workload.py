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


@dataclass(frozen=True)
class KitsOp:
    """An op of MLPerf's 3D U-Net as SpeedyLoader's authors timed it: milliseconds, and how often it has work to do."""

    ms: float
    p: float = 1.0
    works_on_the_volume: bool = False


KITS_OPS = {
    "ResampleSpacing": KitsOp(380, works_on_the_volume=True),
    "ClipNormalize": KitsOp(115, works_on_the_volume=True),
    "PadTo": KitsOp(55, works_on_the_volume=True),
    "RandomBalancedCrop": KitsOp(965, 0.4, works_on_the_volume=True),
    "RandomFlip3d": KitsOp(32, 1 - (2 / 3) ** 3),
    "Cast": KitsOp(3),
    "RandomBrightness": KitsOp(6, 0.1),
    "GaussianNoise": KitsOp(149, 0.1),
}
KITS_SCALE = 1 / 10
KITS_WORKERS, KITS_BATCH, KITS_QUEUE = 30, 4, 20
KITS_SPACING, KITS_SIDE = (1.6, 1.2, 1.2), 128


def _prepared_voxels(case: dict[str, Any]) -> float:
    sides = (int(side * old / new) for side, old, new in zip(case["shape"], case["spacing"], KITS_SPACING, strict=True))
    return float(np.prod([max(KITS_SIDE, side) for side in sides], dtype=np.float64))


def _kits(shapes: Path) -> Workload:
    """Volumes of KiTS19 by their true shapes, the eight ops as delays.

    As SpeedyLoader ran it: 30 loader threads, batches of 4, a queue of 20 batches, however many accelerators take from
    it. Torch's queue is a multiple of its workers: 30 batches are the fewest that hold as many; its default of 60 is
    shown beside it. Times are for a volume of mean size. Four ops grow with the volume: resampling, normalising and
    padding it, and the search for the foreground of its label. What they work on is the resampled and padded grid, so
    that is the size which counts (resampling too takes time by the voxels that it makes, not by those that it reads);
    it varies half as much as that of the files. The other four see a crop of 128^3, whatever the volume. A tenth of
    the true time: at less, what torch's processes need to hand over a batch is no longer small beside the batch.
    """
    voxels = np.array([_prepared_voxels(case) for case in json.loads(shapes.read_text())])
    sizes = np.resize(voxels / voxels.mean(), SAMPLES)
    same = np.ones(SAMPLES)
    delays = tuple(
        Delay((sizes if op.works_on_the_volume else same) * op.ms * KITS_SCALE, op.p) for op in KITS_OPS.values()
    )
    return Workload(delays, workers=KITS_WORKERS, batch=KITS_BATCH, slots=KITS_QUEUE * KITS_BATCH)


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
