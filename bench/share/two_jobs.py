"""The first experiment of the paper: two jobs that share against two separate ones, on one disk.

A simulated hard disk with one head (8 ms a seek, 150 MB/s), so that reading is the bound and its time means something:
files of the machine lie in the page cache. I/O time is the time until both jobs have had their epochs, as the disk is
never idle; time that threads spend in reads is given as well, but grows with the number of threads that queue.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.ratio import Ratio
from bench.share.jobs import Job, node, run
from bench.share.setting import EPOCHS, Setting, say
from feedline import testing

SEEK_MS, MB_PER_SECOND, BATCH = 8.0, 150.0, 32
# The paper reports 47 % less of both.
PAPER = 1 - 0.47


def disk_seconds(reads: int, read_bytes: int) -> float:
    """Give how long the disk is busy, if no two reads follow each other on it."""
    return reads * SEEK_MS / 1e3 + read_bytes / (MB_PER_SECOND * 1e6)


def figures(seconds: float, stores: list[dict[str, Any]]) -> dict[str, float]:
    """Give what stores counted together, and how busy the disk was."""
    reads, read_bytes = (sum(store[name] for store in stores) for name in ("reads", "bytes"))
    return {
        "io_seconds": seconds,
        "reads": reads,
        "read_bytes": read_bytes,
        "thread_seconds_in_reads": sum(store["busy_seconds"] for store in stores),
        "disk_busy": disk_seconds(reads, read_bytes) / seconds,
    }


def _separate(disk: str, cache: Path, epochs: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.share.pair", disk, str(BATCH), str(epochs)]
    environment = {**os.environ, "FEEDLINE_CACHE": str(cache)}
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    found = json.loads(told)
    return figures(found["seconds"], found["stores"])


def _shared(disk: str, cache: Path, epochs: int) -> dict[str, float]:
    with node(cache) as serving:
        outcome = run(disk, cache, [Job("shared", BATCH, epochs=epochs)] * 2, serving)
    return figures(outcome.seconds, [outcome.node["runs"][0]["engine"]["store"]])


def measure(setting: Setting, epochs: int = EPOCHS) -> dict[str, Any]:
    """Run both ways alternately; the run with the least I/O time of each counts."""
    found: dict[str, Any] = {}
    disk = testing.slow_disk(setting.pictures, seek_ms=SEEK_MS, mb_per_second=MB_PER_SECOND)
    # Seek indexes of the files on this disk.
    run(disk, setting.cache, [Job("own", BATCH, epochs=1)])
    for _ in range(setting.runs):
        for title, way in (("separate", _separate), ("shared", _shared)):
            new = way(disk, setting.cache, epochs)
            say(f"2 jobs on a disk, {title}", new)
            if title not in found or new["io_seconds"] < found[title]["io_seconds"]:
                found[title] = new
    return found


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """Reads and read time with sharing, relative to separate jobs."""
    shared, separate = found["shared"], found["separate"]
    for name, title in (("reads", "reads"), ("read_bytes", "bytes read"), ("io_seconds", "I/O time")):
        value = shared[name] / separate[name]
        yield Ratio(f"2 jobs on a disk: {title}, shared / separate", value, "at most", PAPER)
