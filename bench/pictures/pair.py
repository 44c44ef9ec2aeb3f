"""Two kinds of jobs on too few cores: pictures and volumes on one node, as in `bench.share`, without steps.

First each alone and both together. Then both together, and one of them has twice the weight: the cores that the node
used for each are compared, because the speed of a job also depends on what the other does to the caches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from bench.pictures.setting import Setting
from bench.ratio import Ratio
from bench.share import mixed
from bench.share import setting as share

ROW = "pair"
QUICK_SECONDS = 2.0
HEAVY = 2.0
"""The weight of the heavier job."""


def measure(setting: Setting) -> dict[str, Any]:
    """Each job alone and both together: the best of all runs. Then with weights: the mean of all runs."""
    seconds = QUICK_SECONDS if setting.is_quick else mixed.WINDOW_SECONDS
    with tempfile.TemporaryDirectory(prefix="pair-", dir=setting.work) as root:
        shared = share.Setting.of(setting.pictures.resolve(), Path(root), setting.runs)
        race = mixed.Mixed(shared, seconds)
        found: dict[str, Any] = {}
        cores: dict[str, list[float]] = {work: [] for work in mixed.WORKS}
        for _ in range(setting.runs):
            race.race(mixed.FREE, dict.fromkeys(mixed.WORKS, 0.0), found)
            for heavy, ratios in cores.items():
                used = race.cores({heavy: HEAVY})
                (light,) = (work for work in mixed.WORKS if work != heavy)
                ratios.append(used[heavy] / used[light])
                share.say(f"cores, {heavy} with weight {HEAVY:g}", used)
    case: dict[str, Any] = found[mixed.FREE]
    return {**case, "cores_of_heavy_to_light": {heavy: mean(ratios) for heavy, ratios in cores.items()}}


def ratios(results: dict[str, Any]) -> Iterator[Ratio]:
    """The sum of both shares of the speed alone, and how well weights are honoured."""
    shares = mixed.shares(results) if results else {}
    yield Ratio("saturated pair: sum of both shares", sum(shares.values()) if shares else None, "at least", 0.95)
    for work, found in results.get("cores_of_heavy_to_light", {}).items():
        what = f"saturated pair: cores of {work} with weight {HEAVY:g}, off from {HEAVY:g} times the other's"
        yield Ratio(what, abs(found / HEAVY - 1), "at most", 0.1)
