"""A window over jobs that read until they are ended.

In: jobs, and the processes that serve them. Out: samples per second of each job and processor time, between two moments
at which all jobs are under way. Always true: nobody is told when the window opens, so nothing can be saved up for it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import harness
from bench.share.jobs import Job, end, start

POLL_SECONDS = 0.05
STARTED_BATCHES = 6


class NotStarted(Exception):
    """Jobs did not start in time. The text describes how far they came."""


@dataclass(frozen=True)
class Seen:
    """The results of jobs in a window."""

    rates: list[float]
    server_cpu_seconds: float
    jobs_cpu_seconds: float
    seconds: float
    looks: list[Any] = field(default_factory=list)
    """What `look` gave at both ends of the window."""

    @property
    def samples_per_second(self) -> float:
        """Give the sum over the jobs."""
        return sum(self.rates)

    @property
    def server_cpu_ms_per_sample(self) -> float:
        """Give the processor time of those who serve, for each sample that a job got."""
        return 1e3 * self.server_cpu_seconds / (self.seconds * self.samples_per_second)


@dataclass(frozen=True)
class Reader:
    """A job and what it reads."""

    job: Job
    folder: Path
    socket: str
    python: str = sys.executable


def stamps(log: Path) -> list[tuple[float, int]]:
    """Give when batches came and how many samples they had; a line that is being written is left out."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [(float(moment), int(samples)) for moment, samples in (line.split() for line in lines)]


def rate(batches: Sequence[tuple[float, int]], opened: float, closed: float) -> float:
    """Give samples per second: those of a window, over the time from the last batch before it to its last one.

    So the ends of the window, which lie within batches, take nothing away and add nothing.
    """
    before = [moment for moment, _ in batches if moment <= opened]
    inside = [(moment, samples) for moment, samples in batches if opened < moment <= closed]
    if not inside:
        return 0.0
    return sum(samples for _, samples in inside) / (inside[-1][0] - (before[-1] if before else opened))


def watch(
    readers: Sequence[Reader],
    cache: Path,
    server: int | None,
    seconds: float,
    warm: float = 4.0,
    patience: float = 60.0,
    look: Callable[[], Any] | None = None,
) -> Seen:
    """Start readers, wait until all have had some batches, and a while more, and look at them for some seconds."""
    looks: list[Any] = []
    processes: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="feedline-share-") as name:
        logs = [Path(name) / f"{number}.log" for number in range(len(readers))]
        try:
            for reader, log in zip(readers, logs, strict=True):
                given = reader.job, str(reader.folder), cache, reader.socket, log, reader.python
                processes.append(start(*given))
            _wait_for_all(processes, logs, patience)
            time.sleep(warm)
            looks += [look()] if look else []
            opened, before = time.monotonic(), _cpu(server, processes)
            time.sleep(seconds)
            closed, after = time.monotonic(), _cpu(server, processes)
            looks += [look()] if look else []
        finally:
            end(processes)
        rates = [rate(stamps(log), opened, closed) for log in logs]
    return Seen(rates, after[0] - before[0], after[1] - before[1], closed - opened, looks)


def _cpu(server: int | None, processes: Sequence[subprocess.Popen[str]]) -> tuple[float, float]:
    serving = harness.tree_cpu_seconds(server) if server else 0.0
    return serving, sum(harness.tree_cpu_seconds(process.pid) for process in processes)


def _wait_for_all(processes: Sequence[subprocess.Popen[str]], logs: Sequence[Path], patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        came = [len(stamps(log)) for log in logs]
        if min(came) >= STARTED_BATCHES:
            return
        for process in processes:
            if process.poll() is not None:
                assert process.stderr is not None
                raise NotStarted(harness.reason(process.stderr.read()) or "a job ended")
        if time.monotonic() > deadline:
            raise NotStarted(f"after {patience:.0f} s jobs have had {', '.join(map(str, came))} batches and no more")
        time.sleep(POLL_SECONDS)
