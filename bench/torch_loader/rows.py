"""All rows of the benchmark, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.ratio import Ratio
from bench.torch_loader import memory, slow_samples, speed, starts
from bench.torch_loader.setting import Setting
from bench.torch_loader.workloads import WORKLOADS


@dataclass(frozen=True)
class Row:
    """A part of the benchmark: how it is measured, and which targets it has."""

    title: str
    measure: Callable[[Setting], dict[str, Any]]
    ratios: Callable[[dict[str, Any]], list[Ratio]]


ROWS: dict[str, Row] = {
    **{
        workload.name: Row(
            f"{workload.title}, 2 workers", partial(speed.measure, workload), partial(speed.ratios, workload)
        )
        for workload in WORKLOADS
    },
    "slow": Row("10 % of the samples 20x slower, 4 workers, load 0.95", slow_samples.measure, slow_samples.ratios),
    "starts": Row("time to the first batch, 2 workers", starts.measure, starts.ratios),
    "memory": Row("1 GB of samples, 4 workers, one epoch, total PSS", memory.measure, memory.ratios),
}
