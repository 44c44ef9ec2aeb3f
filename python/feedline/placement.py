"""The rank of this process among the processes that divide an epoch.

It comes from the first of these that is there: arguments (``rank`` and ``world_size``, or ``mesh``), the process group
of torch or JAX, the environment of a launcher. Nothing here imports torch or JAX: a program that uses a process group
has imported them already.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from feedline import environment
from feedline.arguments import whole
from feedline.errors import PlanError

_log = logging.getLogger("feedline")

_MAX_RANKS = 2**31 - 1


@dataclass(frozen=True)
class Placement:
    """The rank of a process, and the number of processes."""

    rank: int
    world_size: int

    def __iter__(self) -> Any:
        """Unpack as ``rank, world_size``."""
        return iter((self.rank, self.world_size))


ALONE = Placement(0, 1)
"""A job of one process."""


def given(rank: int | None, world_size: int | None, mesh: Any) -> Placement | None:
    """Return the placement from the arguments; ``None`` if they are not set."""
    if mesh is not None:
        if rank is not None or world_size is not None:
            raise PlanError("give mesh, or rank and world_size, not both")
        return _of_mesh(mesh)
    if rank is None and world_size is None:
        return None
    if rank is None or world_size is None:
        raise PlanError("give both rank and world_size, or neither")
    return _checked(rank, world_size)


def likely() -> Placement:
    """Return the probable placement of this process, without logging.

    A plan is opened with it. The loader that runs the plan may decide otherwise, and logs its decision.
    """
    group, launched = _process_group(), environment.launched_rank()
    if group is not None or launched is not None:
        _, rank, world_size = group or launched or ("", 0, 1)
        # A wrong environment is reported when the loader is created, not here.
        if rank < world_size <= _MAX_RANKS:
            return Placement(rank, world_size)
    return ALONE


def has_process_group() -> bool:
    """Return whether the program has initialised a process group."""
    return _process_group() is not None


def found() -> Placement:
    """Return the placement of this process from its process group, or else from its launcher.

    The process group takes precedence. If the launcher started another number of processes, this raises:
    one of them is misconfigured.
    """
    group, launched = _process_group(), environment.launched_rank()
    if group is None:
        if launched is None:
            return ALONE
        launcher, rank, world_size = launched
        placement = _checked(rank, world_size)
        return _announced(f"the environment of {launcher}", placement)
    library, rank, world_size = group
    # A launcher's world size of 1 proves nothing: torchrun also sets it for a single process that starts its own group.
    if launched is not None and launched[2] > 1 and launched[2] != world_size:
        launcher, _, started = launched
        raise PlanError(
            f"the process group of {library} has {world_size} processes, but {launcher} started {started}; "
            f"give rank and world_size to the Loader"
        )
    return _announced(f"the process group of {library}", Placement(rank, world_size))


def _checked(rank: int, world_size: int) -> Placement:
    return Placement(whole("rank", rank, 0, most=_MAX_RANKS), whole("world_size", world_size, 1, most=_MAX_RANKS))


_announced_before: set[Placement] = set()


def _announced(origin: str, placement: Placement) -> Placement:
    """Warn once about a placement that the user did not ask for."""
    # Otherwise each loader of a program would repeat the message.
    if placement.world_size == 1 or placement in _announced_before:
        return placement
    _announced_before.add(placement)
    _log.warning(
        "this process gets the data of rank %d of %d, found in %s; pass rank=0, world_size=1 to give it all data",
        placement.rank,
        placement.world_size,
        origin,
    )
    return placement


def _process_group() -> tuple[str, int, int] | None:
    """Return the library, the rank and the world size of the process group, if the program has initialised one."""
    # Looked up, never imported: a program that uses a process group has imported its library.
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return "torch.distributed", torch.get_rank(), torch.get_world_size()
    jax = sys.modules.get("jax")
    distributed = getattr(jax, "distributed", None)
    if jax is None or distributed is None:
        return None
    # Older versions of JAX have no is_initialized, so the number of processes has to do.
    is_initialized = getattr(distributed, "is_initialized", lambda: jax.process_count() > 1)
    return ("jax.distributed", jax.process_index(), jax.process_count()) if is_initialized() else None


def _of_mesh(mesh: Any) -> Placement:
    """Return the placement of this process in the data-parallel dimension of a torch DeviceMesh."""
    mesh, names = mesh if isinstance(mesh, tuple) and len(mesh) == 2 else (mesh, None)
    if not all(hasattr(mesh, name) for name in ("get_local_rank", "size", "mesh_dim_names")):
        raise PlanError(
            f"mesh is {type(mesh).__name__}; it must be a torch DeviceMesh of one dimension, such as mesh['dp'], "
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
    # Ranks in several dimensions form one rank, like the digits of a number. The last dimension changes fastest.
    rank, world_size = 0, 1
    for name in chosen:
        part = mesh[name]
        rank, world_size = rank * part.size() + part.get_local_rank(), world_size * part.size()
    return Placement(rank, world_size)
