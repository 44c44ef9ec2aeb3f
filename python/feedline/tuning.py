"""Settings that change how a run executes, but no byte of its stream. Few programs need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Tuning:
    """How a run executes; made by :func:`tuning`.

    >>> fl.tuning(prefetch_batches=2).prefetch_batches
    2
    """

    prefetch_batches: int | None = None
    seek_index: Literal["auto", "never"] = "auto"
    start: Literal["least-slack", "first-come"] = "least-slack"
    offload: Literal["auto", "none", "all", "resize", "fastflow", "sophon"] = "auto"


def tuning(
    *,
    prefetch_batches: int | None = None,
    seek_index: Literal["auto", "never"] = "auto",
    start: Literal["least-slack", "first-come"] = "least-slack",
    offload: Literal["auto", "none", "all", "resize", "fastflow", "sophon"] = "auto",
) -> Tuning:
    """Set what the engine otherwise decides itself. The stream stays the same.

    Args:
        prefetch_batches: batches prepared ahead. By default the engine prepares as many as are useful and fit into
            memory.
        seek_index: ``"auto"`` uses the seek indexes of pictures that are decoded and cropped, and builds the missing
            ones in the first epoch. ``"never"`` does neither.
        start: ``"least-slack"`` starts slow samples early, so that they do not hold up a batch. ``"first-come"``
            starts samples in the order of the stream.
        offload: how much a storage server prepares of samples that come from one (``feedline://...``). ``"auto"``
            decides for each sample, and only while the link is the bottleneck. ``"none"`` sends the stored bytes.
            ``"all"``, ``"resize"``, ``"fastflow"`` and ``"sophon"`` are published policies, for comparison.

    >>> loader = fl.Loader(fl.synthetic(64, (2,)), batch_size=4, tuning=fl.tuning(prefetch_batches=2))
    """
    return Tuning(prefetch_batches, seek_index, start, offload)
