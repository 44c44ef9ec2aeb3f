"""One loader on one workload, in its own process: `python -m bench.schedule.one LOADER WORKLOAD SEED LOAD [SLOTS]`.

Three epochs: costs are learnt in the first, the seam between two is clean from the third on, which counts. The step
of the simulated accelerator is the mean cost, as measured inside the op, times batch over workers over the load. Use is
the accelerator's busy time over the time of the epoch.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from bench.schedule.workload import Workload, workloads

EPOCHS = 3


def _feedline(workload: Workload, seed: int, start: str, slots: int | None) -> tuple[Any, Any]:
    import feedline as fl
    from feedline import testing

    delays = [testing.delay(delay.costs_ms, p=delay.p) for delay in workload.delays]
    source = fl.array(np.zeros((workload.samples, 4), np.float32))
    prefetch = None if slots is None else slots // workload.batch
    loader = fl.Loader(
        source,
        delays,
        batch_size=workload.batch,
        shuffle=True,
        seed=seed,
        num_workers=workload.workers,
        prefetch_batches=prefetch,
        start=start,
    )

    return loader, lambda: float(loader.costs().mean())


class _Delays:
    """A torch data set whose samples take their time."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload, self.seed = workload, seed

    def __len__(self) -> int:
        return self.workload.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        began = time.perf_counter()
        for delay in self.workload.delays:
            if delay.p == 1.0 or np.random.random() < delay.p:
                time.sleep(delay.costs_ms[index] / 1e3)
        spent = time.perf_counter() - began
        return {"x": np.zeros(4, np.float32), "index": index, "spent": spent}


def _torch(workload: Workload, seed: int, in_order: bool, slots: int | None) -> tuple[Any, Any]:
    import torch

    factor = 2 if slots is None else max(1, slots // workload.batch // workload.workers)
    spent: list[float] = []
    loader = torch.utils.data.DataLoader(
        _Delays(workload, seed),  # type: ignore[arg-type]
        batch_size=workload.batch,
        shuffle=True,
        num_workers=workload.workers,
        persistent_workers=True,
        prefetch_factor=factor,
        in_order=in_order,
        generator=torch.Generator().manual_seed(seed),
        worker_init_fn=lambda worker: np.random.seed(seed * 100 + worker),
    )

    class Noting:
        def __iter__(self) -> Any:
            for batch in loader:
                spent.append(float(batch["spent"].mean()))
                yield batch

    return Noting(), lambda: float(np.mean(spent[-workload.samples // workload.batch :]))


LOADERS = {
    "least slack": lambda w, seed, slots: _feedline(w, seed, "least-slack", slots),
    "first come": lambda w, seed, slots: _feedline(w, seed, "first-come", slots),
    "torch in order": lambda w, seed, slots: _torch(w, seed, True, slots),
    "torch out of order": lambda w, seed, slots: _torch(w, seed, False, slots),
}


def _epoch(loader: Iterable[Any], step: float, samples: int) -> tuple[float, float]:
    """Busy time of the accelerator, and time of the epoch; the samples must be all, each once."""
    seen: list[np.ndarray[Any, Any]] = []
    busy = 0.0
    began = time.perf_counter()
    for batch in loader:
        seen.append(np.asarray(batch["index"]))
        started = time.perf_counter()
        time.sleep(step)
        busy += time.perf_counter() - started
    elapsed = time.perf_counter() - began
    if not np.array_equal(np.sort(np.concatenate(seen)), np.arange(samples)):
        raise SystemExit("the samples of an epoch are not all samples, each once")
    return busy, elapsed


def main() -> None:
    name, workload_name, seed, load, *rest = sys.argv[1:]
    workload = workloads(int(seed))[workload_name]
    slots = int(rest[0]) if rest else workload.slots
    loader, measured = LOADERS[name](workload, int(seed), slots)
    cost = workload.mean_ms / 1e3
    for _ in range(EPOCHS):
        step = cost * workload.batch / workload.workers / float(load)
        busy, elapsed = _epoch(loader, step, workload.samples)
        cost = measured()
    work = cost * workload.samples / workload.workers
    result = {"use": busy / elapsed, "bound": min(1.0, busy / max(busy, work)), "seconds": elapsed, "step": step}
    if hasattr(loader, "snapshot"):
        snapshot = loader.snapshot()
        result["slots"] = snapshot["queue"]["limit_batches"] * workload.batch
    print(json.dumps(result))


if __name__ == "__main__":
    main()
