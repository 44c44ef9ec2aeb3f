"""Which share of the data this process gets: its rank among the processes that divide an epoch.

In order of precedence: arguments (``rank`` and ``world_size``, or ``mesh``), the process group of torch or JAX if the
program has initialised one, the environment of a launcher. Nothing here imports torch or JAX: a program that uses a
process group has imported it already.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from feedline import environment
from feedline.arguments import whole
from feedline.errors import PlanError

_log = logging.getLogger("feedline")

_MOST_RANKS = 2**31 - 1


@dataclass(frozen=True)
class Placement:
    """This process is ``rank`` of ``world_size``."""

    rank: int
    world_size: int

    def __iter__(self) -> Any:
        """Unpack as ``rank, world_size``."""
        return iter((self.rank, self.world_size))


ALONE = Placement(0, 1)
"""A job of one process."""


def given(rank: int | None, world_size: int | None, mesh: Any) -> Placement | None:
    """Give the placement that the arguments name; ``None`` if they name none."""
    if mesh is not None:
        if rank is not None or world_size is not None:
            raise PlanError("give mesh, or rank and world_size, not both")
        return _of_mesh(mesh)
    if rank is None and world_size is None:
        return None
    if rank is None or world_size is None:
        raise PlanError("give both rank and world_size, or neither")
    return Placement(whole("rank", rank, 0, most=_MOST_RANKS), whole("world_size", world_size, 1, most=_MOST_RANKS))


def found() -> Placement:
    """Give the placement of this process by its process group, or else by its launcher.

    The process group decides. A launcher that started another number of processes than the group has is an error,
    since then one of the two is not what the user believes.
    """
    group, launched = _process_group(), environment.launched_rank()
    if group is None:
        if launched is None:
            return ALONE
        launcher, rank, world_size = launched
        return _announced(f"the environment of {launcher}", rank, world_size)
    library, rank, world_size = group
    if launched is not None and launched[2] > 1 and launched[2] != world_size:
        launcher, _, started = launched
        raise PlanError(
            f"the process group of {library} has {world_size} processes, but {launcher} started {started}; "
            f"give rank and world_size to the Loader"
        )
    return _announced(f"the process group of {library}", rank, world_size)


def _announced(origin: str, rank: int, world_size: int) -> Placement:
    placement = Placement(rank, world_size)
    if world_size > 1:
        _announce(origin, placement)
    return placement


@functools.lru_cache(maxsize=64)
def _announce(origin: str, placement: Placement) -> None:
    """Say once what the user did not ask for."""
    _log.warning(
        "this process gets the data of rank %d of %d, found in %s; rank=0, world_size=1 gives it all data",
        placement.rank,
        placement.world_size,
        origin,
    )


def _process_group() -> tuple[str, int, int] | None:
    """Give the library, the rank and the world size of the process group, if the program has initialised one."""
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return "torch.distributed", torch.get_rank(), torch.get_world_size()
    jax = sys.modules.get("jax")
    distributed = getattr(jax, "distributed", None)
    is_initialized = getattr(distributed, "is_initialized", None)
    if jax is not None and is_initialized is not None and is_initialized():
        return "jax.distributed", jax.process_index(), jax.process_count()
    return None


def _of_mesh(mesh: Any) -> Placement:
    """Give the place of this process in the data-parallel dimension of a torch DeviceMesh."""
    mesh, names = mesh if isinstance(mesh, tuple) and len(mesh) == 2 else (mesh, None)
    if not all(hasattr(mesh, name) for name in ("get_local_rank", "size", "mesh_dim_names")):
        raise PlanError(
            f"mesh is {type(mesh).__name__}; it is a torch DeviceMesh of one dimension, such as mesh['dp'], "
            f"or (mesh, 'dp') with the name of the data-parallel dimension"
        )
    has = tuple(mesh.mesh_dim_names or ())
    if names is None:
        if mesh.ndim != 1:
            raise PlanError(f"mesh has the dimensions {has}; name the data-parallel one: mesh=(mesh, {has[:1]!r})")
        return Placement(mesh.get_local_rank(), mesh.size())
    chosen = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Sequence) else ()
    if not chosen or not set(chosen) <= set(has):
        raise PlanError(f"mesh has the dimensions {has}, not {names!r}")
    # Several dimensions, such as replicas of shards, count like the digits of a number, the last one fastest.
    rank, world_size = 0, 1
    for name in chosen:
        part = mesh[name]
        rank, world_size = rank * part.size() + part.get_local_rank(), world_size * part.size()
    return Placement(rank, world_size)
