"""Checks that a change keeps the speed: runs two wheels of Feedline in turn.

`python -m bench.wheels OLD.whl NEW.whl FOLDER [--pairs 15] [--only index,array]` runs each workload with the old wheel
and with the new one, in turn, and prints the median ratio new / old of processor time and of wall time.
`--instructions` counts the instructions of an epoch with callgrind instead, one pair a workload: that works on a busy
machine too. Every run has a process of its own. The first epoch is left out: it fills caches and starts threads.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import harness

CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
TARGET = {"cpu": 1.03, "instructions": 1.02}
"""The slowdown that a change may cause if it is not about speed."""
SIDE_BY_SIDE = 6
"""Pairs that run at the same time. A run uses a thirtieth of a core and mostly sleeps."""
REPEATS = {"index": 4, "region": 3, "pixels": 8, "array": 20}
"""Measured epochs."""
SMALL, SMALL_REPEATS = 60, {"index": 8, "array": 30}
"""Pictures per epoch, and epochs, under callgrind, which is fifty times slower."""


def _small_options() -> dict[str, Any]:
    """Prepare as little as possible ahead. Work that is prepared but not delivered at the end counts, and varies."""
    import feedline as fl

    return {"num_workers": 1, "tuning": fl.tuning(prefetch_batches=1)}


def _epochs(loader: Iterable[Any], count: int) -> dict[str, float]:
    """Run epochs, the first uncounted."""
    for _ in loader:
        pass
    cpu, began = harness.tree_cpu_seconds(), time.perf_counter()
    for _ in range(count):
        for _ in loader:
            pass
    return {"cpu": harness.tree_cpu_seconds() - cpu, "seconds": time.perf_counter() - began}


def _pictures(name: str, folder: Path, work: Path, epochs: int, is_small: bool) -> dict[str, float]:
    import feedline as fl
    from bench.peers.feedline import loader_of

    if name == "pixels":
        return _epochs(loader_of(fl.tar(str(work / "pixels" / "*.tar"))), epochs)
    source = fl.folder(str(folder))
    if is_small:
        few = source.subset(range(min(SMALL, len(source))))
        return _epochs(loader_of(few, batch_size=4, **_small_options()), epochs)
    return _epochs(loader_of(source, tuning=fl.tuning(seek_index="auto" if name == "index" else "never")), epochs)


def _array(_name: str, _folder: Path, _work: Path, epochs: int, is_small: bool) -> dict[str, float]:
    import numpy as np

    import feedline as fl

    data = np.zeros((2048, 64, 64, 3), np.uint8)
    options: dict[str, Any] = _small_options() if is_small else {"num_workers": 2}
    return _epochs(fl.Loader(fl.array(data), batch_size=256, shuffle=True, **options), epochs)


def _schedule(name: str, _folder: Path, _work: Path, _count: int, _is_small: bool) -> dict[str, float]:
    from bench.schedule.loaders import OURS

    command = [sys.executable, "-m", "bench.schedule.one", OURS, name]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return {"cpu": found["cores"] * found["seconds"], "seconds": found["seconds"]}


def _share(_name: str, folder: Path, work: Path, _count: int, _is_small: bool) -> dict[str, float]:
    from bench.share.jobs import Job, node, run

    with node(work) as serving:
        outcome = run(folder, work, [Job("shared", epochs=4)] * 2, serving)
    return {"cpu": outcome.node_cpu_seconds, "seconds": outcome.seconds}


WORKLOADS: dict[str, Callable[[str, Path, Path, int, bool], dict[str, float]]] = {
    "index": _pictures,
    "region": _pictures,
    "pixels": _pictures,
    "array": _array,
    "bimodal": _schedule,
    "heavy tail": _schedule,
    "equal": _share,
}


@dataclass(frozen=True)
class Installed:
    """An unpacked wheel with its own caches."""

    work: Path

    @classmethod
    def of(cls, wheel: Path, work: Path, folder: Path) -> Installed:
        """Unpack a wheel, and let it prepare the data of the workloads."""
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(work), str(wheel)]
        subprocess.run(pip, check=True)
        made = cls(work)
        for command in (["index", str(folder)], ["pack", str(folder), str(work / "pixels"), "--pixels"]):
            feedline = [sys.executable, "-m", "feedline", *command]
            subprocess.run(feedline, cwd=work, env={**os.environ, **made.environment}, check=True, capture_output=True)
        return made

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which this wheel is imported."""
        return {"PYTHONPATH": f"{self.work}:{Path(__file__).parent.parent}", "FEEDLINE_CACHE": str(self.work / "cache")}


Wheels = list[Installed]


def _run(name: str, folder: Path, installed: Installed, epochs: int, before: Sequence[str] = ()) -> Any:
    """Run a workload, under a measuring tool if one is given."""
    command = [*before, sys.executable, "-m", "bench.wheels", "--child", name, str(folder), str(installed.work)]
    environment = {**os.environ, **installed.environment}
    command += [str(epochs), "small" if before else "whole"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{name} with {installed.work.name} failed: {harness.reason(ended.stderr)}")
    return ended


def _times(folder: Path, name: str, installed: Installed) -> dict[str, float]:
    said = _run(name, folder, installed, REPEATS.get(name, 1)).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found


def _instructions(folder: Path, name: str, installed: Installed) -> dict[str, float]:
    """Count the instructions of an epoch: the difference between runs with several epochs and with only the first."""
    counts = []
    for epochs in (0, SMALL_REPEATS[name]):
        said = _run(name, folder, installed, epochs, CALLGRIND).stderr
        counted = re.search(r"Collected : (\d+)", said)
        assert counted is not None, said
        counts.append(int(counted[1]))
    return {"instructions": (counts[1] - counts[0]) / SMALL_REPEATS[name]}


def _compare(name: str, measure: Callable[[str, Installed], dict[str, float]], wheels: Wheels, pairs: int) -> Any:
    """Measure old and new in turn; give the medians of the ratios."""

    def one(pair: int) -> list[dict[str, float]]:
        # The second run of a pair finds a warmer machine, so the wheels take turns in being second.
        turn = -1 if pair % 2 else 1
        return [measure(name, wheel) for wheel in wheels[::turn]][::turn]

    with ThreadPoolExecutor(SIDE_BY_SIDE if WORKLOADS[name] is _schedule else 1) as pool:
        runs = list(pool.map(one, range(pairs)))
    ratios = {what: statistics.median(new[what] / old[what] for old, new in runs) for what in runs[0][0]}
    told = ", ".join(f"{what} {ratio:.3f}" for what, ratio in ratios.items())
    print(f"{name:12} new / old: {told} ({len(runs)} pairs)", flush=True)
    return {"ratios": ratios, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="wheel before the change")
    parser.add_argument("new", type=Path, help="wheel with the change")
    parser.add_argument("folder", type=Path, help="a folder of JPEG files")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, separated by commas")
    parser.add_argument("--instructions", action="store_true", help="count instructions, of index and array alone")
    parser.add_argument("--json", type=Path, help="where the figures go")
    asked = parser.parse_args()
    names = ["index", "array"] if asked.instructions else asked.only.split(",")
    measure, pairs = (_instructions, 1) if asked.instructions else (_times, asked.pairs)
    folder = asked.folder.resolve()
    with tempfile.TemporaryDirectory(prefix="feedline-wheels-") as root:
        kinds = {"old": asked.old, "new": asked.new}
        wheels = [Installed.of(wheel, Path(root) / kind, folder) for kind, wheel in kinds.items()]
        found = {name: _compare(name, partial(measure, folder), wheels, pairs) for name in names}
    document = {"setup": harness.setup(), "targets": TARGET, "workloads": found}
    if asked.json:
        asked.json.write_text(json.dumps(document, indent=1) + "\n")
    worst = max(
        ratio / TARGET[what] for one in found.values() for what, ratio in one["ratios"].items() if what in TARGET
    )
    print("within the targets" if worst <= 1 else f"beyond a target by {100 * (worst - 1):.1f} %")


def _child(name: str, folder: str, work: str, epochs: str, size: str) -> None:
    print(json.dumps(WORKLOADS[name](name, Path(folder), Path(work), int(epochs), size == "small")))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(*sys.argv[2:])
    else:
        main()
