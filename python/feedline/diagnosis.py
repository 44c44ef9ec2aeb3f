"""Finds the bottleneck of a job, and what would help."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from feedline import _feedline, environment
from feedline.display import Displayed, Facts, count, listed
from feedline.errors import ClosedError, FeedlineError, PlanError
from feedline.types import Anomaly, Remedy, RunReport, TriedRemedy

if TYPE_CHECKING:
    from feedline.loader import Loader
    from feedline.torch import DataLoader

Step = Callable[[Any], object]
"""A training step: a function of a batch."""

BOUNDS = dict(_feedline.bounds())
"""All bottlenecks, each with a description."""

_WORDS = {**BOUNDS, "unknown": "loading; from outside it is not visible whether it computes or waits for storage"}


class Diagnosis(Displayed):
    """The diagnosis of a job; made by :func:`doctor`. Print it to read all findings."""

    def __init__(self, native: _feedline.Diagnosis, trainer: _Trainer) -> None:
        """Hold the findings of the engine, and the trainer that they were measured with."""
        self._native, self._trainer = native, trainer
        self._found = native.to_dict()

    @property
    def bound(self) -> str:
        """The bottleneck of the job: a key of ``feedline.diagnosis.BOUNDS``."""
        return str(self._found["bound"])

    @property
    def predicted_samples_per_second(self) -> float:
        """Predicted samples per second, from measurements of each part alone."""
        return float(self._found["predicted_samples_per_second"])

    @property
    def predicted_range(self) -> tuple[float, float]:
        """The lowest and the highest predicted samples per second. They differ if other processes use the cores.

        Both are equal if the share of the cores did not vary while the parts were measured.
        """
        low, high = self._found["predicted_range"]
        return float(low), float(high)

    @property
    def measured_samples_per_second(self) -> float:
        """Measured samples per second of the whole job."""
        return float(self._found["measured_samples_per_second"])

    @property
    def stall_share(self) -> float:
        """The fraction of time in which the step waited for batches."""
        return float(self._found["stall_share"])

    @property
    def remedies(self) -> list[Remedy]:
        """Changes that would help, best first: ``predicted_samples_per_second``, ``predicted_gain``, ``error_band``.

        Changes whose gain lies within the error of the measurement are left out.
        """
        return list(self._found["remedies"])

    def try_remedy(self, remedy: str | Remedy) -> TriedRemedy:
        """Run the job with one of :attr:`remedies`. Return the predicted and the measured speed.

        ``remedy`` is one of them or its ``change``, such as ``"workers"``. The job runs with the step of the diagnosis,
        for at least two seconds and about half as long as the diagnosis took. With a cache or a seek index it runs as
        long as the diagnosis, because the cache or the index must be filled first. ``"pack"`` packs all samples into a
        folder beside the cache.

        The loader does not change, and files of the trial are removed. From then on the text and the page
        also show the result of the trial.

        >>> found = fl.doctor(loader, step=train_step, seconds=1)
        >>> tried = found.try_remedy("workers")
        >>> predicted, measured = tried["predicted_samples_per_second"], tried["measured_samples_per_second"]
        """
        name = remedy if isinstance(remedy, str) else remedy["change"]
        with self._trainer as functions:
            tried = self._native.try_remedy(str(name), functions, _print_progress)
        # The trial is now part of the findings.
        self._found = self._native.to_dict()
        return tried

    def to_dict(self) -> dict[str, Any]:
        """Return all findings as plain data, like ``feedline doctor --json``."""
        return self._found

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained HTML page with plots and a timeline of batches."""
        Path(path).expanduser().write_text(self._native.html(), encoding="utf-8")

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline of batches as a trace for Perfetto (ui.perfetto.dev) or Chrome (about:tracing)."""
        Path(path).expanduser().write_text(self._native.trace(), encoding="utf-8")

    def __str__(self) -> str:
        """Return the findings as text."""
        return self._native.text()

    def __repr__(self) -> str:
        """Show the bound, the speed and the number of remedies in one line."""
        helps = listed([remedy["change"] for remedy in self.remedies]) or "nothing"
        speed = f"{self.measured_samples_per_second:.1f} samples/s"
        return f"<feedline.Diagnosis: {self.bound}, {speed}, would help: {helps}>"

    def _facts(self) -> Facts:
        facts: Facts = {"bound by": BOUNDS[self.bound]}
        facts["predicted"] = f"{self.predicted_samples_per_second:.1f} samples/s"
        facts["measured"] = f"{self.measured_samples_per_second:.1f} samples/s"
        facts["step waited"] = f"{100 * self.stall_share:.1f} % of the time"
        return facts | {f"would help: {r['change']}": f"{100 * r['predicted_gain']:+.0f} %" for r in self.remedies}


@overload
def doctor(loader: Loader, step: Step | None = ..., *, seconds: float = ..., tables: bool = ...) -> Diagnosis: ...


@overload
def doctor(
    loader: DataLoader[Any], step: Step | None = ..., *, seconds: float = ..., tables: bool = ...
) -> Diagnosis | Report: ...


def doctor(
    loader: Loader | DataLoader[Any], step: Step | None = None, *, seconds: float = 10.0, tables: bool = False
) -> Diagnosis | Report:
    """Find the bottleneck of a job, and what would help.

    The doctor measures each part alone: ``step(batch)`` on one batch again and again, then reading, then preparing.
    From these it predicts the speed of the job. Then it runs the whole job for ``seconds``. It runs the plan of the
    loader from epoch 0 on, in this process, and leaves the loader itself unchanged.

    A ``feedline.torch.DataLoader`` with a native dataset is examined in the same way. With a Python dataset the job
    runs as it is, and the report names the lines of the dataset that take the time.

    Args:
        loader: the loader of the job.
        step: a function of a batch. Without it, loading is measured at full speed. If the step is the bottleneck, a
            few steps also run on batches of twice the size.
        seconds: how long the whole job runs.
        tables: also measure loading with more consumers and threads (with a simulated step), and the time that
            pictures of each format take on this machine.

    >>> found = fl.doctor(loader, step=train_step, seconds=1)
    >>> found.bound, found.stall_share, found.remedies
    (...)
    """
    if step is not None and not callable(step):
        raise PlanError(f"step is {step!r}; it must be a function of a batch")
    if not 0 < seconds < 86_400:
        raise PlanError(f"seconds is {seconds!r}; it must be a time above 0 and below a day")
    from feedline.loader import Loader

    if not isinstance(loader, Loader):
        # Imported here, so that programs without torch never import it.
        from feedline.torch.diagnosis import examine

        return examine(loader, step, seconds, tables)
    if loader.is_closed:
        raise ClosedError("this Loader is closed; give one that is not")
    trainer = _Trainer(loader._batch, step)
    machine = environment.machine(loader.plan._native.rank[1])
    settings = {"seconds": float(seconds), "tables": bool(tables)}
    with trainer as functions:
        native = _feedline.Diagnosis.examine(loader.plan._native, machine, functions, _print_progress, settings)
    return Diagnosis(native, trainer)


class _Trainer:
    """The two functions of a trainer: one receives a batch, the other runs the step on it. Keeps no batch at exit."""

    def __init__(self, to_batch: Callable[[list[tuple[str, Any]]], Any], step: Step | None) -> None:
        self._to_batch, self._step = to_batch, step
        self._latest: Any = None

    def __enter__(self) -> tuple[Callable[[list[tuple[str, Any]]], None], Callable[[], None]]:
        return self._receive, self._work

    def __exit__(self, *_: object) -> None:
        # A kept batch would keep its slab from being reused.
        self._latest = None

    def _receive(self, fields: list[tuple[str, Any]]) -> None:
        self._latest = self._to_batch(fields)

    def _work(self) -> None:
        if self._step is None:
            return
        try:
            self._step(self._latest)
        except Exception as error:
            raise FeedlineError(f"the step raised {type(error).__name__}: {error}") from error


def _print_progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


class Report(Displayed):
    """The bottleneck of a run, from counters that are always on; made by ``loader.report()`` and ``feedline.wrap``."""

    def __init__(self, found: RunReport, anomalies: list[str]) -> None:
        """Hold the findings, and the text of each anomaly."""
        self._found, self._anomalies = found, anomalies

    @property
    def bound(self) -> str:
        """The bottleneck of the run: a key of ``feedline.diagnosis.BOUNDS``, or ``"unknown"`` for another loader."""
        return str(self._found["bound"])

    @property
    def stall_share(self) -> float:
        """The fraction of time in which the step waited for batches."""
        return float(self._found["stall_share"])

    @property
    def measured_samples_per_second(self) -> float:
        """Measured samples per second."""
        return float(self._found["measured_samples_per_second"])

    @property
    def anomalies(self) -> list[Anomaly]:
        """Unusual patterns in the times of batches: ``kind`` is period, slow_starts, drift or bimodal."""
        return list(self._found["log"]["anomalies"])

    def to_dict(self) -> RunReport:
        """Return the report as plain data. A report of :func:`feedline.wrap` lacks the engine's own counters."""
        return self._found

    def __str__(self) -> str:
        """Return the findings as text."""
        log, lines = self._found["log"], []
        if log["batches"] == 0:
            return "No batch is finished yet. A batch counts once the next one is requested."
        lines.append(f"This run was bound by {_WORDS[self.bound]}.")
        waited = 100 * self.stall_share
        lines.append(f"{self.measured_samples_per_second:.1f} samples/s; the step waited {waited:.1f} % of the time.")
        shown = 100 * log["utilisation_sampled"]
        lines.append(f"A utilisation monitor that samples ten times a second would have shown {shown:.0f} %.")
        for title, times in (("waited", log["wait_ms"]), ("step", log["step_ms"]), ("total", log["total_ms"])):
            lines.append(
                f"  {title:8} mean {times['mean']:9.2f} ms, p50 {times['p50']:9.2f}, p90 {times['p90']:9.2f}, "
                f"p99 {times['p99']:9.2f}, max {times['most']:9.2f}"
            )
        if log["batches"] < 20:
            lines.append(f"Only {log['batches']} batches were seen.")
        lines += [f"Anomaly: {anomaly}." for anomaly in self._anomalies]
        for remedy in self._found.get("remedies", []):
            gain = 100 * remedy["predicted_gain"]
            lines.append(f"Would help: {remedy['change']}, about {gain:+.0f} %: {remedy['note']}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Show the bound, the speed and the number of batches in one line."""
        batches = count(self._found["log"]["batches"], "batch")
        return f"<feedline.Report: {self.bound}, {self.measured_samples_per_second:.1f} samples/s, {batches}>"

    def _facts(self) -> Facts:
        facts: Facts = {"bound by": _WORDS[self.bound], "batches": f"{self._found['log']['batches']:,}"}
        facts["measured"] = f"{self.measured_samples_per_second:.1f} samples/s"
        facts["step waited"] = f"{100 * self.stall_share:.1f} % of the time"
        return facts | {"anomalies": listed(self._anomalies)} if self._anomalies else facts
