"""The race: `python -m bench.peers FOLDER ... [--runs 3] [--only a,b] [--epochs 6]`.

Installs each peer, makes its files, runs all in turn, prints the ratios, writes `bench/results/peers-FOLDER.json` for
each folder and the page of results. A peer that cannot be installed or fails is recorded with its reason; the others
go on.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench import harness
from bench.peers import page, ratios
from bench.peers.contenders import ALL
from bench.peers.files import convert, storage_ratio, work_folder
from bench.peers.venvs import NotInstallable
from bench.pipeline import BATCH, SIDE, WORKERS, Task


def _ready(names: list[str], task: Task, failures: dict[str, str]) -> dict[str, str]:
    """The interpreters of those that are installed and have their files; the others are named in `failures`."""
    pythons = {}
    for name in names:
        environment = ALL[name].environment
        try:
            python = environment.python() if environment else sys.executable
            convert(ALL[name], task, python)
        except NotInstallable as error:
            failures[name] = f"not installable: {error}"
        except harness.ContenderFailed as error:
            failures[name] = str(error)
        else:
            pythons[name] = python
    return pythons


def _race(folder: Path, names: list[str], runs: int, epochs: int, wait_seconds: float, is_kept: bool) -> None:
    task = Task(folder, work_folder(folder), epochs)
    failures: dict[str, str] = {}
    pythons = _ready(names, task, failures)
    for path in task.paths:
        Path(path).read_bytes()
    results = harness.race(list(pythons), task.arguments, runs, pythons, failures, wait_seconds)
    for name, result in results.items():
        result["storage_ratio"] = storage_ratio(ALL[name], task)

    if is_kept and len(names) < len(ALL):
        results = _joined(folder.name, results, failures)

    title = f"{folder.name}: RandomResizedCrop({SIDE}), flip, normalise, batch {BATCH}, {WORKERS} threads or workers"
    found = {ratio.name: ratio.value for ratio in ratios.of(results)}
    for name, reason in failures.items():
        print(f"{name}: {reason}", file=sys.stderr)
    if not is_kept:
        harness.show(title, results, found)
        return
    facts = {
        "data": folder.name,
        "pictures": len(task.paths),
        "mean_kb": round(task.bytes / len(task.paths) / 1000),
        "epochs": task.epochs,
    }
    harness.finish(f"peers-{folder.name}", title, results, found, failures, **facts)
    page.write()


def _joined(data: str, results: dict[str, Any], failures: dict[str, str]) -> dict[str, Any]:
    """The runs of a whole race and those of now: the best of both, in the order of the race."""
    before = json.loads((harness.RESULTS / f"peers-{data}.json").read_text())
    failures.update({name: why for name, why in before.get("failures", {}).items() if name not in results})
    joined = {
        **before["results"],
        **{name: result for name, result in results.items() if name not in before["results"]},
    }
    for name in results.keys() & before["results"].keys():
        both = [before["results"][name], results[name]]
        best = max(both, key=lambda result: float(result["samples_per_second"]))
        least = {key: min(result[key] for result in both) for key in ("cpu_ms_per_sample", "first_batch_seconds")}
        slowest = min(result["slowest_run"] for result in both)
        joined[name] = {**best, **least, "slowest_run": slowest, "runs": sum(result["runs"] for result in both)}
    return {name: joined[name] for name in ALL if name in joined}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="JPEG files, also in sub-folders")
    parser.add_argument("--runs", type=int, default=3, help="how often each contender runs")
    parser.add_argument("--only", help=f"some of {', '.join(ALL)}; the result is printed only")
    parser.add_argument("--keep", action="store_true", help="with --only: add these runs to a whole race")
    parser.add_argument("--epochs", type=int, default=0, help="epochs that count; enough for 3000 samples by default")
    parser.add_argument(
        "--wait", type=float, default=harness.QUIET_WAIT_SECONDS, help="seconds that a run waits for a quiet machine"
    )
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(ALL)
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"there is no contender {', '.join(unknown)}")
    for folder in arguments.folders:
        if not Task(folder).paths:
            parser.error(f"there are no JPEG files in {folder}")
    for folder in arguments.folders:
        is_kept = arguments.only is None or arguments.keep
        _race(folder.resolve(), names, arguments.runs, arguments.epochs, arguments.wait, is_kept)


if __name__ == "__main__":
    main()
