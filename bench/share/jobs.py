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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import harness


@dataclass(frozen=True)
class Job:
    """What one job does."""

    kind: str
    batch: int = 64
    step_ms: float = 0.0
    epochs: int = 4
    delay_seconds: float = 0.0


@dataclass
class Outcome:
    """What jobs did together."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    node: dict[str, Any] = field(default_factory=dict)
    node_cpu_seconds: float = 0.0

    @property
    def samples_per_second(self) -> float:
        """Give the sum over the jobs, each over its own time."""
        return float(sum(job["samples"] * len(job["epoch_ends"]) / job["epoch_ends"][-1] for job in self.jobs))


class Node:
    """A node of its own process."""

    def __init__(self, process: subprocess.Popen[str], socket: Path) -> None:
        self.process, self.socket = process, socket

    def cpu_seconds(self) -> float:
        """Give the processor time of all its threads so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / harness.TICKS

    def look(self) -> dict[str, Any]:
        """Ask how it is doing."""
        command = [sys.executable, "-m", "feedline", "--json", "top", "--socket", str(self.socket)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


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
            process.wait(10)


def run(folder: Path, cache: Path, jobs: Sequence[Job], serving: Node | None = None) -> Outcome:
    """Run jobs that start behind a barrier, each after its delay; look at the node when all have finished."""
    socket = str(serving.socket) if serving else "-"
    environment = {**os.environ, "FEEDLINE_CACHE": str(cache)}
    processes = []
    for job in jobs:
        given = [str(folder), job.kind, socket, str(job.batch), str(job.step_ms), str(job.epochs)]
        command = [sys.executable, "-m", "bench.share.job", *given]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment))
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("a job did not start")
    before = serving.cpu_seconds() if serving else 0.0
    began = time.perf_counter()
    for job, process in sorted(zip(jobs, processes, strict=True), key=lambda pair: pair[0].delay_seconds):
        time.sleep(max(0.0, began + job.delay_seconds - time.perf_counter()))
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outcome = Outcome()
    for process in processes:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said:
            raise SystemExit("a job failed")
        outcome.jobs.append(json.loads(said))
    outcome.seconds = time.perf_counter() - began
    if serving:
        outcome.node_cpu_seconds = serving.cpu_seconds() - before
        # The run ends with its last job, and so do its numbers.
        outcome.node = serving.look()
    for process in processes:
        process.communicate(timeout=30)
    return outcome
