"""Builds each loader over a dataset. All deliver batches in the order of the sampler.

In: a dataset and the name of a contender. Out: an iterable of batches for many epochs. Its workers stay between
epochs. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

SPDL, SPDL_THREADS = "spdl", "spdl-threads"


@dataclass(frozen=True)
class Order:
    """What a loader is asked for."""

    batch_size: int
    workers: int = 2
    collate: Callable[[Any], Any] | None = None
    start_method: str | None = None
    """None takes the loader's default, which is fork in these programs."""
    is_shuffled: bool = True


def needs_spdl(contender: str) -> bool:
    """Whether the contender runs in the environment of SPDL."""
    return contender in (SPDL, SPDL_THREADS)


FEEDLINE: dict[str, dict[str, Any]] = {
    "feedline": {},
    "feedline-unseeded": {"seeding": None},
    "feedline-python": {"native": False},
    "feedline-cached": {"cache": {"ram": "2GB"}},
}
"""Arguments of feedline.torch.DataLoader by contender. Those of `fl.cache` are a dict: SPDL runs without Feedline."""


def make(contender: str, dataset: Any, order: Order) -> Iterable[Any]:
    """Build the loader of a contender: `torch`, one of `FEEDLINE`, `spdl` or `spdl-threads`."""
    if needs_spdl(contender):
        from bench.torch_loader.spdl_loader import SpdlLoader

        return SpdlLoader(dataset, order, has_processes=contender == SPDL)
    arguments: dict[str, Any] = {
        "batch_size": order.batch_size,
        "shuffle": order.is_shuffled,
        "num_workers": order.workers,
        "collate_fn": order.collate,
        "persistent_workers": True,
        "multiprocessing_context": order.start_method,
    }
    if contender == "torch":
        from torch.utils.data import DataLoader

        return DataLoader(dataset, **arguments)
    import feedline.torch

    own = dict(FEEDLINE[contender])
    if "cache" in own:
        own["cache"] = feedline.cache(**own["cache"])
    return feedline.torch.DataLoader(dataset, **arguments, **own)
