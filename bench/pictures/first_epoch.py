"""The first epoch: seek indexes are built meanwhile. Against DALI, and against Feedline without an index.

The contenders are those of `bench.peers`. Each epoch is a first one: its cache is empty, and it includes the start and
the end of the loader.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench import harness
from bench.peers import dali, feedline
from bench.peers.venvs import NotInstallable
from bench.pictures.files import is_disturbed
from bench.pictures.setting import Results, Setting
from bench.pipeline import Task
from bench.ratio import Ratio

ROW = "first-epoch"
BUILDING, REGION, PEER = feedline.BUILDING.name, feedline.WITHOUT_INDEX.name, dali.DALI.name


def measure(setting: Setting) -> Results:
    """Race the three."""
    task = Task(setting.pictures, setting.work / ROW, 1 if setting.is_quick else 0)
    pythons, failures = {BUILDING: sys.executable, REGION: sys.executable}, dict[str, str]()
    if setting.has_peers:
        try:
            pythons[PEER] = dali.ENVIRONMENT.python()
        except NotInstallable as error:
            failures[PEER] = f"not installable: {error}"
    found = harness.race(list(pythons), task.arguments, setting.runs, pythons, failures, setting.wait_seconds)
    setting.failures.update({f"{ROW}, {name}": why for name, why in failures.items()})
    return found


def ratios(results: Results) -> Iterator[Ratio]:
    """Images per second."""
    for peer, target in ((PEER, 2.1), (REGION, 1.0)):
        both = [results.get(BUILDING), results.get(peer)]
        value, disturbed = None, False
        if both[0] and both[1]:
            value = both[0]["samples_per_second"] / both[1]["samples_per_second"]
            disturbed = any(is_disturbed(result) for result in both if result)
        yield Ratio(f"first epoch, building the index / {peer}, images/s", value, "at least", target, disturbed)
