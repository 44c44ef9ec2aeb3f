"""Two kinds of jobs on too few cores: pictures and volumes on one node, as in `bench.share`, without steps."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.pictures.setting import Setting
from bench.ratio import Ratio
from bench.share import mixed
from bench.share import setting as share

ROW = "pair"
QUICK_SECONDS = 2.0


def measure(setting: Setting) -> dict[str, Any]:
    """Each job alone and both together; the best of all runs."""
    seconds = QUICK_SECONDS if setting.is_quick else mixed.WINDOW_SECONDS
    with tempfile.TemporaryDirectory(prefix="pair-", dir=setting.work) as root:
        shared = share.Setting.of(setting.pictures.resolve(), Path(root), setting.runs)
        race = mixed._Mixed(shared, seconds)
        found: dict[str, Any] = {}
        for _ in range(setting.runs):
            race.race(mixed.FREE, dict.fromkeys(mixed.WORKS, 0.0), found)
    case: dict[str, Any] = found[mixed.FREE]
    return case


def ratios(results: dict[str, Any]) -> Iterator[Ratio]:
    """The sum of both shares of the speed alone."""
    shares = mixed.shares(results) if results else {}
    yield Ratio("saturated pair: sum of both shares", sum(shares.values()) if shares else None, "at least", 0.95)
