"""Equal jobs whose bottleneck is their step: the throughput and the cost of 1, 2, 4 and 9 of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.ratio import Ratio
from bench.share.jobs import Job, node, run
from bench.share.setting import EPOCHS, STEP_MS, Setting, keep_best, numbers, say

COUNTS = (1, 2, 4, 9)


def measure(setting: Setting) -> dict[str, Any]:
    """Run each number of jobs with a node of its own."""
    found: dict[str, Any] = {}
    for _ in range(setting.runs):
        for count in COUNTS:
            with node(setting.cache) as serving:
                jobs = [Job("shared", step_ms=STEP_MS, epochs=EPOCHS)] * count
                new = numbers(run(setting.folder, setting.cache, jobs, serving))
            say(f"{count} jobs", new)
            keep_best(found, str(count), new)
    return found


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """N jobs cost as much as one, and each is as fast as alone."""
    one = found["1"]
    for count in COUNTS[1:]:
        many = found[str(count)]
        for name in ("read_bytes", "node_cpu_seconds"):
            yield Ratio(f"{count} jobs: {name} / those of one", many[name] / one[name], "at most", 1.05)
        share = many["samples_per_second"] / one["samples_per_second"] / count
        yield Ratio(f"{count} jobs: samples/s / {count} times those of one", share, "at least", 0.95)
