"""Jobs without steps: shared, each with a loader of its own, each with a torch DataLoader of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.ratio import Ratio
from bench.share.jobs import Job, node, run
from bench.share.setting import EPOCHS, Setting, keep_best, numbers, say

TOGETHER = 4
KINDS = ("shared", "own", "torch")


def measure(setting: Setting) -> dict[str, Any]:
    """Run the same number of jobs of each kind."""
    found: dict[str, Any] = {}
    for _ in range(setting.runs):
        for kind in KINDS:
            jobs = [Job(kind, epochs=EPOCHS if kind == "shared" else 1)] * TOGETHER
            if kind == "shared":
                with node(setting.cache) as serving:
                    new = numbers(run(setting.folder, setting.cache, jobs, serving))
            else:
                new = numbers(run(setting.folder, setting.cache, jobs))
            say(f"{TOGETHER} jobs without steps, {kind}", new)
            keep_best(found, kind, new)
    return found


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """The speed-up of sharing if cores are the bottleneck."""
    shared, own, torch = (found[kind]["samples_per_second"] for kind in KINDS)
    yield Ratio(f"{TOGETHER} jobs without steps: shared / loaders of their own", shared / own, "at least", 3.5)
    yield Ratio(f"{TOGETHER} jobs without steps: shared / torch DataLoaders", shared / torch, "at least", 3.5)
