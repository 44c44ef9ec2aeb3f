"""What attaching costs a job: the time of `next()` when a batch is there, and memory.

A batch is 38 MB (64 x 3 x 224 x 224 float32). Batches that begin a segment are apart: with them comes the memory of
all those that follow in it, which is mapped. Memory of the job is what it has beyond an interpreter with NumPy; pages
of segments, which are the node's, are counted apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.ratio import Ratio
from bench.share.jobs import node
from bench.share.setting import STEP_MS, Setting, say

BATCH, EPOCHS = 64, 6
MICROSECONDS, MEGABYTES = 200, 60


def _attached(cache: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.share.attached", *arguments]
    environment = {**os.environ, "FEEDLINE_CACHE": str(cache)}
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    found: dict[str, Any] = json.loads(told)
    return found


def spread(micros: list[float]) -> dict[str, float]:
    """Give the median and the 99th percentile: the least time that 99 of 100 do not exceed."""
    ordered = sorted(micros)
    return {
        "median_us": median(ordered),
        "p99_us": ordered[-(-99 * len(ordered) // 100) - 1],
        "most_us": ordered[-1],
        "batches": len(ordered),
    }


def beyond(job: dict[str, int], interpreter: dict[str, int]) -> dict[str, float]:
    """Give the memory of a job beyond that of an interpreter in megabytes, views apart."""
    return {
        "rss_mb": (job["rss"] - job["view_rss"] - interpreter["rss"]) * 1024 / 1e6,
        "private_mb": (job["private"] - job["view_private"] - interpreter["private"]) * 1024 / 1e6,
        "views_mb": job["view_rss"] * 1024 / 1e6,
        "views_private_mb": job["view_private"] * 1024 / 1e6,
        "interpreter_mb": interpreter["rss"] * 1024 / 1e6,
    }


def measure(setting: Setting) -> dict[str, Any]:
    """Run one job several times; the one with the least median counts."""
    interpreter = _attached(setting.cache)["memory_kb"]
    best: dict[str, Any] = {}
    for _ in range(setting.runs):
        with node(setting.cache) as serving:
            given = str(setting.folder), str(serving.socket), str(BATCH), str(STEP_MS), str(EPOCHS)
            told = _attached(setting.cache, *given)
        new = {
            "batch_bytes": told["batch_bytes"],
            "ready": spread(told["within"]),
            "first_of_segment": spread(told["first"]),
            "memory": beyond(told["memory_kb"], interpreter),
        }
        say("hand-over, batch ready", new["ready"])
        say("hand-over, first of a segment", new["first_of_segment"])
        say("memory of a job", new["memory"])
        if not best or new["ready"]["median_us"] < best["ready"]["median_us"]:
            best = new
    return best


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """Hand-over is quick, and a job small."""
    ready = found["ready"]
    yield Ratio("hand-over of a batch that is ready, median, us", ready["median_us"], "at most", MICROSECONDS)
    yield Ratio("hand-over of a batch that is ready, p99, us", ready["p99_us"], "at most", MICROSECONDS)
    yield Ratio("memory of a job beyond the interpreter, MB", found["memory"]["rss_mb"], "at most", MEGABYTES)
