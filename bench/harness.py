"""Measures loaders side by side.

Each contender runs in its own process (`python -m bench.contender NAME ...`), several times, alternating, so that
noise of the machine meets all alike. Inside, a window opens after a warm-up and counts samples, wall time, the CPU
time of the whole process tree and that of everything else on the machine; outside, peak memory (PSS of the tree) is
sampled. The best run of each contender counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

TICKS = os.sysconf("SC_CLK_TCK")
RESULTS = Path(__file__).parent / "results"
RUN_LIMIT_SECONDS = 600
EXIT_LIMIT_SECONDS = 10
# A run counts as disturbed if other processes used more cores than this.
QUIET_CORES, QUIET_WAIT_SECONDS = 0.2, 30.0
# Walking the page tables of a large process takes milliseconds. Frequent sampling would slow down large contenders.
MEMORY_SAMPLING_SHARE = 0.02


class ContenderFailed(Exception):
    """A contender ended without a result. The text is the reason."""


@dataclass(frozen=True)
class Window:
    """The measurements of one contender."""

    samples_per_second: float
    cpu_ms_per_sample: float
    first_batch_seconds: float
    samples: int
    other_cores: float


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


def tree_cpu_seconds(root: int | None = None) -> float:
    """CPU time of a process, by default this one, and all below it."""
    return sum(sum(ticks) for _, ticks in _tree(root or os.getpid())) / TICKS


def tree_pss_bytes(root: int) -> int:
    """Memory of a process tree (PSS), which counts shared pages once."""
    total = 0
    for process, _ in _tree(root):
        try:
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def machine_cpu_seconds() -> float:
    """CPU time of everything that ran on this machine."""
    user, nice, system, _, _, interrupt, soft_interrupt, *_ = Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    return sum(map(int, (user, nice, system, interrupt, soft_interrupt))) / TICKS


def measure(
    build: Callable[[], Iterable[Any]],
    size: Callable[[Any], int],
    warm: int,
    count: int,
    check: Callable[[Any], None] | None = None,
) -> Window:
    """Iterates what `build` gives: `warm` samples, then a window of at least `count`; `check` gets its last batch.

    Without a warm-up the window opens before `build` is called.
    """
    start = time.perf_counter()
    opened, cpu, machine = start, tree_cpu_seconds(), machine_cpu_seconds()
    is_open = warm == 0
    first = None
    seen = opened_at = 0
    batch = None
    for batch in build():
        now = time.perf_counter()
        first = now - start if first is None else first
        seen += size(batch)
        if not is_open and seen >= warm:
            is_open, opened_at = True, seen
            opened, cpu, machine = time.perf_counter(), tree_cpu_seconds(), machine_cpu_seconds()
        elif is_open and seen - opened_at >= count:
            break
    seconds, cpu, machine = time.perf_counter() - opened, tree_cpu_seconds() - cpu, machine_cpu_seconds() - machine
    samples = seen - opened_at
    if not is_open or samples < count:
        raise ContenderFailed(f"the data ended after {seen} samples, {warm} + {count} are needed")
    if check is not None:
        check(batch)
    return Window(samples / seconds, 1000 * cpu / samples, first or 0.0, samples, max(0.0, machine - cpu) / seconds)


def report(window: Window, **more: Any) -> None:
    """Passes the result to the parent process."""
    print("RESULT " + json.dumps({**asdict(window), **more}), flush=True)


def run_contender(name: str, arguments: list[str], python: str = sys.executable) -> dict[str, Any]:
    """Runs one contender in its own process, and adds its peak memory to the result."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [python, "-m", "bench.contender", name, *arguments]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment, start_new_session=True)
        try:
            peak = _watch(process, output)
            code = process.poll()
        finally:
            _end_session(process)
        result = _result(output)
        if code or result is None:
            errors.seek(0)
            raise ContenderFailed(reason(errors.read()) or f"ended with code {code} and no result")
    return {**result, "peak_mb": round(peak / 1e6)}


def reason(said: str) -> str:
    """The error output in one line, without paths and addresses of this machine."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:")]
    line = re.sub(r"^(bench\.harness\.\w+: )?(error: )?", "", (errors or lines or [""])[-1], flags=re.IGNORECASE)
    return re.sub(r"(/[\w.+-]+){2,}/?", "(path)", re.sub(r"\w+://\S+", "(address)", line))


def _watch(process: subprocess.Popen[bytes], output: IO[str]) -> int:
    """Peak memory of a contender until it ends, or until it has written its result."""
    peak, deadline, has_result = 0, time.monotonic() + RUN_LIMIT_SECONDS, False
    while process.poll() is None:
        before = time.monotonic()
        if before > deadline:
            if has_result:
                break
            raise ContenderFailed(f"did not finish within {RUN_LIMIT_SECONDS} s")
        peak = max(peak, tree_pss_bytes(process.pid))
        if not has_result and _result(output) is not None:
            has_result, deadline = True, before + EXIT_LIMIT_SECONDS
        time.sleep(max(0.1, (time.monotonic() - before) / MEMORY_SAMPLING_SHARE))
    return peak


def _result(output: IO[str]) -> dict[str, Any] | None:
    # pread, because the contender writes through the same open file and shares its offset.
    text = os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0).decode(errors="replace")
    lines = [line for line in text.splitlines(keepends=True) if line.startswith("RESULT ") and line.endswith("\n")]
    return json.loads(lines[-1].removeprefix("RESULT ")) if lines else None


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends the contender and its leftover child processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def race(
    contenders: list[str],
    arguments: list[str],
    runs: int,
    pythons: Mapping[str, str] | None = None,
    failures: dict[str, str] | None = None,
    wait_seconds: float = QUIET_WAIT_SECONDS,
) -> dict[str, dict[str, Any]]:
    """Runs all contenders `runs` times, alternating; keeps the best run and the spread of each.

    `pythons` names the interpreter of those that have their own. With `failures`, a contender that fails is named
    there and leaves the race; without, the race ends. Each run waits at most `wait_seconds` for a quiet machine.
    """
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for number in range(runs):
        for name in list(results):
            _wait_for_quiet(wait_seconds)
            try:
                result = run_contender(name, arguments, (pythons or {}).get(name, sys.executable))
            except ContenderFailed as failure:
                if failures is None:
                    raise SystemExit(f"{name}: {failure}") from None
                failures[name] = str(failure)
                del results[name]
                print(f"  run {number + 1}/{runs} {name:28} {failure}", file=sys.stderr)
                continue
            results[name].append(result)
            print(f"  run {number + 1}/{runs} {name:28} {result['samples_per_second']:9.1f} samples/s", file=sys.stderr)
    return {name: _best(found) for name, found in results.items()}


def _wait_for_quiet(wait_seconds: float) -> None:
    """Returns when nothing else uses the machine, or after a while all the same: `other_cores` then tells."""
    deadline = time.monotonic() + wait_seconds
    while time.monotonic() < deadline:
        before = machine_cpu_seconds()
        time.sleep(1)
        if machine_cpu_seconds() - before < QUIET_CORES:
            break


def _best(found: list[dict[str, Any]]) -> dict[str, Any]:
    top = max(found, key=lambda result: result["samples_per_second"])
    worst = min(result["samples_per_second"] for result in found)
    first = min(result["first_batch_seconds"] for result in found)
    cpu = min(result["cpu_ms_per_sample"] for result in found)
    return {**top, "first_batch_seconds": first, "cpu_ms_per_sample": cpu, "slowest_run": worst, "runs": len(found)}


def setup() -> dict[str, Any]:
    """The machine and the versions, for readers of the result."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    versions = {"python": platform.python_version(), "date": time.strftime("%Y-%m-%d")}
    return {"cpu": model, "cores": os.cpu_count(), **versions}


def show(title: str, results: dict[str, dict[str, Any]], ratios: Mapping[str, float | None]) -> None:
    """Prints a table and the ratios. A ratio is None if one of its sides was not measured."""
    print(f"\n{title}")
    print(f"{'':28}{'samples/s':>11}{'CPU ms':>9}{'peak MB':>9}{'first s':>9}")
    for contender, result in results.items():
        print(
            f"{contender:28}{result['samples_per_second']:11.1f}{result['cpu_ms_per_sample']:9.3f}"
            f"{result['peak_mb']:9}{result['first_batch_seconds']:9.2f}"
        )
    for ratio, value in ratios.items():
        print(f"{ratio:80} {'not measured' if value is None else f'{value:.2f}'}")


def finish(
    name: str,
    title: str,
    results: dict[str, dict[str, Any]],
    ratios: Mapping[str, float | None],
    failures: Mapping[str, str] | None = None,
    **more: Any,
) -> None:
    """Prints a table and the ratios, and writes both as JSON to bench/results."""
    show(title, results, ratios)
    document = {"setup": {**setup(), **more}, "results": results, "ratios": ratios}
    if failures:
        document["failures"] = failures
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written to {path}")
