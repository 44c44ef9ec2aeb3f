"""All environment variables that Feedline reads, and the resources of the machine."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

RANK_VARIABLES = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("SLURM", "SLURM_PROCID", "SLURM_NTASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPI", "PMI_RANK", "PMI_SIZE"),
)
"""Launchers, and their variables for the rank and the number of processes, in order of precedence."""

SLURM_STEP = "SLURM_STEP_ID"
"""Set only inside a job step. A batch script also has SLURM_PROCID, but is a single process."""


CACHE_FOLDER = "FEEDLINE_CACHE"
"""The cache folder, for example for indexes of shards. An empty value turns caching off."""

USER_CACHE = "XDG_CACHE_HOME"
"""The user's cache folder; ``~/.cache`` if it is not set."""


def cache_folder() -> str | None:
    """Return the cache folder; ``None`` if caching is turned off."""
    chosen = os.environ.get(CACHE_FOLDER)
    if chosen is not None:
        return os.path.abspath(os.path.expanduser(chosen)) if chosen else None
    users = os.environ.get(USER_CACHE) or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(users, "feedline") if os.path.isabs(users) else None


NODE_SOCKET = "FEEDLINE_NODE"
"""The socket of the node that ``share=True`` connects to."""

RUNTIME_FOLDER = "XDG_RUNTIME_DIR"
"""The folder for sockets of this user; ``/tmp/feedline-UID`` if it is not set."""


def node_socket() -> str:
    """Return the socket of this user's node."""
    chosen = os.environ.get(NODE_SOCKET)
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    runtime = os.environ.get(RUNTIME_FOLDER) or ""
    folder = os.path.join(runtime, "feedline") if os.path.isabs(runtime) else f"/tmp/feedline-{os.geteuid()}"
    return os.path.join(folder, "node.sock")


def launched_rank() -> tuple[str, int, int] | None:
    """Return the launcher, the rank and the world size; ``None`` if no launcher set them."""
    for launcher, rank_name, world_name in RANK_VARIABLES:
        rank, world = os.environ.get(rank_name), os.environ.get(world_name)
        # A batch script is one process, although SLURM_NTASKS counts those of its later steps.
        if launcher == "SLURM" and os.environ.get(SLURM_STEP) is None:
            continue
        if rank is not None and world is not None and rank.isdecimal() and world.isdecimal():
            return launcher, int(rank), int(world)
    return None


LOCAL_SIZE_VARIABLES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Variables of torchrun, Open MPI and MPICH for the number of the job's processes on this machine."""

SLURM_TASKS = "SLURM_STEP_TASKS_PER_NODE"
"""Processes of a SLURM job step on each of its machines, as in ``2(x3),1``."""

SLURM_NODE = "SLURM_NODEID"
"""The number of this machine among those of a SLURM job."""

MASTER_ADDRESS = "MASTER_ADDR"
"""The address of a torch process group. If it is a loopback address, all processes run on this machine."""


def local_ranks(world_size: int) -> int:
    """Return how many of the job's processes run on this machine; 1 if that is unknown."""
    for name in LOCAL_SIZE_VARIABLES:
        count = os.environ.get(name, "")
        if count.isdecimal() and int(count) > 0:
            return int(count)
    if os.environ.get(SLURM_STEP) is not None:
        counts = _tasks_per_node(os.environ.get(SLURM_TASKS, ""))
        node = os.environ.get(SLURM_NODE, "0")
        if counts and node.isdecimal() and int(node) < len(counts):
            return counts[int(node)]
    address = os.environ.get(MASTER_ADDRESS, "")
    # A process group that meets on loopback cannot span machines.
    is_here = address in ("localhost", "::1") or address.startswith("127.")
    return max(world_size, 1) if is_here else 1


def _tasks_per_node(text: str) -> list[int]:
    """Parse SLURM's ``2(x3),1`` as ``[2, 2, 2, 1]``. Return an empty list if it cannot be parsed."""
    counts: list[int] = []
    for part in text.split(",") if text else []:
        found = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,6})\))?", part)
        if found is None:
            return []
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def ranks_on_own_cores(ranks: int) -> int:
    """Return how many of the ``ranks`` on this machine share the cores that this process may use.

    A launcher may have bound each rank to cores of its own, or all ranks of a socket to the cores of that socket. Its
    own process, the parent of this process, may use all cores.
    """
    try:
        own, all_cores = len(os.sched_getaffinity(0)), len(os.sched_getaffinity(os.getppid()))
    except (OSError, AttributeError):
        return ranks
    # Rounded up. With its fair share or less, this rank has its cores for itself.
    fair = -(-max(own, all_cores) // ranks)
    return max(1, own // min(own, fair))


Machine = tuple["int | None", "str | None", int, int]
"""Memory in bytes, the cache folder, and how many processes share the memory and the cores."""


def machine(world_size: int) -> Machine:
    """Describe this machine to the engine, for a process of a job of ``world_size``."""
    ranks = local_ranks(world_size)
    return memory_bytes(), cache_folder(), ranks, ranks_on_own_cores(ranks)


def own_cores() -> int:
    """Return the number of cores for the workers of this process."""
    cores = len(os.sched_getaffinity(0))
    return max(cores // ranks_on_own_cores(local_ranks(1)), 1)


def memory_bytes() -> int | None:
    """Return the memory this process may use: the machine's, or its cgroup's limit if that is lower."""
    limits = []
    with contextlib.suppress(ValueError, OSError):
        # A container sees the memory of its host here. Its own limit is in the cgroup.
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return min(limits) if limits else None
