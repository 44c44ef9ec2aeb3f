"""Measures loaders side by side.

Each contender runs in a process of its own (`python -m bench.contender NAME ...`), several times, alternating, so that
noise of the machine meets all alike. Inside, a window opens after a warm-up and counts samples, wall time and the CPU
time of the whole process tree; outside, peak memory (PSS of the tree) is sampled. The best run of each
contender counts.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
RESULTS = Path(__file__).parent / "results"
RUN_LIMIT_SECONDS = 600


@dataclass(frozen=True)
class Window:
    """What one contender did in its window."""

    samples_per_second: float
    cpu_ms_per_sample: float
    first_batch_seconds: float
    samples: int


def _tree(root: int) -> list[tuple[int, list[int]]]:
    """Processes below `root` with their user, system and waited-for children's ticks."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            ticks[int(entry.name)] = [int(field) for field in fields[11:15]]
    found, todo = [], [root]
    while todo:
        process = todo.pop()
        if process in ticks:
            found.append((process, ticks[process]))
        todo += children.get(process, [])
    return found


def tree_cpu_seconds() -> float:
    """CPU time of this process and all below it."""
    return sum(sum(ticks) for _, ticks in _tree(os.getpid())) / TICKS


def tree_pss_bytes(root: int) -> int:
    """Memory of a process tree, shared pages counted once."""
    total = 0
    for process, _ in _tree(root):
        try:
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def measure(build: Callable[[], Iterable[Any]], size: Callable[[Any], int], warm: int, count: int) -> Window:
    """Iterates what `build` gives: `warm` samples, then a window of at least `count`."""
    start = time.perf_counter()
    first = None
    seen = opened_at = 0
    opened = cpu = 0.0
    for batch in build():
        now = time.perf_counter()
        first = now - start if first is None else first
        seen += size(batch)
        if not opened and seen >= warm:
            opened, cpu, opened_at = time.perf_counter(), tree_cpu_seconds(), seen
        elif opened and seen - opened_at >= count:
            break
    seconds, cpu = time.perf_counter() - opened, tree_cpu_seconds() - cpu
    samples = seen - opened_at
    return Window(samples / seconds, 1000 * cpu / samples, first or 0.0, samples)


def report(window: Window, **more: Any) -> None:
    """Hands a window to the process that started this one."""
    print("RESULT " + json.dumps({**asdict(window), **more}), flush=True)


def run_contender(name: str, arguments: list[str]) -> dict[str, Any]:
    """Runs one contender in a process of its own; adds its peak memory."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "bench.contender", name, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    peak, deadline = 0, time.monotonic() + RUN_LIMIT_SECONDS
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            raise SystemExit(f"{name} did not finish within {RUN_LIMIT_SECONDS} s")
        peak = max(peak, tree_pss_bytes(process.pid))
        time.sleep(0.1)
    assert process.stdout is not None
    lines = [line for line in process.stdout.read().splitlines() if line.startswith("RESULT ")]
    if process.returncode or not lines:
        raise SystemExit(f"{name} ended with code {process.returncode} and no result")
    return {**json.loads(lines[-1].removeprefix("RESULT ")), "peak_mb": round(peak / 1e6)}


def race(contenders: list[str], arguments: list[str], runs: int) -> dict[str, dict[str, Any]]:
    """Runs all contenders `runs` times, alternating; keeps the best run and the spread of each."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for number in range(runs):
        for name in contenders:
            result = run_contender(name, arguments)
            results[name].append(result)
            print(f"  run {number + 1}/{runs} {name:22} {result['samples_per_second']:9.1f} samples/s", file=sys.stderr)
    best = {}
    for name, found in results.items():
        top = max(found, key=lambda result: result["samples_per_second"])
        worst = min(result["samples_per_second"] for result in found)
        first = min(result["first_batch_seconds"] for result in found)
        cpu = min(result["cpu_ms_per_sample"] for result in found)
        best[name] = {**top, "first_batch_seconds": first, "cpu_ms_per_sample": cpu, "slowest_run": worst, "runs": runs}
    return best


def setup() -> dict[str, Any]:
    """The machine and versions, for whoever reads the result later."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    versions = {"python": platform.python_version(), "date": time.strftime("%Y-%m-%d")}
    return {"cpu": model, "cores": os.cpu_count(), **versions}


def finish(name: str, title: str, results: dict[str, dict[str, Any]], ratios: dict[str, float], **more: Any) -> None:
    """Prints a table and the ratios, and writes both as JSON to bench/results."""
    print(f"\n{title}")
    print(f"{'':24}{'samples/s':>11}{'CPU ms':>9}{'peak MB':>9}{'first s':>9}")
    for contender, result in results.items():
        print(
            f"{contender:24}{result['samples_per_second']:11.1f}{result['cpu_ms_per_sample']:9.3f}"
            f"{result['peak_mb']:9}{result['first_batch_seconds']:9.2f}"
        )
    for ratio, value in ratios.items():
        print(f"{ratio:60} {value:.2f}")
    document = {"setup": {**setup(), **more}, "results": results, "ratios": ratios}
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written to {path}")
