"""All environment variables that Feedline reads, and what the machine offers."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

_log = logging.getLogger("feedline")

RANK_VARIABLES = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("SLURM", "SLURM_PROCID", "SLURM_NTASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPI", "PMI_RANK", "PMI_SIZE"),
)
"""Launchers and the variables in which they tell a process its rank and the number of processes, in order."""

SLURM_STEP = "SLURM_STEP_ID"
"""Set only inside a job step: a plain batch script also has SLURM_PROCID, but is one process."""


CACHE_FOLDER = "FEEDLINE_CACHE"
"""The folder for what can be made again, such as indexes of shards; set but empty, nothing is kept."""

USER_CACHE = "XDG_CACHE_HOME"
"""The folder in which programs keep what can be made again; ``~/.cache`` where it is not set."""


def cache_folder() -> str | None:
    """Give the folder for what can be made again; ``None`` if nothing is to be kept."""
    chosen = os.environ.get(CACHE_FOLDER)
    if chosen is not None:
        return os.path.abspath(os.path.expanduser(chosen)) if chosen else None
    users = os.environ.get(USER_CACHE) or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(users, "feedline") if os.path.isabs(users) else None


NODE_SOCKET = "FEEDLINE_NODE"
"""The socket of the node that ``share=True`` means."""

RUNTIME_FOLDER = "XDG_RUNTIME_DIR"
"""The folder for sockets of this user; ``/tmp/feedline-UID`` where it is not set."""


def node_socket() -> str:
    """Give the socket of this user's node."""
    chosen = os.environ.get(NODE_SOCKET)
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    runtime = os.environ.get(RUNTIME_FOLDER) or ""
    folder = os.path.join(runtime, "feedline") if os.path.isabs(runtime) else f"/tmp/feedline-{os.geteuid()}"
    return os.path.join(folder, "node.sock")


def launched_rank() -> tuple[int, int] | None:
    """Give the rank and world size that a launcher set, and log it; ``None`` if none did."""
    for launcher, rank_name, world_name in RANK_VARIABLES:
        rank, world = os.environ.get(rank_name), os.environ.get(world_name)
        if launcher == "SLURM" and os.environ.get(SLURM_STEP) is None:
            continue
        if rank is not None and world is not None and rank.isdecimal() and world.isdecimal():
            _log.info("rank %s of %s, from the environment of %s", rank, world, launcher)
            return int(rank), int(world)
    return None


def memory_bytes() -> int | None:
    """Give the memory this process may use: the machine's, or its cgroup's limit if that is less."""
    limits = []
    with contextlib.suppress(ValueError, OSError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return min(limits) if limits else None
