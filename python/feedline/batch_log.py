"""The batch log of any loader: how long the step waited for each batch, and what the worker processes did meanwhile.

This module only collects facts. ``crates/feedline-diagnose/src/doctor/verdict.rs`` interprets them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

from feedline import _feedline
from feedline.child_processes import ChildProcesses
from feedline.diagnosis import Report, Step
from feedline.errors import PlanError
from feedline.types import RunReport

B = TypeVar("B")

_MAX_BATCHES = 1 << 14
"""Upper limit of batches whose times are kept."""


class Wrapped(Generic[B]):
    """An iterable whose batches are timed; made by :func:`wrap`.

    >>> len(fl.wrap([1, 2, 3]))
    3
    """

    def __init__(self, batches: Iterable[B], step: Step | None) -> None:
        """Time the batches of an iterable."""
        self._batches, self._step = batches, step
        self._log: deque[tuple[int, float, float, float, int]] = deque(maxlen=_MAX_BATCHES)
        self._epoch = 0
        self._workers = int(getattr(batches, "num_workers", 0) or 0)
        self._children: ChildProcesses | None = None
        # For each batch: seconds that this thread ran on a core, and seconds that it waited for one.
        self._own: deque[tuple[float, float]] = deque(maxlen=_MAX_BATCHES)

    def __len__(self) -> int:
        """Return the number of batches, if the iterable has a length."""
        return len(self._batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[B]:
        """Yield the batches unchanged. Record how long each was waited for and how long the step took."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        if self._children is None:
            # Created before the first batch: processes that start from now on are the loader's workers.
            self._children = ChildProcesses()
        before = _own()
        asked = time.perf_counter()
        for batch in self._batches:
            waited = time.perf_counter() - asked
            # The clocks of the wait are stopped, so reading /proc does not count as waiting.
            self._children.look()
            after = _own()
            received = time.perf_counter()
            yield batch
            worked = time.perf_counter() - received
            self._log.append((epoch, waited * 1e3, 0.0, worked * 1e3, _samples(batch)))
            self._own.append((after[0] - before[0], after[1] - before[1]))
            before = _own()
            asked = time.perf_counter()

    def run(self, *, seconds: float | None = None, batches: int | None = None) -> Report:
        """Run ``step`` on batches for some seconds, for some batches, or once through; return the report.

        >>> fl.wrap([np.zeros(4)] * 3, step=lambda batch: None).run(batches=6).to_dict()["log"]["batches"]
        5
        """
        if self._step is None:
            raise PlanError("run() needs the step that works on a batch: feedline.wrap(batches, step=...)")
        start, count = time.perf_counter(), 0
        while True:
            before = count
            for batch in self:
                self._step(batch)
                count += 1
                is_over = seconds is not None and time.perf_counter() - start >= seconds
                if is_over or (batches is not None and count >= batches):
                    return self.report()
            # An iterator that is used up yields nothing more. Without this check the loop would never end.
            if count == before or (seconds is None and batches is None):
                return self.report()

    def report(self) -> Report:
        """Report the bottleneck of the run so far.

        >>> print(fl.wrap([1, 2, 3]).report())
        No batch is finished yet. A batch counts once the next one is requested.
        """
        computed, queued = (sum(part) for part in zip((0.0, 0.0), *self._own, strict=True))
        children, workers = self._children, None
        if self._workers > 0:
            workers = (None, 0.0, 0.0) if children is None else children.counted(self._workers)
        found, anomalies = _feedline.foreign_report(list(self._log), (computed, queued), workers)
        found["bound"] = found["bound"] or "unknown"
        return Report(cast(RunReport, found), anomalies)


def wrap(batches: Iterable[B], step: Step | None = None) -> Wrapped[B]:
    """Time the batches of any loader (torch DataLoader, DALI, ...), to find out whether loading is the bottleneck.

    >>> watched = fl.wrap(torch_loader)
    >>> for batch in watched:
    ...     train_step(batch)
    >>> print(watched.report())
    This run was bound by ...

    With a ``step``, ``fl.wrap(torch_loader, step=train_step).run(seconds=30)`` does all of it.
    """
    if step is not None and not callable(step):
        raise PlanError(f"step is {step!r}; it must be a function of a batch")
    return Wrapped(batches, step)


def _samples(batch: Any) -> int:
    """Return the number of samples of a batch, or 1 if its structure does not show it."""
    first = next(iter(batch.values()), None) if isinstance(batch, dict) else batch
    if isinstance(first, (tuple, list)) and first:
        # A list of arrays is a tuple of fields, (images, labels). A list of other things is one field with an entry
        # per sample.
        return _samples(first[0]) if hasattr(first[0], "shape") else len(first)
    shape = getattr(first, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) > 0 else 1


def _own() -> tuple[float, float]:
    """Return the seconds that this thread has run on a core, and waited for one (0 if the system does not tell)."""
    computed = time.thread_time()
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return computed, int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return computed, 0.0
