"""Orders of delivery other than the sampler's own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from feedline.arguments import short
from feedline.errors import PlanError
from feedline.paths import optional_path

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Planned:
    """Deliver slow samples later, in an order computed before the epoch; made by :func:`planned`.

    >>> fl.planned(max_displacement=8)
    Planned(max_displacement=8, costs=None)
    """

    max_displacement: int | None = None
    costs: Path | None = None


@dataclass(frozen=True)
class Arrival:
    """Deliver the samples that are ready first; made by :func:`arrival`.

    >>> fl.arrival(max_displacement=8)
    Arrival(log=None, replay=None, max_displacement=8)
    """

    log: Path | None = None
    replay: Path | None = None
    max_displacement: int | None = None


Order = Literal["strict"] | Planned | Arrival


def planned(*, max_displacement: int | None = None, costs: Path | None = None) -> Planned:
    """Deliver slow samples later, in an order that a simulation computes before the epoch.

    The order depends on the plan and the seed alone, so it is the same on every machine.

    Args:
        max_displacement: the most places that a sample may come later than in the sampler's order. The default is 16
            batches.
        costs: a file of measured costs, which :meth:`feedline.Loader.save_costs` writes. Without it the engine
            estimates the cost of a sample from its bytes and its random draws.

    >>> loader = fl.Loader(fl.synthetic(64, (2,)), batch_size=4, order=fl.planned(max_displacement=8))
    """
    return Planned(max_displacement, costs)


def arrival(*, log: Path | None = None, replay: Path | None = None, max_displacement: int | None = None) -> Arrival:
    """Deliver the samples that are ready first.

    No two runs are alike. Each sample still comes once per epoch, and a resumed run delivers exactly those that are
    left.

    Args:
        log: a file in which the loader writes the samples of each batch. A resumed run appends to it.
        replay: such a file. The loader delivers the stream that the file describes.
        max_displacement: the most places that a sample may come later or earlier than in the sampler's order. The
            default is 16 batches.

    >>> loader = fl.Loader(fl.synthetic(64, (2,)), batch_size=4, order=fl.arrival(max_displacement=8))
    """
    return Arrival(log, replay, max_displacement)


def to_plan(order: Order) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of the stream and of the run for an order."""
    if isinstance(order, Planned):
        costs = optional_path(order.costs)
        return {"order": "planned", "max_displacement": order.max_displacement, "costs": costs}, {}
    if isinstance(order, Arrival):
        replay, log = optional_path(order.replay), optional_path(order.log)
        stream = {"order": "arrival", "max_displacement": order.max_displacement, "replay": replay}
        return stream, {"arrival_log": log}
    if order != "strict":
        raise PlanError(f'order is {short(order)}; it must be "strict", fl.planned(...) or fl.arrival(...)')
    return {"order": order}, {}
