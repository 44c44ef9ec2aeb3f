"""Jobs with one known bottleneck, made of sleeps and throttles with random parameters.

Each job has a rate at which it is bound, and every other resource allows at least 1.3 times as much. To ease something
is to change one parameter: the step is halved; threads, or the rate of the store or link, are doubled; the memory
budget is four times as large; the same total cost is spread evenly; the op in Python becomes native.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import feedline as fl
from bench.storage.server import serving
from feedline import testing
from feedline.ops import Map

SAMPLE_BYTES = 50_000
KINDS = ("step", "read", "prepare", "network", "head_of_line", "memory", "python", "giant")
BOUND = {kind: "head_of_line" if kind == "giant" else kind for kind in KINDS}
EASINGS = ("step", "prepare", "read", "network", "memory", "head_of_line", "python")


@dataclass(frozen=True)
class Case:
    """A job. Times are in milliseconds, rates in samples per second."""

    kind: str
    samples: int
    batch: int
    step_ms: float
    workers: int
    costs_ms: tuple[float, ...]
    store_rate: float | None = None
    link_rate: float | None = None
    python_ms: float = 0.0
    budget: int | None = None
    prefetch: int | None = None
    sample_bytes: int = SAMPLE_BYTES

    def eased(self, what: str) -> Case | None:
        """Give the job with one resource eased. None if it does not use that resource."""
        if what == "step":
            return replace(self, step_ms=self.step_ms / 2)
        if what == "prepare":
            return replace(self, workers=2 * self.workers)
        if what == "read":
            return replace(self, store_rate=2 * self.store_rate) if self.store_rate else None
        if what == "network":
            return replace(self, link_rate=2 * self.link_rate) if self.link_rate else None
        if what == "memory":
            return replace(self, budget=4 * self.budget) if self.budget else None
        if what == "head_of_line":
            even = sum(self.costs_ms) / len(self.costs_ms)
            return replace(self, costs_ms=(even,)) if len(self.costs_ms) > 1 else None
        return replace(self, python_ms=0.0) if self.python_ms else None


def make(kind: str, seed: int) -> Case:
    """Make a job with the bottleneck of its kind."""
    chance = random.Random(f"{kind} {seed}")
    rate = chance.uniform(60, 140)
    other = lambda: rate * chance.uniform(1.5, 3.0)  # noqa: E731
    batch, workers = chance.choice((4, 8)), chance.choice((2, 3, 4))
    even = (1e3 * workers / other(),)
    step = 1e3 * batch / other()
    usual = Case(kind, samples=64 * batch, batch=batch, step_ms=step, workers=workers, costs_ms=even)
    if kind == "step":
        return replace(usual, step_ms=1e3 * batch / rate, store_rate=other() * 2)
    if kind == "prepare":
        return replace(usual, costs_ms=(1e3 * workers / rate,), store_rate=None)
    if kind == "read":
        # Threads wait for their reads, so there are more of them.
        return replace(usual, store_rate=rate, workers=4 * workers, costs_ms=(1e3 * workers / other(),))
    if kind == "network":
        return replace(usual, link_rate=rate)
    if kind == "python":
        return replace(usual, python_ms=1e3 / rate, costs_ms=(0.0,))
    if kind == "memory":
        # Fewer slots than threads: a quarter of the threads would do for the rate that is reached.
        cost = 1e3 * 2 / rate
        return replace(usual, batch=2, workers=8, costs_ms=(cost,), step_ms=2e3 / other() / 2, budget=2, samples=256)
    # One sample holds up all others of its part. Their own cost hardly matters, because all threads wait for it.
    slow = chance.uniform(150, 400)
    stretch = batch * chance.randrange(8, 16)
    if kind == "giant":
        slow, stretch = 2 * slow, 32 * batch
    quick = 0.05 * slow * workers / stretch
    place = chance.randrange(stretch)
    costs = tuple(slow if number == place else quick for number in range(stretch))
    step = 0.03 * slow * batch / stretch
    return replace(
        usual,
        costs_ms=costs,
        step_ms=step,
        prefetch=2,
        samples=stretch * max(1, usual.samples // stretch if kind == "head_of_line" else 1),
    )


def _spin(ms: float, value: Any) -> Any:
    end = time.thread_time() + ms / 1e3
    while time.thread_time() < end:
        pass
    return value


class Files:
    """Files of the size of a sample, made once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, samples: int) -> Path:
        """Give a folder with this number of files."""
        folder = self.root / f"files-{samples}" / "all"
        if not folder.exists():
            folder.mkdir(parents=True)
            content = np.random.default_rng(0).bytes(SAMPLE_BYTES)
            for number in range(samples):
                (folder / f"{number:05}.jpg").write_bytes(content)
        return folder.parent


@contextmanager
def loader(case: Case, files: Files, cache: Path) -> Iterator[fl.Loader]:
    """Give a loader of the job, with what serves its files."""
    ops = [testing.delay(case.costs_ms)] if any(case.costs_ms) else []
    if case.python_ms:
        ops.append(Map(_Spinning(case.python_ms), on=("label",), deterministic=True))
    settings: dict[str, Any] = {
        "batch_size": case.batch,
        "num_workers": case.workers,
    }
    start: Any = "least-slack" if case.prefetch is None else "first-come"
    if case.budget is not None:
        source: fl.Source = fl.synthetic(case.samples, (512, 1024))
        settings["memory_budget"] = case.budget * case.batch * 512 * 1024
        tuning = fl.tuning(prefetch_batches=case.prefetch, start=start)
        with fl.Loader(source, ops, tuning=tuning, **settings) as made:
            yield made
        return
    folder = files.folder(case.samples)
    with serving(folder, cache, _mbps(case)) if case.link_rate else _nothing() as server:
        where: str | Path = folder
        if server is not None:
            where = server.url("")
        elif case.store_rate is not None:
            rate = case.store_rate * SAMPLE_BYTES / 1e6
            where = testing.slow_disk(folder, seek_ms=0.0, mb_per_second=rate)
        tuning = fl.tuning(prefetch_batches=case.prefetch, start=start, offload="none")
        with fl.Loader(fl.folder(where), ops, ragged=("image",), tuning=tuning, **settings) as made:
            yield made


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


def _mbps(case: Case) -> float:
    return (case.link_rate or 0.0) * SAMPLE_BYTES * 8 / 1e6


@dataclass(frozen=True)
class _Spinning:
    """A function in Python that computes for some time."""

    ms: float

    def __call__(self, value: Any) -> Any:
        """Give the value as it is, later."""
        return _spin(self.ms, value)


def run(case: Case, files: Files, cache: Path, seconds: float) -> float:
    """Run a job for some seconds. Give its samples per second, without the start."""
    with loader(case, files, cache) as made:
        start, counted, since = time.perf_counter(), 0, None
        while True:
            for batch in made:
                testing.step(case.step_ms)
                now = time.perf_counter()
                if since is None:
                    since = now if now - start > 0.25 * seconds else None
                    continue
                counted += len(batch["index"])
                if now - start > seconds:
                    return counted / (now - since)
