"""The arguments of a loader as the settings of a plan.

Python checks only its own classes, such as :class:`feedline.Reservoir`. The engine checks all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from feedline import environment
from feedline import order as orders
from feedline import sampler as samplers
from feedline import shuffle as shuffles
from feedline.arguments import short
from feedline.errors import PlanError
from feedline.policy import Cache, Substitute
from feedline.tuning import Tuning

Settings = dict[str, Any]


def of_stream(
    *,
    batch_size: int,
    shuffle: bool | shuffles.Reservoir,
    sampler: samplers.Sampler | None,
    seed: int,
    drop_last: bool,
    order: orders.Order,
    on_error: Literal["raise"] | Substitute,
    fields: Sequence[str] | None,
    ragged: Sequence[str],
) -> Settings:
    """Return the settings that decide the stream."""
    if on_error != "raise" and not isinstance(on_error, Substitute):
        raise PlanError(f'on_error is {short(on_error)}; it must be "raise" or fl.substitute(max_fraction=...)')
    stream, _ = orders.to_plan(order)
    return _given(
        stream
        | {
            "batch_size": batch_size,
            "shuffle": shuffles.to_plan(shuffle),
            "sampler": None if sampler is None else samplers.to_plan(sampler),
            "seed": seed,
            "drop_last": drop_last,
            "on_error": vars(on_error) if isinstance(on_error, Substitute) else on_error,
            "fields": fields,
            "ragged": ragged,
        },
        required=("batch_size", "seed", "drop_last", "ragged"),
    )


def of_run(
    *,
    num_workers: int | Literal["auto"],
    memory_budget: int | str | None,
    cache: Cache | None,
    order: orders.Order,
    tuning: Tuning | None,
) -> Settings:
    """Return the settings that decide how the stream is produced."""
    if cache is not None and not isinstance(cache, Cache):
        raise PlanError(f'cache is {short(cache)}; create it with fl.cache(ram="4GB")')
    if cache is not None and cache.disk is not None and environment.cache_folder() is None:
        raise PlanError("cache(disk=...) keeps samples in the cache folder, but FEEDLINE_CACHE is empty")
    if tuning is not None and not isinstance(tuning, Tuning):
        raise PlanError(f"tuning is {short(tuning)}; create it with fl.tuning(prefetch_batches=4)")
    _, run = orders.to_plan(order)
    return _given(
        run
        | vars(tuning or Tuning())
        | {
            "num_workers": num_workers,
            "memory_budget": memory_budget,
            "cache": None if cache is None else _given(vars(cache)),
        },
        required=("num_workers",),
    )


def _given(settings: Settings, required: Sequence[str] = ()) -> Settings:
    """Leave out settings without a value, and convert NumPy numbers to Python numbers."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in settings.items()
        if value is not None or name in required
    }
