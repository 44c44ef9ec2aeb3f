"""Runs that go on beside each other, and the ledger from which an interrupted table goes on.

In: scenarios, seeds. Out: the result of each run. Runs mostly sleep, so as many go on at once as together use a part of
the processor that leaves each undisturbed; what they really used is in their results. Every result is in the ledger as
soon as it is there. Always true: a ledger holds runs of one built package and one version of the workloads only.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import harness
from bench.schedule import loaders, one, trace, workload
from bench.schedule.loaders import FIRST_COME, OURS
from bench.schedule.workload import Workload

RUN_LIMIT_SECONDS = 1200
AT_ONCE = 16
CORES_IN_USE = 0.5 * (os.cpu_count() or 1)
# Processor time for a batch, as measured.
OURS_MS_PER_BATCH, TORCH_MS_PER_BATCH = 0.8, 3.0
DELICATE_STEP_MS = 10.0
WORK = Path("bench-work/schedule")

Result = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """A workload at a load, with so many consumers."""

    workload: str
    load: str
    consumers: int = 1

    @property
    def title(self) -> str:
        """What it is called in results."""
        many = f", {self.consumers} consumers" if self.consumers > 1 else ""
        return f"{self.workload}, load {self.load}{many}"


@dataclass(frozen=True)
class Run:
    """One loader in one scenario, from one seed."""

    scenario: Scenario
    loader: str
    seed: int

    @property
    def name(self) -> str:
        """Its key in the ledger."""
        return f"{self.scenario.title}: {self.loader}, seed {self.seed}"

    def seconds(self, load: Workload) -> float:
        """About how long it takes, if workers are always busy."""
        return one.EPOCHS * load.samples * load.mean_ms / 1e3 / load.workers

    def cores(self, load: Workload) -> float:
        """About how much of the processor it uses."""
        ms = OURS_MS_PER_BATCH if self.loader in (OURS, FIRST_COME) else TORCH_MS_PER_BATCH
        return ms / (load.mean_ms * load.batch / load.workers)

    def is_delicate(self, load: Workload) -> bool:
        """Whether steps are so short that it must run alone: then even a short wait for a core is a part of them."""
        return load.mean_ms * load.batch / load.workers < DELICATE_STEP_MS

    def start(self, slots: int | None, *more: str) -> Result:
        """Run it in a process of its own."""
        scenario = self.scenario
        command = [sys.executable, "-m", "bench.schedule.one", self.loader, scenario.workload, "--seed", str(self.seed)]
        command += ["--load", scenario.load, "--consumers", str(scenario.consumers), *more]
        command += [] if slots is None else ["--slots", str(slots)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "FEEDLINE_CACHE": ""}
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=RUN_LIMIT_SECONDS)
        if ended.returncode:
            raise SystemExit(f"{self.name}: {harness.reason(ended.stderr)}")
        found: Result = json.loads(ended.stdout.splitlines()[-1])
        return found


class Ledger:
    """Results on disk, a line for each run."""

    def __init__(self, path: Path, goes_on: bool) -> None:
        self.path, self.done = path, dict[str, Result]()
        path.parent.mkdir(parents=True, exist_ok=True)
        if not goes_on:
            path.write_text("")
        elif path.exists():
            # A line without its end is that of a run during which the table was interrupted.
            whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            self.done = dict(json.loads(line) for line in whole)
            path.write_text("".join(whole))

    def add(self, name: str, result: Result) -> None:
        """Keep a result."""
        self.done[name] = result
        with self.path.open("a") as file:
            file.write(json.dumps([name, result]) + "\n")


def package_digest() -> str:
    """Change with the built package and with what a run does. A commit would not do: it says nothing of the build."""
    import feedline

    folder = Path(feedline.__file__).parent
    files = [path for path in folder.iterdir() if path.suffix in (".py", ".so")]
    files += [Path(str(module.__file__)) for module in (loaders, one, trace, workload)]
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.name):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def run_all(
    runs: Iterable[Run],
    ledger: Ledger,
    workloads: Mapping[str, Workload],
    more: list[str],
    ended: Callable[[Run], None],
) -> None:
    """Start runs in their order as there is room; first-come waits for the slots that least slack took."""
    waiting, running = [run for run in runs if run.name not in ledger.done], dict[Future[Result], Run]()
    least_slack = {run for run in waiting if run.loader == OURS}
    all_seconds = sum(run.seconds(workloads[run.scenario.workload]) for run in waiting)
    began, done_seconds, count = time.monotonic(), 0.0, len(waiting)

    def has_room(run: Run) -> bool:
        together = [*running.values(), run]
        cores = sum(each.cores(workloads[each.scenario.workload]) for each in together)
        is_disturbed = any(each.is_delicate(workloads[each.scenario.workload]) for each in together)
        return not running or (len(together) <= AT_ONCE and cores <= CORES_IN_USE and not is_disturbed)

    def is_ready(run: Run) -> bool:
        return run.loader != FIRST_COME or not any(other.scenario == run.scenario for other in least_slack)

    def slots(run: Run) -> int | None:
        if run.loader != FIRST_COME:
            return None
        ours = f"{run.scenario.title}: {OURS}, seed "
        return int(max(result["slots"] for name, result in ledger.done.items() if name.startswith(ours)))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        while waiting or running:
            for run in list(waiting):
                if is_ready(run) and has_room(run):
                    waiting.remove(run)
                    running[pool.submit(run.start, slots(run), *more)] = run
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                run = running.pop(future)
                ledger.add(run.name, future.result())
                least_slack.discard(run)
                done_seconds += run.seconds(workloads[run.scenario.workload])
                left = (time.monotonic() - began) * max(0.0, all_seconds / done_seconds - 1)
                done = count - len(waiting) - len(running)
                print(f"  {done}/{count} {run.name}; about {left / 60:.0f} min left", file=sys.stderr, flush=True)
                ended(run)
