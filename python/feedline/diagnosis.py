"""What bounds a job, why, and what would help."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedline import _feedline, environment
from feedline.display import Displayed, Facts, count, listed
from feedline.errors import ClosedError, FeedlineError, PlanError
from feedline.types import Anomaly, Remedy, RunReport, TriedRemedy

if TYPE_CHECKING:
    from feedline.loader import Loader

Step = Callable[[Any], object]
"""A training step: takes a batch as the loader gives it."""

BOUNDS = dict(_feedline.bounds())
"""What may bound a job, in words."""

_WORDS = {**BOUNDS, "unknown": "loading; whether it computes or waits for storage cannot be told from outside"}


class Diagnosis(Displayed):
    """What was found out about a job; made by :func:`doctor`. Its text says it all."""

    def __init__(self, native: _feedline.Diagnosis, trainer: _Trainer) -> None:
        """Take what the engine found, and the trainer that it found it with."""
        self._native, self._trainer = native, trainer
        self._found = native.to_dict()

    @property
    def bound(self) -> str:
        """What bounds the job: a key of ``feedline.diagnosis.BOUNDS``."""
        return str(self._found["bound"])

    @property
    def predicted_samples_per_second(self) -> float:
        """Samples a second, as predicted before all ran together."""
        return float(self._found["predicted_samples_per_second"])

    @property
    def predicted_range(self) -> tuple[float, float]:
        """The least and the most samples a second, by the share of cores that the job gets beside other processes.

        Both are the same on a machine whose share of cores did not vary while the parts were measured.
        """
        low, high = self._found["predicted_range"]
        return float(low), float(high)

    @property
    def measured_samples_per_second(self) -> float:
        """Samples a second, as measured when all ran together."""
        return float(self._found["measured_samples_per_second"])

    @property
    def stall_share(self) -> float:
        """The part of the time in which the step waited for batches."""
        return float(self._found["stall_share"])

    @property
    def remedies(self) -> list[Remedy]:
        """What would help, best first: ``predicted_samples_per_second``, ``predicted_gain``, ``error_band``.

        A change whose gain lies within the error of the measurement is left out.
        """
        return list(self._found["remedies"])

    def try_remedy(self, remedy: str | Remedy) -> TriedRemedy:
        """Run the job with one of :attr:`remedies`, and give what was predicted of it against what it reached.

        ``remedy`` is one of them or its ``change``, such as ``"workers"``. The job runs with the step of the diagnosis,
        for at least two seconds and about half as long as it was examined. With a cache or a seek index it runs as long
        as that, since samples are kept or indexed first. ``"pack"`` packs all samples into a folder beside the cache.

        The loader stays as it is, and nothing that the trial keeps on disk is left. From then on the text and the page
        say what was tried, too.

        >>> found = fl.doctor(loader, step=train_step, seconds=1)
        >>> tried = found.try_remedy("workers")
        >>> predicted, measured = tried["predicted_samples_per_second"], tried["measured_samples_per_second"]
        """
        name = remedy if isinstance(remedy, str) else remedy["change"]
        with self._trainer as functions:
            tried = self._native.try_remedy(str(name), functions, _tell)
        self._found = self._native.to_dict()
        return tried

    def to_dict(self) -> dict[str, Any]:
        """Give all of it as plain data, as ``feedline doctor --json`` does."""
        return self._found

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page with plots, the life of batches among them, that needs nothing else."""
        Path(path).expanduser().write_text(self._native.html(), encoding="utf-8")

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the life of batches as a trace for Perfetto (ui.perfetto.dev) or Chrome (about:tracing)."""
        Path(path).expanduser().write_text(self._native.trace(), encoding="utf-8")

    def __str__(self) -> str:
        """Say it in words."""
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


def doctor(loader: Loader, step: Step | None = None, *, seconds: float = 10.0, tables: bool = False) -> Diagnosis:
    """Find out what bounds a job, why, and what would help.

    Runs ``step(batch)`` on one batch again and again, then reading alone, then preparing alone, says what the job will
    reach, and runs all together for ``seconds``. The loader that is given stays where it is: its plan is run, from
    epoch 0 on, in this process even if it shares its samples with other jobs. Where the step is the bound, a few steps
    run on batches of twice the size. Without a ``step`` loading is measured at full speed. With ``tables`` it is also
    measured with more consumers and threads, the step simulated, and what pictures of each format take here.

    >>> found = fl.doctor(loader, step=train_step, seconds=1)
    >>> found.bound, found.stall_share, found.remedies
    (...)
    """
    if step is not None and not callable(step):
        raise PlanError(f"step is {step!r}; it is a function of a batch")
    if not 0 < seconds < 86_400:
        raise PlanError(f"seconds is {seconds!r}; it is a time above 0 and below a day")
    if loader.is_closed:
        raise ClosedError("this Loader is closed; give one that is not")
    trainer = _Trainer(loader._batch, step)
    machine = environment.machine(loader.plan._native.rank[1])
    course = (float(seconds), bool(tables))
    with trainer as functions:
        native = _feedline.Diagnosis.examine(loader.plan._native, machine, functions, _tell, course)
    return Diagnosis(native, trainer)


class _Trainer:
    """The two functions of a trainer: one takes a batch, the other runs the step on it. Keeps no batch afterwards."""

    def __init__(self, to_batch: Callable[[list[tuple[str, Any]]], Any], step: Step | None) -> None:
        self._to_batch, self._step = to_batch, step
        self._latest: Any = None

    def __enter__(self) -> tuple[Callable[[list[tuple[str, Any]]], None], Callable[[], None]]:
        return self._receive, self._work

    def __exit__(self, *_: object) -> None:
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


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


class Report(Displayed):
    """What bounded a run, from what is always counted; made by ``loader.report()`` and ``feedline.wrap``."""

    def __init__(self, found: RunReport, anomalies: list[str]) -> None:
        """Take what was found, and what is odd about it in words."""
        self._found, self._anomalies = found, anomalies

    @property
    def bound(self) -> str:
        """What bounded the run: a key of ``feedline.diagnosis.BOUNDS``, or ``"unknown"`` for another loader."""
        return str(self._found["bound"])

    @property
    def stall_share(self) -> float:
        """The part of the time in which the step waited for batches."""
        return float(self._found["stall_share"])

    @property
    def measured_samples_per_second(self) -> float:
        """Samples a second."""
        return float(self._found["measured_samples_per_second"])

    @property
    def anomalies(self) -> list[Anomaly]:
        """What is odd about the times of batches: ``kind`` is period, slow_starts, drift or bimodal."""
        return list(self._found["log"]["anomalies"])

    def to_dict(self) -> RunReport:
        """Give all of it as plain data. A report of :func:`feedline.wrap` lacks what only the engine counts."""
        return self._found

    def __str__(self) -> str:
        """Say it in words."""
        log, lines = self._found["log"], []
        if log["batches"] == 0:
            return "No batch was worked on yet: a batch counts once the next one is asked for."
        lines.append(f"This run was bound by {_WORDS[self.bound]}.")
        waited = 100 * self.stall_share
        lines.append(f"{self.measured_samples_per_second:.1f} samples/s; the step waited {waited:.1f} % of the time.")
        shown = 100 * log["utilisation_sampled"]
        lines.append(f"A sampler of utilisation, which looks ten times a second, would have shown {shown:.0f} %.")
        for title, times in (("waited", log["wait_ms"]), ("step", log["step_ms"]), ("in all", log["total_ms"])):
            lines.append(
                f"  {title:8} mean {times['mean']:9.2f} ms, p50 {times['p50']:9.2f}, p90 {times['p90']:9.2f}, "
                f"p99 {times['p99']:9.2f}, most {times['most']:9.2f}"
            )
        if log["batches"] < 20:
            lines.append(f"Only {log['batches']} batches were seen.")
        lines += [f"Odd: {anomaly}." for anomaly in self._anomalies]
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
        return facts | {"unusual": listed(self._anomalies)} if self._anomalies else facts
