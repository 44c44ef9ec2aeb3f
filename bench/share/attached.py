"""A job that measures itself: `python -m bench.share.attached FOLDER SOCKET BATCH STEP_MS EPOCHS`.

Attaches to a node, reads with a step between batches, and says in one line of JSON how long each `next()` took, apart
for first batches of a segment, whose memory comes with them, and what memory it takes itself, before and after. With no
arguments it says what the interpreter takes with NumPy and no more.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# The same in both compared processes.
from bench import pipeline

# The kernel's name of memory that a node shares.
SEGMENT = re.compile(r"^[0-9a-f]+-[0-9a-f]+ .*memfd:")
ENTRY = re.compile(r"^(\w+):\s+(\d+) kB$")


def memory_kb(lines: Iterable[str]) -> dict[str, int]:
    """Give the memory of a process from its `smaps`: all of it, and of that, what are views of segments."""
    found = dict.fromkeys(("rss", "pss", "private", "view_rss", "view_private"), 0)
    is_view = False
    for line in lines:
        entry = ENTRY.match(line)
        if entry is None:
            # A line of flags ends the description of a mapping, one of addresses begins it.
            is_view = is_view if line.startswith("VmFlags") else SEGMENT.match(line) is not None
            continue
        name, kb = entry[1], int(entry[2])
        if name in ("Rss", "Pss"):
            found[name.lower()] += kb
        elif name in ("Private_Clean", "Private_Dirty"):
            found["private"] += kb
            found["view_private"] += kb if is_view else 0
        if name == "Rss" and is_view:
            found["view_rss"] += kb
    return found


def own_memory() -> dict[str, int]:
    """Give the memory of this process."""
    return memory_kb(Path("/proc/self/smaps").read_text().splitlines())


def place(start: int, end: int, lengths: Sequence[int]) -> str | None:
    """Say where samples `start..end` of an epoch lie whose segments have these lengths: `first`, `within` or across."""
    begin = 0
    for length in lengths:
        if begin <= start and end <= begin + length:
            return "first" if start == begin else "within"
        begin += length
    return None


def attached(folder: str, socket: str, batch: int, step_ms: float, epochs: int) -> dict[str, Any]:
    """Read as a job does; give times in microseconds, and memory while the last batch is held."""
    from bench.share import job, work
    from feedline import testing

    over = work.source("imagenet", folder)
    loader = work.loader("imagenet", over, "shared", socket, batch)
    segment = loader.state_dict()["segment_len"]
    found: dict[str, Any] = {"first": [], "within": []}
    for epoch in range(epochs):
        received, stream = 0, iter(loader)
        while received < len(over):
            began = time.perf_counter()
            one = next(stream)
            micros = 1e6 * (time.perf_counter() - began)
            size = len(one["index"])
            # The state is that of the next epoch once the last batch is received.
            order = loader.state_dict()["order"]
            lies = place(
                received, received + size, [min(segment, len(over) - segment * part["segment"]) for part in order]
            )
            received += size
            # In the first epoch nothing is produced yet.
            if epoch > 0 and lies is not None and size == batch:
                found[lies].append(micros)
            # Every page is read, as in training.
            float(one["image"].reshape(-1)[:: job.PAGE_VALUES].sum())
            testing.step(step_ms)
    return {**found, "batch_bytes": batch * one["image"][0].nbytes, "memory_kb": own_memory()}


def main() -> None:
    if len(sys.argv) == 1:
        print(json.dumps({"memory_kb": own_memory(), "numpy": np.__version__, "batch": pipeline.BATCH}))
        return
    folder, socket, batch, step_ms, epochs = sys.argv[1:]
    print(json.dumps(attached(folder, socket, int(batch), float(step_ms), int(epochs))))


if __name__ == "__main__":
    main()
