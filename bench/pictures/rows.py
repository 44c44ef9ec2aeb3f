"""All rows of the benchmark, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.pictures import cold, files, first_epoch, pair, small
from bench.pictures.setting import Setting
from bench.ratio import Ratio


@dataclass(frozen=True)
class Row:
    """A part of the benchmark: how it is measured, and which targets it has."""

    title: str
    measure: Callable[[Setting], dict[str, Any]]
    ratios: Callable[[dict[str, Any]], Iterable[Ratio]]


ROWS: dict[str, Row] = {
    **{
        workload.name: Row(workload.title, partial(files.measure, workload), partial(files.ratios, workload))
        for workload in files.WORKLOADS
    },
    first_epoch.ROW: Row("first epoch, two threads", first_epoch.measure, first_epoch.ratios),
    small.PICTURES: Row(
        "32x32 from an array: RandomCrop(32, padding=4), flip, normalise", small.measure_pictures, small.picture_ratios
    ),
    small.ROWS: Row("rows of 8 bytes, batch 1024, two threads", small.measure_rows, small.row_ratios),
    cold.ROW: Row("training with a cold page cache, two threads and auto", cold.measure, cold.ratios),
    pair.ROW: Row("pictures and volumes on one node, too few cores", pair.measure, pair.ratios),
}


def ratios(results: dict[str, Any]) -> list[Ratio]:
    """The figures of all rows that were measured, with their targets."""
    found = [ratio for name, row in ROWS.items() if name in results for ratio in row.ratios(results[name])]
    return [*found, *files.colour_ratios(results)] if "colour" in results else found
