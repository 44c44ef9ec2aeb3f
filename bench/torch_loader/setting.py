"""Runs contenders: each in its own process, several times, in turn with the others.

In: a kind of measurement (see `contender.py`) and its arguments. Out: the results of all runs by contender, and the
reasons of those that failed. Always true: when a run ends, its process and all below it are gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import harness
from bench.peers.venvs import Environment, NotInstallable
from bench.torch_loader.loaders import needs_spdl

SPDL_ENVIRONMENT = Environment("spdl-core", ("spdl-core==0.8.*",))
WORK = Path("bench-work/torch-loader")
QUICK_SHARE = 16
"""A quick run has this many times fewer samples."""

Results = dict[str, list[dict[str, Any]]]


@dataclass
class Setting:
    """The input of all rows, and what failed."""

    pictures: Path
    work: Path = WORK
    runs: int = 3
    is_quick: bool = False
    wait_seconds: float = harness.QUIET_WAIT_SECONDS
    retries: int = 1
    """How often a run is repeated if other programs disturbed it."""
    has_spdl: bool = True
    failures: dict[str, str] = field(default_factory=dict)
    """Why a contender is missing from a row, by `row, contender`."""

    def samples(self, count: int) -> int:
        """The number of samples of a row."""
        return count // QUICK_SHARE if self.is_quick else count

    def alternate(self, row: str, contenders: list[str], kind: str, *arguments: str) -> Results:
        """Run all contenders in turn, `runs` times. A contender that fails leaves the row."""
        found: Results = {name: [] for name in contenders if self.has_spdl or not needs_spdl(name)}
        for number in range(self.runs):
            for name in list(found):
                try:
                    found[name] += self._run_until_quiet(
                        f"{row:14} {name:20}", name, kind, name, *arguments, str(number)
                    )
                except (harness.ContenderFailed, NotInstallable) as failure:
                    self.failures[f"{row}, {name}"] = str(failure)
                    del found[name]
                    print(f"  {row}, {name}: {failure}", file=sys.stderr)
        return found

    def _run_until_quiet(self, title: str, contender: str, *arguments: str) -> list[dict[str, Any]]:
        """Run a contender, and again if other programs used the machine meanwhile. Returns the results of all runs."""
        found: list[dict[str, Any]] = []
        while len(found) <= self.retries:
            harness._wait_for_quiet(self.wait_seconds)
            found.append(self._run(contender, *arguments))
            figures = (f"{key} {value:.5g}" for key, value in found[-1].items() if isinstance(value, float))
            print(f"  {title} {', '.join(figures)}", file=sys.stderr)
            if found[-1].get("other_cores", 0.0) <= harness.QUIET_CORES:
                break
        return found

    def _run(self, contender: str, *arguments: str) -> dict[str, Any]:
        python = SPDL_ENVIRONMENT.python() if needs_spdl(contender) else sys.executable
        self.work.mkdir(parents=True, exist_ok=True)
        # An empty cache: the first epoch of pictures has to build the seek indexes.
        with tempfile.TemporaryDirectory(prefix="cache-", dir=self.work) as cache:
            return run_child([python, "-m", "bench.torch_loader.contender", *arguments], {"FEEDLINE_CACHE": cache})


def run_child(command: list[str], variables: dict[str, str]) -> dict[str, Any]:
    """Run a contender and return what it reported. Raises `ContenderFailed` with its last line of errors."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment, start_new_session=True)
        try:
            code = process.wait(harness.RUN_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise harness.ContenderFailed(f"did not finish within {harness.RUN_LIMIT_SECONDS} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        lines = [line.removeprefix("RESULT ") for line in output if line.startswith("RESULT ")]
        if code or not lines:
            raise harness.ContenderFailed(harness.reason(errors.read()) or f"ended with code {code} and no result")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def report(result: dict[str, Any]) -> None:
    """Pass the result to the parent process."""
    print("RESULT " + json.dumps(result), flush=True)
