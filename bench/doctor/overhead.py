"""What counting costs, on the fastest pipeline: the meters that are always on, and a timeline of every sample."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

from bench.ratio import Ratio

COMMAND = ["cargo", "run", "--release", "--quiet", "-p", "feedline-core", "--example", "meter_cost"]


def measure(runs: int) -> dict[str, Any]:
    """Run the example; the least of each counts."""
    told = [json.loads(subprocess.run(COMMAND, check=True, stdout=subprocess.PIPE).stdout) for _ in range(runs)]
    return {name: min(found[name] for found in told) for name in told[0]}


def ratios(found: dict[str, Any]) -> Iterator[Ratio]:
    """Shares of the processor time of a sample."""
    yield Ratio("meters that are always on, share of a sample's processor time", found["meters_share"], "at most", 0.01)
    yield Ratio("a timeline of every sample adds", found["timeline_share"], "at most", 0.03)
