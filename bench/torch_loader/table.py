"""Prints the figures of a row, and makes the document that is written.

In: results by row. Out: text, and the same shape of JSON as other benchmarks: set-up, results, ratios, failures.
"""

from __future__ import annotations

import hashlib
import importlib.util
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench import harness
from bench.torch_loader.rows import ROWS
from bench.torch_loader.setting import SPDL_ENVIRONMENT, Setting

PACKAGES = ("feedline", "torch", "torchvision", "numpy", "pillow", "pyarrow")
COLUMNS = {
    "samples_per_second": "samples/s",
    "speed_ratio": "x torch",
    "cpu_us_per_sample": "CPU us",
    "cpu_ratio": "CPU / torch",
    "first_samples_per_second": "first/s",
    "use": "use",
    "bound": "bound",
    "median_ms": "median ms",
    "p90_ms": "p90 ms",
    "first_loader_ms": "first ms",
    "later_loader_ms": "later ms",
    "pss_mb": "PSS MB",
}
"""The figures that are printed. The JSON has them all."""


def show(name: str, results: Mapping[str, Any], failures: Mapping[str, str]) -> None:
    """Print one row: a line for each contender, then the ratios with their targets."""
    lines = {contender: _against_torch(figures, results) for contender, figures in _lines(results)}
    print(f"\n{ROWS[name].title}")
    columns = [column for column in COLUMNS if any(column in figures for figures in lines.values())]
    print(f"{'':34}" + "".join(f"{COLUMNS[column]:>12}" for column in columns))
    for contender, figures in lines.items():
        cells = (f"{figures[column]:12.5g}" if column in figures else f"{'':12}" for column in columns)
        print(f"{contender:34}" + "".join(cells))
    for ratio in ROWS[name].ratios(dict(results)):
        value = "-" if ratio.value is None else f"{ratio.value:.3f}"
        print(f"{ratio.name:92} {value:>7}  {ratio.verdict}")
    for what, why in failures.items():
        print(f"{what}: {why}")


def _lines(results: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, float]]]:
    """Contenders with their figures; those of a row with parts have the part before their name."""
    for name, found in results.items():
        if any(isinstance(value, Mapping) for value in found.values()):
            yield from _lines(found, f"{name}: ")
        else:
            yield prefix + name, found


def _against_torch(figures: Mapping[str, float], results: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a row of speed, with the ratios against torch."""
    torch = results.get("torch")
    if torch is None or "samples_per_second" not in figures:
        return dict(figures)
    ratios = {
        "speed_ratio": figures["samples_per_second"] / torch["samples_per_second"],
        "cpu_ratio": figures["cpu_us_per_sample"] / torch["cpu_us_per_sample"],
    }
    return {**figures, **ratios}


def document(results: dict[str, Any], setting: Setting, before: Mapping[str, Any]) -> dict[str, Any]:
    """The complete result. Rows that were not measured now are taken from the document `before`."""
    rows = {**before.get("results", {}), **results}
    rows = {name: rows[name] for name in ROWS if name in rows}
    ratios = [ratio for name, found in rows.items() for ratio in ROWS[name].ratios(found)]
    kept = {what: why for what, why in before.get("failures", {}).items() if what.split(",")[0] not in results}
    # Rows may be of different days and builds, so each has its own origin.
    origin = {"time": time.strftime("%Y-%m-%d %H:%M"), "commit": commit(), "build": build(), "runs": setting.runs}
    origins = {**before.get("setup", {}).get("rows", {}), **dict.fromkeys(results, origin)}
    return {
        "setup": {**harness.setup(), **versions(), "rows": {name: origins.get(name, {}) for name in rows}},
        "results": rows,
        "ratios": {ratio.name: ratio.value for ratio in ratios},
        "failures": {**kept, **setting.failures},
    }


def versions() -> dict[str, str]:
    """Versions of the packages that take part, and of the kernel."""
    found = {"linux": platform.release(), "spdl-core": SPDL_ENVIRONMENT.packages[0].partition("==")[2]}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit that was measured."""
    command = ["git", "describe", "--always", "--dirty"]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    return answer.stdout.strip() or "unknown"


def build() -> str:
    """A hash of the compiled part of Feedline: the commit does not say what was built."""
    found = importlib.util.find_spec("feedline._feedline")
    if found is None or found.origin is None:
        return "unknown"
    return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()[:12]
