"""All parts of the benchmark, each a module that says what it measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.ratio import Ratio
from bench.share import cores, equal, handover, mixed, tensor_socket, thirty_five, two_jobs, unequal
from bench.share.setting import Setting


@dataclass(frozen=True)
class Part:
    """A measurement and its figures."""

    measure: Callable[[Setting], dict[str, Any]]
    ratios: Callable[[dict[str, Any]], Iterator[Ratio]]


PARTS = {
    "equal": Part(equal.measure, equal.ratios),
    "cores": Part(cores.measure, cores.ratios),
    "unequal": Part(unequal.measure, unequal.ratios),
    "tensorsocket": Part(tensor_socket.measure, tensor_socket.ratios),
    "two_jobs": Part(two_jobs.measure, two_jobs.ratios),
    "thirty_five": Part(thirty_five.measure, thirty_five.ratios),
    "mixed": Part(mixed.measure, mixed.ratios),
    "handover": Part(handover.measure, handover.ratios),
}


def ratios(results: dict[str, Any]) -> Iterator[Ratio]:
    """Give all figures that can be computed from the parts that are there."""
    for name, part in PARTS.items():
        if name in results:
            yield from part.ratios(results[name])
