"""Slow samples: how busy the accelerator is if 10 % of the samples take 20 times as long.

In: a loader with four workers and a training step that only sleeps. Out: its use (time in steps / time from the
first batch to the end of the epoch) and the bound of a work-conserving loader, as in `bench.schedule`. Sleeping takes
longer than requested, so samples and steps are measured: the step is set from the mean sample of the epoch before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from bench.ratio import Ratio
from bench.torch_loader import loaders
from bench.torch_loader.setting import Setting

BATCHES = (2, 8)
WORKERS, LOAD = 4, 0.95
QUICK_SECONDS, SLOW_FACTOR, SLOW_SHARE = 0.002, 20, 0.1
EPOCHS = 2
SAMPLES = 3072
CONTENDERS = ["torch", "feedline", loaders.SPDL]


class SleepingSamples(Dataset[Any]):
    """Samples that take their time: each gives its index and the seconds that it took."""

    def __init__(self, samples: int) -> None:
        self.is_slow = np.random.default_rng(0).random(samples) < SLOW_SHARE

    def __len__(self) -> int:
        return len(self.is_slow)

    def __getitem__(self, index: int) -> tuple[int, float]:
        start = time.perf_counter()
        time.sleep(QUICK_SECONDS * (SLOW_FACTOR if self.is_slow[index] else 1))
        return index, time.perf_counter() - start


def contend(contender: str, batch: str, samples: str, run: str) -> dict[str, Any]:
    """Train for some epochs. The last one counts."""
    dataset = SleepingSamples(int(samples))
    loader = loaders.make(contender, dataset, loaders.Order(int(batch), WORKERS))
    mean = QUICK_SECONDS * (1 + (SLOW_FACTOR - 1) * float(dataset.is_slow.mean()))
    for _ in range(EPOCHS):
        step = mean * int(batch) / WORKERS / LOAD
        seen: list[int] = []
        work = busy = 0.0
        start = None
        for indices, seconds in loader:
            began = time.perf_counter()
            # The wait for the first batch is a row of its own: `starts.py`.
            start = began if start is None else start
            seen += indices.tolist()
            work += float(seconds.sum())
            time.sleep(max(0.0, step - (time.perf_counter() - began)))
            busy += time.perf_counter() - began
        elapsed = time.perf_counter() - (start or 0.0)
        assert sorted(seen) == list(range(len(dataset))), "each sample is delivered once"
        mean = work / len(dataset)
    bound = busy / max(busy, work / WORKERS)
    return {"use": busy / elapsed, "bound": bound, "of_bound": busy / elapsed / bound, "step_ms": 1e3 * step}


def measure(setting: Setting) -> dict[str, Any]:
    """Return the run with the highest share of the bound, by batch size and contender."""
    found: dict[str, Any] = {}
    for batch in BATCHES:
        arguments = (str(batch), str(setting.samples(SAMPLES)))
        results = setting.alternate(f"slow, {batch}", CONTENDERS, "slow", *arguments)
        found[f"batch {batch}"] = {
            name: max(runs, key=lambda run: float(run["of_bound"])) for name, runs in results.items() if runs
        }
    return found


def ratios(results: Mapping[str, Mapping[str, Any]]) -> list[Ratio]:
    """Use against the bound for every batch size, and against torch for the smallest."""
    found = []
    for batch in BATCHES:
        ours = results.get(f"batch {batch}", {}).get("feedline")
        share = None if ours is None else ours["of_bound"]
        found.append(Ratio(f"10 % slow samples, batch {batch}: use / work-conserving bound", share, "at least", 0.98))
    both = results.get(f"batch {BATCHES[0]}", {})
    gain = both["feedline"]["use"] / both["torch"]["use"] if {"feedline", "torch"} <= set(both) else None
    return [*found, Ratio(f"10 % slow samples, batch {BATCHES[0]}: use / torch's", gain, "at least", 1.5)]
