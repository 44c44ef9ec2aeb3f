"""Starts: from `iter` to the first batch, with persistent workers and with a new loader.

In: a trivial dataset. Out: the median time of many epochs of one loader, and the times of new loaders under each start
method. The first loader of a process is measured apart from later ones: with forkserver it starts the server, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset

from bench.ratio import Ratio
from bench.torch_loader import loaders
from bench.torch_loader.setting import Setting

METHODS = ("fork", "forkserver", "spawn")
SAMPLES, BATCH = 64, 8
EPOCHS, LATER_LOADERS = 300, 2
CONTENDERS = ["torch", "feedline", loaders.SPDL]


class Indices(Dataset[Any]):
    """Samples that are their index."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        return index


def contend_for_epochs(contender: str, epochs: str, run: str) -> dict[str, Any]:
    """Start one epoch after the other with the same workers."""
    loader = loaders.make(contender, Indices(), loaders.Order(BATCH))
    times = [_first_batch_seconds(loader) for _ in range(int(epochs))]
    # The first epoch starts the workers.
    later = sorted(times[1:])
    return {"median_ms": 1e3 * statistics.median(later), "p90_ms": 1e3 * later[len(later) * 9 // 10]}


def contend_for_first_batch(contender: str, method: str, later: str, run: str) -> dict[str, Any]:
    """Make one loader after the other."""
    times = []
    for _ in range(1 + int(later)):
        loader = loaders.make(contender, Indices(), loaders.Order(BATCH, start_method=method))
        times.append(_first_batch_seconds(loader))
        if hasattr(loader, "close"):
            loader.close()
        # This ends the workers of torch and Feedline.
        del loader
    return {"first_loader_ms": 1e3 * times[0], "later_loader_ms": 1e3 * min(times[1:])}


def _first_batch_seconds(loader: Any) -> float:
    start = time.perf_counter()
    batches = iter(loader)
    seen = next(batches).tolist()
    seconds = time.perf_counter() - start
    for batch in batches:
        seen += batch.tolist()
    assert sorted(seen) == list(range(SAMPLES)), "each sample is delivered once"
    return seconds


def measure(setting: Setting) -> dict[str, Any]:
    """Return the least times of each contender."""
    epochs, later = (30, 1) if setting.is_quick else (EPOCHS, LATER_LOADERS)
    found = {"epoch": setting.alternate("epoch start", CONTENDERS, "epoch-start", str(epochs))}
    for method in METHODS:
        row = f"first, {method}"
        found[method] = setting.alternate(row, CONTENDERS, "first-batch", method, str(later))
    return {row: {name: least(runs) for name, runs in results.items() if runs} for row, results in found.items()}


def least(runs: list[dict[str, float]]) -> dict[str, float]:
    """The least of each figure."""
    return {key: min(run[key] for run in runs) for key in runs[0]}


def ratios(results: Mapping[str, Mapping[str, Any]]) -> list[Ratio]:
    """Times against torch's under the same start method."""

    def ratio(what: str, row: str, figure: str) -> Ratio:
        both = results.get(row, {})
        value = both["feedline"][figure] / both["torch"][figure] if {"feedline", "torch"} <= set(both) else None
        return Ratio(what, value, "at most", 1.0)

    found = [ratio("start of an epoch, persistent workers: time / torch's", "epoch", "median_ms")]
    for method in METHODS:
        for figure in ("first", "later"):
            what = f"first batch of the {figure} loader of a process, {method}: time / torch's"
            found.append(ratio(what, method, f"{figure}_loader_ms"))
    return found
