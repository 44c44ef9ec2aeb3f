"""A job of volumes and one of pictures on one node.

First without steps, each alone and both together: the cores do not suffice, and how they are divided is reported. Then
with steps for which each alone keeps the node busy for a part of the cores, found from what a sample of it took before:
together the cores suffice, and none may be slower than alone. Volumes are made on the spot, of noise and a few blobs;
only the crop of each is read, so their size hardly matters. Each has several names, as pictures have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.ratio import Ratio
from bench.share.jobs import Job, node
from bench.share.setting import NAMES, Setting, say
from bench.share.window import Reader, Seen, watch

WORKS, BATCHES = ("imagenet", "volumes"), {"imagenet": 64, "volumes": 2}
VOLUMES, SIDE, BLOB = 24, 160, 24
# What each job alone leaves the node to do, of all cores.
BUSY = 0.3
WINDOW_SECONDS = 15.0
FREE, STEPS = "without steps", "with steps"


def make_volumes(folder: Path, count: int = VOLUMES, side: int = SIDE, names: int = NAMES) -> Path:
    """Write volumes with their labels, each under several names; what is there already is not made again."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        if not (folder / f"{number:02}-0_y.npy").exists():
            generator = np.random.default_rng(number)
            label = np.zeros((1, side, side, side), np.uint8)
            for value in (1, 2):
                z, y, x = generator.integers(0, side - BLOB, 3)
                label[0, z : z + BLOB, y : y + BLOB, x : x + BLOB] = value
            image = generator.standard_normal(label.shape, dtype=np.float32) + label
            for ending, content in (("x", image), ("y", label)):
                np.save(folder / f"{number:02}-0_{ending}.npy", content)
                for name in range(1, names):
                    (folder / f"{number:02}-{name}_{ending}.npy").symlink_to(f"{number:02}-0_{ending}.npy")
    return folder


def step_ms(batch: int, cpu_ms_per_sample: float, busy: float, cores: int) -> float:
    """Give the step with which a job that takes a batch in each keeps a part of all cores busy."""
    return batch * cpu_ms_per_sample / (busy * cores)


def core_seconds(look: dict[str, Any]) -> dict[str, float]:
    """Give the time on cores of the threads of each work, from the statistics of a node."""
    of = {"RandomBalancedCrop": "volumes", "RandomResizedCrop": "imagenet"}
    works = {next(of[op] for op in run["ops"] if op in of): run for run in look["runs"]}
    return {work: float(run["engine"]["core_seconds"]) for work, run in works.items()}


class Mixed:
    """Runs some of both works on a node of their own."""

    def __init__(self, setting: Setting, seconds: float) -> None:
        self.cache, self.seconds = setting.cache, seconds
        self.folders = {"imagenet": setting.folder, "volumes": make_volumes(setting.root / "volumes")}

    def watch(self, works: Sequence[str], steps: dict[str, float], weights: Mapping[str, float] | None = None) -> Seen:
        def reader(work: str) -> Reader:
            job = Job("shared", BATCHES[work], steps[work], work=work, weight=(weights or {}).get(work, 1.0))
            return Reader(job, self.folders[work], str(serving.socket))

        with node(self.cache) as serving:
            readers = [reader(work) for work in works]
            return watch(readers, self.cache, serving.process.pid, self.seconds, look=serving.look)

    def cores(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Give the cores that the node used for each work, of two jobs without steps that have these weights."""
        seen = self.watch(WORKS, dict.fromkeys(WORKS, 0.0), weights)
        before, after = (core_seconds(look) for look in seen.looks)
        return {work: (after[work] - before[work]) / seen.seconds for work in WORKS}

    def race(self, title: str, steps: dict[str, float], found: dict[str, Any]) -> dict[str, Seen]:
        """Run each alone and both together; keep the best rates. Gives what was seen of each alone."""
        case = found.setdefault(title, {"alone": {}, "together": {}, "cores_alone": {}})
        alone = {work: self.watch([work], steps) for work in WORKS}
        both = self.watch(WORKS, steps)
        for work, rate in zip(WORKS, both.rates, strict=True):
            case["together"][work] = max(rate, case["together"].get(work, 0.0))
            case["alone"][work] = max(alone[work].rates[0], case["alone"].get(work, 0.0))
            seen = alone[work]
            used = (seen.server_cpu_seconds + seen.jobs_cpu_seconds) / seen.seconds
            case["cores_alone"][work] = min(used, case["cores_alone"].get(work, used))
        say(f"{title}, alone", case["alone"])
        say(f"{title}, together", case["together"])
        return alone


def measure(setting: Setting, seconds: float = WINDOW_SECONDS) -> dict[str, Any]:
    """Run both cases as often as is asked for, with the steps that the first run suggests."""
    found: dict[str, Any] = {}
    mixed = Mixed(setting, seconds)
    steps: dict[str, float] = {}
    for _ in range(setting.runs):
        alone = mixed.race(FREE, dict.fromkeys(WORKS, 0.0), found)
        steps = steps or {
            work: step_ms(BATCHES[work], alone[work].server_cpu_ms_per_sample, BUSY, os.cpu_count() or 1)
            for work in WORKS
        }
        mixed.race(STEPS, steps, found)
    return {**found, "step_ms": steps}


def shares(case: dict[str, Any]) -> dict[str, float]:
    """Give the speed of each job beside the other, as a share of that alone."""
    return {work: case["together"][work] / case["alone"][work] for work in WORKS}


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """Where the cores suffice none is slower than alone."""
    for work, share in shares(found[STEPS]).items():
        yield Ratio(f"mixed jobs, enough cores: {work}, samples/s together / alone", share, "at least", 0.95)
