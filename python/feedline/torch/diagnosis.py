"""What holds a job back whose samples come from a Python dataset.

In: a DataLoader and a step. Out: the report of :func:`feedline.wrap`, and in addition the lines of the dataset in which
the workers spend their time. A thread asks the workers for their stacks now and then, while the job runs.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from feedline.batch_log import Wrapped
from feedline.diagnosis import Diagnosis, Report, doctor
from feedline.errors import PlanError
from feedline.torch.engine import WorkerEngine
from feedline.torch.loader import DataLoader
from feedline.torch.stacks import CodeLine, user_line, worker_stack
from feedline.types import RunReport

_INTERVAL_SECONDS = 0.05
_MIN_SHARE = 0.05
"""Lines with a smaller share of the workers' time are left out."""
_SLOW_STALL = 0.05
"""From this share of waiting on, the report says what would help."""


class DatasetReport(Report):
    """A report about a Python dataset; made by :func:`feedline.doctor`.

    >>> import time
    >>> slow = lambda batch: time.sleep(0.01)
    >>> loader = feedline.torch.DataLoader(range(64), batch_size=4, num_workers=1, collate_fn=slow)
    >>> found = fl.doctor(loader, step=lambda batch: None, seconds=1)
    >>> isinstance(found.hot_lines, list)
    True
    """

    def __init__(self, found: RunReport, anomalies: list[str], lines: Counter[CodeLine | None], native: str) -> None:
        """Hold the findings, how often a worker was seen at each line, and why the dataset is not native."""
        super().__init__(found, anomalies)
        self._lines, self._native = lines, native

    @property
    def hot_lines(self) -> list[tuple[CodeLine, float]]:
        """The lines of the dataset in which the workers were busy, and their share of the workers' time.

        Worst first. A line has ``function``, such as ``Pictures.__getitem__``, ``file`` and ``line``.
        """
        total = self._lines.total()
        found = [(line, times / total) for line, times in self._lines.most_common() if line is not None]
        return [(line, share) for line, share in found if share >= _MIN_SHARE]

    def __str__(self) -> str:
        """Return the findings as text."""
        lines = [super().__str__()]
        lines += [f"Workers spent {100 * share:.0f} % of their time in {line}." for line, share in self.hot_lines]
        if self.stall_share >= _SLOW_STALL:
            lines.append(f"Would help: a native dataset. This one is {self._native}.")
            lines.append(
                "Would help, if the bus is the bottleneck: deliver uint8 and normalise on the device, with "
                "feedline.torch.prefetch(loader, device, transform=...)."
            )
        return "\n".join(lines)


def examine(
    loader: Any, step: Callable[[Any], object] | None, seconds: float, tables: bool
) -> DatasetReport | Diagnosis:
    """Run a job for some seconds, and report what holds it back. A native loader is examined part by part."""
    if not isinstance(loader, DataLoader):
        raise PlanError(
            f"loader is {type(loader).__name__}; for other loaders use feedline.wrap(loader, step=...).run()"
        )
    native = loader._promoted()
    if native is not None:
        return doctor(native.loader, native.step(step), seconds=seconds, tables=tables)
    sampler = _StackSampler(loader)
    work = step or (lambda batch: None)

    def watched(batch: Any) -> None:
        sampler.begin()
        work(batch)

    try:
        report = Wrapped(loader, watched).run(seconds=seconds)
    finally:
        sampler.end()
    return DatasetReport(report.to_dict(), report._anomalies, sampler.lines, loader.explain())


class _StackSampler:
    """A thread that looks at the stacks of workers."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self.lines: Counter[CodeLine | None] = Counter()

    def begin(self) -> None:
        # Not before the workers have started: another thread would keep them from being forked.
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="feedline-stacks", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while not self._is_over.wait(_INTERVAL_SECONDS):
            engine: WorkerEngine | None = self._loader._shared.last_engine
            native = None if engine is None else engine._native
            if engine is None or native is None:
                continue
            for number, worker in enumerate(engine.workers):
                stack = worker_stack(native, number, worker)
                if stack:
                    self.lines[user_line(stack, self._loader.dataset)] += 1

    def end(self) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
