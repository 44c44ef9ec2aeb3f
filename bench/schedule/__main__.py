"""Accelerator use on samples of very different cost: `python -m bench.schedule [--only NAME] [--shapes FILE]`.

For each workload at loads 1.0 and 0.9: Feedline with least-slack start, the same engine with first-come start at equal
slots, and torch's DataLoader in order and out of order, all with equal workers and delays. Beside each figure stands
the work-conserving bound. Runs mostly sleep, so several go on at once. Written to bench/results/schedule.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import harness
from bench.schedule.loaders import LOADERS
from bench.schedule.workload import workloads

LOADS = ("1.0", "0.9")
RUN_LIMIT_SECONDS = 900
AT_ONCE = 4
CONSUMERS = (1, 2, 4, 8)


def _run(loader: str, workload: str, seed: int, load: str, slots: int | None, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.schedule.one", loader, workload, "--seed", str(seed), "--load", load, *more]
    if slots is not None:
        command += ["--slots", str(slots)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FEEDLINE_CACHE": ""}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=RUN_LIMIT_SECONDS)
    if ended.returncode:
        raise SystemExit(f"{loader} on {workload}: {harness.reason(ended.stderr)}")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _median(runs: list[dict[str, Any]]) -> dict[str, float]:
    return {key: statistics.median(float(run[key]) for run in runs) for key in runs[0]}


def _workload(name: str, load: str, seeds: int, pool: ThreadPoolExecutor, *more: str) -> dict[str, Any]:
    """All loaders on one workload; first-come gets the slots that least slack took."""
    ours = list(pool.map(lambda seed: _run("least slack", name, seed, load, None, *more), range(seeds)))
    slots = int(max(run["slots"] for run in ours))
    others = [(loader, seed) for loader in LOADERS if loader != "least slack" for seed in range(seeds)]

    def other(one: tuple[str, int]) -> dict[str, Any]:
        return _run(one[0], name, one[1], load, slots if one[0] == "first come" else None, *more)

    found: dict[str, list[dict[str, Any]]] = {"least slack": ours}
    for (loader, _), result in zip(others, pool.map(other, others), strict=True):
        found.setdefault(loader, []).append(result)
    return {loader: _median(runs) for loader, runs in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a workload; may be given several times; printed only")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--loads", nargs="+", default=LOADS)
    parser.add_argument("--shapes", type=Path, help="shapes.json of KiTS19: adds its volumes, with 1 to 8 consumers")
    arguments = parser.parse_args()
    names = arguments.only or list(workloads(0, arguments.shapes))
    results: dict[str, Any] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name in names:
            for consumers in CONSUMERS if name == "KiTS19" else (1,):
                more = ["--consumers", str(consumers)]
                more += [] if arguments.shapes is None else ["--shapes", str(arguments.shapes)]
                for load in arguments.loads:
                    title = f"{name}, load {load}" + (f", {consumers} consumers" if name == "KiTS19" else "")
                    results[title] = _workload(name, load, arguments.seeds, pool, *more)
                    _show(title, results[title])
    if arguments.only is None:
        path = harness.RESULTS / "schedule.json"
        path.write_text(json.dumps({"setup": harness.setup(), "results": results}, indent=1) + "\n")
        print(f"written to {path}")


def _show(title: str, found: dict[str, Any]) -> None:
    print(title)
    for loader, result in found.items():
        share = result["use"] / result["bound"]
        slots = f"{result['slots']:8.0f} slots" if "slots" in result else ""
        print(f"  {loader:20} use {result['use']:.3f}  bound {result['bound']:.3f}  {share:.3f}{slots}", flush=True)


if __name__ == "__main__":
    main()
