"""Starts jobs and a node, and counts what they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import harness

EXIT_SECONDS = 30


@dataclass(frozen=True)
class Job:
    """The settings of one job."""

    kind: str
    batch: int = 64
    step_ms: float = 0.0
    epochs: int = 4
    delay_seconds: float = 0.0
    work: str = "imagenet"
    weight: float = 1.0


@dataclass
class Outcome:
    """The results of several jobs together."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    node: dict[str, Any] = field(default_factory=dict)
    node_cpu_seconds: float = 0.0

    @property
    def samples_per_second(self) -> float:
        """Give the sum over the jobs, each over its own time."""
        return float(sum(job["samples"] * len(job["epoch_ends"]) / job["epoch_ends"][-1] for job in self.jobs))


class Node:
    """A node in its own process."""

    def __init__(self, process: subprocess.Popen[str], socket: Path) -> None:
        self.process, self.socket = process, socket

    def cpu_seconds(self) -> float:
        """Give the processor time of all its threads so far."""
        return harness.tree_cpu_seconds(self.process.pid)

    def look(self) -> dict[str, Any]:
        """Give its statistics."""
        command = [sys.executable, "-m", "feedline", "--json", "top", "--socket", str(self.socket)]
        found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return found


@contextmanager
def node(cache: Path, memory: str = "6GB") -> Iterator[Node]:
    """Run a node as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="feedline-share-") as name:
        socket = Path(name) / "node.sock"
        command = [sys.executable, "-m", "feedline", "node", "--socket", str(socket), "--memory", memory]
        environment = {**os.environ, "FEEDLINE_CACHE": str(cache)}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            if "node at" not in said:
                raise SystemExit(f"the node did not start: {said}")
            yield Node(process, socket)
        finally:
            process.terminate()
            process.communicate(timeout=EXIT_SECONDS)


def start(
    job: Job, folder: str, cache: Path, socket: str, log: Path | None = None, python: str = sys.executable
) -> subprocess.Popen[str]:
    """Start the process of a job."""
    given = {**asdict(job), "folder": folder, "socket": socket, "log": str(log) if log else None}
    environment = {**os.environ, "FEEDLINE_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    command = [python, "-m", "bench.share.job", json.dumps(given)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE if log else None, text=True,
        env=environment,
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> str:
    """Give the next line of a job's output. Fails if there is none."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a job failed")
    return line


def tell(process: subprocess.Popen[str]) -> None:
    """Let a job continue."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End the jobs that still run."""
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=EXIT_SECONDS)


def run(folder: Path | str, cache: Path, jobs: Sequence[Job], serving: Node | None = None) -> Outcome:
    """Run jobs that start behind a barrier, each after its delay; look at the node when all have finished."""
    socket = str(serving.socket) if serving else "-"
    processes: list[subprocess.Popen[str]] = []
    outcome = Outcome()
    try:
        processes += [start(job, str(folder), cache, socket) for job in jobs]
        for process in processes:
            said(process)
        before = serving.cpu_seconds() if serving else 0.0
        began = time.perf_counter()
        for job, process in sorted(zip(jobs, processes, strict=True), key=lambda pair: pair[0].delay_seconds):
            time.sleep(max(0.0, began + job.delay_seconds - time.perf_counter()))
            tell(process)
        outcome.jobs = [json.loads(said(process)) for process in processes]
        outcome.seconds = time.perf_counter() - began
        if serving:
            outcome.node_cpu_seconds = serving.cpu_seconds() - before
            # The run ends with its last job, and so do its numbers.
            outcome.node = serving.look()
        for process in processes:
            process.communicate(timeout=EXIT_SECONDS)
    finally:
        end(processes)
    return outcome
