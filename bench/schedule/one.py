"""One loader on one workload, in its own process: `python -m bench.schedule.one LOADER WORKLOAD [--seed N]`.

Three epochs: costs are learnt in the first, the seam between two is clean from the third on, which counts. The step
of the simulated accelerator is the mean cost, as measured inside the op, times batch over workers over the load. Use is
the accelerator's busy time over the time of the epoch.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
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


def _epoch(iterators: list[Iterator[Any]], step: float, samples: int) -> tuple[float, float]:
    """Busy time of the accelerators together, and time of the epoch; the samples must be all, each once."""
    seen: list[np.ndarray[Any, Any]] = []
    busy = [0.0] * len(iterators)

    def consume(number: int) -> None:
        for batch in iterators[number]:
            seen.append(np.asarray(batch["index"]))
            started = time.perf_counter()
            time.sleep(step)
            busy[number] += time.perf_counter() - started

    began = time.perf_counter()
    threads = [threading.Thread(target=consume, args=(number,)) for number in range(len(iterators))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    if not np.array_equal(np.sort(np.concatenate(seen)), np.arange(samples)):
        raise SystemExit("the samples of an epoch are not all samples, each once")
    return sum(busy), elapsed


def _consumers(loader: Any, count: int) -> list[Iterator[Any]]:
    """Iterators over one epoch."""
    if hasattr(loader, "consumers"):
        return list(loader.consumers(count))
    shared, lock = iter(loader), threading.Lock()

    def locked() -> Iterator[Any]:
        while True:
            with lock:
                try:
                    batch = next(shared)
                except StopIteration:
                    return
            yield batch

    return [locked() for _ in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loader", choices=LOADERS)
    parser.add_argument("workload")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--shapes", type=Path, help="shapes.json of KiTS19")
    asked = parser.parse_args()
    workload = workloads(asked.seed, asked.shapes)[asked.workload]
    loader, measured = LOADERS[asked.loader](workload, asked.seed, asked.slots or workload.slots)
    cost = workload.mean_ms / 1e3
    for _ in range(EPOCHS):
        step = asked.consumers * cost * workload.batch / workload.workers / asked.load
        busy, elapsed = _epoch(_consumers(loader, asked.consumers), step, workload.samples)
        cost = measured()
    busy /= asked.consumers
    work = cost * workload.samples / workload.workers
    result = {"use": busy / elapsed, "bound": min(1.0, busy / max(busy, work)), "seconds": elapsed, "step": step}
    if hasattr(loader, "snapshot"):
        snapshot = loader.snapshot()
        result["slots"] = snapshot["queue"]["limit_batches"] * workload.batch
    print(json.dumps(result))


if __name__ == "__main__":
    main()
