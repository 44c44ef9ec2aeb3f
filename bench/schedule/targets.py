"""What least slack is to reach, and whether it does.

In: the medians of all loaders in all scenarios, by title. Out: ratios with their targets, for the scenarios that were
measured. Use is compared with the bound, which no loader with these workers can exceed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bench.ratio import Ratio
from bench.schedule.loaders import FIRST_COME, IN_ORDER, OURS, OUT_OF_ORDER

Medians = Mapping[str, Mapping[str, Any]]
Results = Mapping[str, Medians]

# What part of the bound is to be used, by the beginning of the title; the first that fits counts.
OF_THE_BOUND = {
    "bimodal": 0.98,
    "heavy tail, 256 slots": None,
    "heavy tail": 0.95,
    "redrawn": 0.9,
    "KiTS19": 0.95,
    "": 0.98,
}
UNIFORM_CPU = 1.02


def of_scenario(title: str, medians: Medians) -> list[Ratio]:
    """All ratios of one scenario."""
    ours = medians[OURS]

    def use(other: str, target: float) -> Ratio:
        return Ratio(f"{title}: use / {other}", ours["use"] / medians[other]["use"], "at least", target)

    found = []
    part = next(part for start, part in OF_THE_BOUND.items() if title.startswith(start))
    if part is not None:
        found.append(Ratio(f"{title}: use / bound", ours["use"] / ours["bound"], "at least", part))
    if title.startswith("heavy tail, 256 slots"):
        found.append(use(FIRST_COME, 1.6))
    if title.startswith("heavy tail"):
        found.append(use(IN_ORDER, 2.5))
    if title.startswith("KiTS19"):
        saved = 1 - ours["seconds"] / medians[IN_ORDER]["seconds"]
        found.append(Ratio(f"{title}: time saved against {IN_ORDER}", saved, "at least", 0.3))
    if title.startswith("bimodal") or re.match(r"\d+ % slow", title):
        found += [use(IN_ORDER, 1.0), use(OUT_OF_ORDER, 1.0)]
    return found


def of(results: Results, uniform: Mapping[str, Mapping[str, Any]]) -> list[Ratio]:
    """All ratios of a table, and that of uniform cost, whose value is None where it was not measured."""
    found = [ratio for title, medians in results.items() for ratio in of_scenario(title, medians)]
    cpu = [run["cpu_ms_per_sample"] for run in uniform.values()]
    value = cpu[0] / cpu[1] if len(cpu) == 2 else None
    return [*found, Ratio(f"uniform cost: CPU time / {FIRST_COME}", value, "at most", UNIFORM_CPU)]
