"""The loaders that are compared, each over the delays of a workload.

In: a workload, a seed, slots. Out: the consumers of an epoch, each an iterator over the sample ids of its batches; what
a sample took on average in the last epoch, as measured inside the ops; when workers were inside ops.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from bench.schedule.workload import Workload

# What torch's DataLoader keeps per worker unless told otherwise.
TORCH_PREFETCH = 2
WATCH_SECONDS = 0.001

Ids = np.ndarray[Any, np.dtype[Any]]
# When an op began, when it ended, and how many did so at once.
Span = tuple[float, float, int]


class Scheduled(Protocol):
    """A loader in the comparison."""

    @property
    def slots(self) -> int | None:
        """Samples in preparation or prepared, if the loader says."""

    def consumers(self, count: int) -> list[Iterator[Ids]]:
        """Begin an epoch."""

    def mean_seconds(self) -> float:
        """Give what a sample takes."""

    def watched(self) -> Any:
        """Give a context in which the spans of ops are gathered into a list, complete when it ends."""


class _Feedline:
    def __init__(self, workload: Workload, seed: int, start: Any, slots: int | None) -> None:
        import feedline as fl
        from feedline import testing

        self._batch = workload.batch
        self._loader = fl.Loader(
            fl.array(np.zeros((workload.samples, 4), np.float32)),
            [testing.delay(delay.costs_ms, p=delay.p) for delay in workload.delays],
            batch_size=workload.batch,
            shuffle=True,
            seed=seed,
            num_workers=workload.workers,
            tuning=fl.tuning(prefetch_batches=None if slots is None else slots // workload.batch, start=start),
        )

    @property
    def slots(self) -> int:
        return int(self._loader.snapshot()["queue"]["limit_batches"] * self._batch)

    def consumers(self, count: int) -> list[Iterator[Ids]]:
        return [_ids(consumer) for consumer in self._loader.consumers(count)]

    def mean_seconds(self) -> float:
        return float(self._loader.costs().mean())

    @contextmanager
    def watched(self) -> Iterator[list[Span]]:
        """Look at the counters of all ops every few milliseconds: what is new has ended just now."""
        spans: list[Span] = []
        ended = threading.Event()

        def look() -> None:
            before = self._loader.snapshot()["ops"]
            while not ended.wait(WATCH_SECONDS):
                now, ops = time.perf_counter(), self._loader.snapshot()["ops"]
                for old, new in zip(before, ops, strict=True):
                    if count := new["samples"] - old["samples"]:
                        each = (new["busy_seconds"] - old["busy_seconds"]) / count
                        spans.append((now - each, now, count))
                before = ops

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield spans
        finally:
            ended.set()
            thread.join()


def _ids(batches: Iterator[Any]) -> Iterator[Ids]:
    for batch in batches:
        yield np.asarray(batch["index"])


class _Delays:
    """A torch data set whose samples take their time: id, begin and end of each, in one array to hand over."""

    def __init__(self, workload: Workload) -> None:
        self._delays, self._samples = workload.delays, workload.samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        began = time.perf_counter()
        for delay in self._delays:
            if delay.p == 1.0 or np.random.random() < delay.p:
                time.sleep(delay.costs_ms[index] / 1e3)
        return np.array([index, began, time.perf_counter()])


class _Torch:
    slots = None

    def __init__(self, workload: Workload, seed: int, in_order: bool, slots: int | None) -> None:
        import torch

        # Torch counts its queue in batches per worker: as many as hold the workload's queue, if it has one.
        per_worker = TORCH_PREFETCH if slots is None else math.ceil(slots / workload.batch / workload.workers)
        self._spent: list[np.ndarray[Any, Any]] = []
        self._loader: Any = torch.utils.data.DataLoader(
            _Delays(workload),  # type: ignore[arg-type]
            batch_size=workload.batch,
            shuffle=True,
            num_workers=workload.workers,
            persistent_workers=True,
            prefetch_factor=per_worker,
            in_order=in_order,
            generator=torch.Generator().manual_seed(seed),
            worker_init_fn=lambda worker: np.random.seed(seed * 100 + worker),
        )

    def consumers(self, count: int) -> list[Iterator[Ids]]:
        self._spent.clear()
        shared, lock = iter(self._loader), threading.Lock()

        def locked() -> Iterator[Ids]:
            while True:
                with lock:
                    try:
                        batch = next(shared).numpy()
                    except StopIteration:
                        return
                self._spent.append(batch)
                yield batch[:, 0].astype(np.int64)

        return [locked() for _ in range(count)]

    def mean_seconds(self) -> float:
        spent = np.concatenate(self._spent)
        return float((spent[:, 2] - spent[:, 1]).mean())

    @contextmanager
    def watched(self) -> Iterator[list[Span]]:
        spans: list[Span] = []
        yield spans
        spans += [(began, ended, 1) for _, began, ended in np.concatenate(self._spent).tolist()]


OURS, FIRST_COME = "least slack", "first come"
IN_ORDER, OUT_OF_ORDER = "torch in order", "torch out of order"
# Torch's own default is a longer queue than some workloads have.
IN_ORDER_LONGER = "torch in order, default queue"
LOADERS = (OURS, FIRST_COME, IN_ORDER, OUT_OF_ORDER)


def make(name: str, workload: Workload, seed: int, slots: int | None) -> Scheduled:
    """Give a loader by its name."""
    if name in (OURS, FIRST_COME):
        return _Feedline(workload, seed, "least-slack" if name == OURS else "first-come", slots)
    return _Torch(workload, seed, name != OUT_OF_ORDER, None if name == IN_ORDER_LONGER else slots)
