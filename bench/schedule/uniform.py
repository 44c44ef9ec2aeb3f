"""What least slack costs where it cannot help: pictures of like cost, prepared by two threads.

In: a folder of JPEG files. Out: the race of least slack against first-come on the ImageNet training pipeline, without a
seek index, so that the work is the same in every epoch. CPU time counts, the best of several runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bench import harness
from bench.peers import feedline
from bench.pipeline import Task
from bench.schedule.loaders import FIRST_COME, OURS

RUNS = 7
# Long enough that the ticks in which the system counts CPU time do not matter.
EPOCHS = "6"


def _contend(start: str, *arguments: str) -> None:
    import feedline as fl

    os.environ[feedline.CACHE] = ""
    task = Task.of(*arguments)
    loader = feedline.loader_of(fl.folder(str(task.folder)), tuning=fl.tuning(seek_index="never", start=start))
    harness.report(task.measure(lambda: feedline.endless(loader)))


CONTENDERS = {
    f"uniform cost, {OURS}": lambda *arguments: _contend("least-slack", *arguments),
    f"uniform cost, {FIRST_COME}": lambda *arguments: _contend("first-come", *arguments),
}


def race(pictures: Path, wait_seconds: float) -> dict[str, dict[str, Any]]:
    """Give the best run of each."""
    return harness.race(list(CONTENDERS), [str(pictures), "", EPOCHS], RUNS, wait_seconds=wait_seconds)
