"""Sharing: samples are prepared once for all jobs of a machine."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from typing import Literal

from feedline import _feedline, environment
from feedline.errors import PlanError

_log = logging.getLogger("feedline")


@dataclass(frozen=True)
class Share:
    """Get samples from the node of this machine; made by :func:`share`.

    >>> fl.share(on_loss="raise").on_loss
    'raise'
    """

    socket: str | None
    on_loss: Literal["continue", "raise"]
    weight: float


_MIN_WEIGHT, _MAX_WEIGHT = 0.001, 1000


def share(
    socket: str | os.PathLike[str] | None = None,
    on_loss: Literal["continue", "raise"] = "continue",
    weight: float = 1.0,
) -> Share:
    """Get samples from the node of this machine, which prepares them once for all its jobs.

    Jobs share samples if they have the same source, ops and fields. ``Loader(..., share=True)`` means
    ``share=fl.share()``. Without a ``socket``, the job uses the node of the user. If there is none, the job starts one
    in the background, which ends with its last job. If the node is lost, ``on_loss`` decides: the job continues alone
    from what it has received, or it raises :class:`feedline.NodeError`. A named node that does not exist, or that ends
    while the job attaches, counts as lost. If a node refuses the job, the job raises in any case.

    If the cores do not suffice for all jobs, they are divided by ``weight``: a job with weight 2 gets twice as much as
    one with weight 1. Jobs that share their samples count together, with the weight of the heaviest of them. While the
    cores suffice, weights change nothing.

    With ``world_size`` above 1, the node prepares the share of each rank on this machine. Every rank gets the batches
    that it would prepare itself, in the same order. Its state has the same format as without a node.

    >>> loader = fl.Loader(fl.folder("data/train"), [ops.DecodeImage(), ops.Resize((64, 64))], batch_size=64,
    ...                    shuffle=True, share=fl.share(on_loss="raise"))
    """
    if on_loss not in ("continue", "raise"):
        raise PlanError(f'share(): on_loss is {on_loss!r}; it must be "continue" or "raise"')
    is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not is_number or not _MIN_WEIGHT <= weight <= _MAX_WEIGHT:
        raise PlanError(f"share(): weight is {weight!r}; it must be a number from {_MIN_WEIGHT} to {_MAX_WEIGHT}")
    return Share(None if socket is None else os.path.expanduser(os.fspath(socket)), on_loss, float(weight))


def as_share(value: bool | str | os.PathLike[str] | Share) -> Share | None:
    """Convert the argument of ``Loader(..., share=value)``. ``None`` means that the loader prepares its own samples."""
    if isinstance(value, Share):
        return value
    if isinstance(value, bool):
        return share() if value else None
    if isinstance(value, (str, os.PathLike)):
        return share(value)
    raise PlanError(f"share is {value!r}; it must be True, the path of a node's socket, or fl.share(...)")


def open_loader(plan: _feedline.Plan, wanted: Share | None) -> _feedline.Loader:
    """Open the stream of a plan: from a node if requested and possible, otherwise in this process."""
    _, world_size = plan.rank
    machine = environment.machine(world_size)
    if wanted is None:
        return _feedline.Loader(plan, machine)
    # Some plans cannot be shared, for example with ops.Map. The job then works alone, with a warning.
    if plan.unshared is not None:
        _log.warning("share: this loader prepares its samples itself: %s", plan.unshared)
        return _feedline.Loader(plan, machine)
    what = "num_workers" if world_size > 1 else "seed, num_workers"
    _log.info("share: samples come from a node; %s and memory_budget of this loader do not apply", what)
    socket, command = wanted.socket, None
    if socket is None:
        socket = environment.node_socket()
        # The same interpreter, so that the node has the same version as this job.
        command = [sys.executable, "-m", "feedline", "node", "--until-idle", "--socket", socket]
    return _feedline.Loader.shared(plan, machine, socket, command, wanted.on_loss == "continue", wanted.weight)
