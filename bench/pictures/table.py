"""Prints the figures of a row, and makes the document that is written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bench import harness
from bench.pictures.rows import ROWS, ratios
from bench.pictures.setting import Setting
from bench.ratio import Ratio
from bench.torch_loader.table import build, commit, versions

COLUMNS = {
    "samples_per_second": "images/s",
    "slowest_run": "slowest run",
    "cpu_ms_per_sample": "CPU ms",
    "peak_mb": "peak MB",
    "first_batch_seconds": "first s",
}


def show(name: str, results: Mapping[str, Any]) -> None:
    """Print one row: a line for each contender."""
    print(f"\n{name}: {ROWS[name].title}")
    print(f"{'':28}" + "".join(f"{title:>13}" for title in COLUMNS.values()))
    for contender, figures in results.items():
        cells = (f"{figures[column]:13.5g}" if column in figures else f"{'':13}" for column in COLUMNS)
        others = (f" {key} {figures[key]:.5g}" for key in figures if key not in COLUMNS and len(figures) < 4)
        print(f"{contender:28}" + "".join(cells) + "".join(others))


def show_ratios(found: list[Ratio], failures: Mapping[str, str]) -> None:
    """Print all figures with their targets, and what failed."""
    print()
    for ratio in found:
        value = "-" if ratio.value is None else f"{ratio.value:.3f}"
        print(f"{ratio.name:100} {value:>12}  {ratio.verdict}")
    for what, why in failures.items():
        print(f"{what}: {why}")


def document(results: dict[str, Any], setting: Setting, before: Mapping[str, Any]) -> dict[str, Any]:
    """The complete result. Rows that were not measured now are taken from the document `before`."""
    rows = {**before.get("results", {}), **results}
    rows = {name: rows[name] for name in ROWS if name in rows}
    kept = {what: why for what, why in before.get("failures", {}).items() if what.split(",")[0] not in results}
    # Rows may be of different days and builds, so each has its own origin.
    origin = {"time": time.strftime("%Y-%m-%d %H:%M"), "commit": commit(), "build": build(), "runs": setting.runs}
    origins = {**before.get("setup", {}).get("rows", {}), **dict.fromkeys(results, origin)}
    return {
        "setup": {**harness.setup(), **versions(), "rows": {name: origins.get(name, {}) for name in rows}},
        "results": rows,
        "ratios": {ratio.name: ratio.value for ratio in ratios(rows)},
        "failures": {**kept, **setting.failures},
    }
