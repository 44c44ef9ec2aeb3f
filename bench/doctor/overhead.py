"""The overhead of metrics on the fastest pipeline: the counters that are always on, and a timeline of every sample.

Instructions of the threads that prepare are counted by callgrind: what is counted once a batch is left out, and so is
the memory that batches lie in, of which more or less is taken as threads come to run. It slows samples down, so that
more tasks are of a single sample and more clocks are read than in a real run. Medians of some runs. Processor time is
told beside them; on a machine with neighbours it differs by several percent from run to run.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from typing import Any

from bench.ratio import Ratio

BUILD = ["cargo", "build", "--release", "-p", "feedline-engine", "--features", "switch-counting"]
BUILD += ["--example", "meter_cost"]
EXAMPLE = "target/release/examples/meter_cost"
WAYS = ("uncounted", "counted", "timeline")
COUNTS = 3
"""How often instructions are counted."""


def measure(runs: int) -> dict[str, Any]:
    """Count instructions, and take processor time some times, by turns."""
    if shutil.which("valgrind") is None:
        raise SystemExit("install valgrind: it counts the instructions")
    subprocess.run(BUILD, check=True)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(runs):
        for way in WAYS:
            seconds[way].append(float(_output([EXAMPLE, way])))
    return {
        "instructions": {way: statistics.median(_instructions(way) for _ in range(COUNTS)) for way in WAYS},
        "nanoseconds": {way: statistics.median(times) for way, times in seconds.items()},
    }


def _instructions(way: str) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]
    command += ["--toggle-collect=*Preparer*run*", EXAMPLE, way, "1"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    found = re.search(r"Collected : (\d+)", told)
    if found is None:
        raise SystemExit(f"callgrind says nothing of instructions: {told}")
    return int(found[1])


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """Shares of the instructions of threads that prepare."""
    uncounted, counted, timeline = (found["instructions"][way] for way in WAYS)
    yield Ratio("counting, which is always on: instructions it adds", counted / uncounted - 1, "at most", 0.01)
    yield Ratio("a timeline of every sample: instructions it adds", timeline / counted - 1, "at most", 0.03)
