"""Measures what the worker processes of another loader do: compute, wait for a core, or wait for something else.

The kernel counts for each thread how long it ran and how long it was runnable while no core was free
(``/proc/PID/task/TID/schedstat``). The second is not a wait for storage. Workers may end with each epoch, so they are
read a few times a second while batches come.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

_LOOK_EVERY = 0.2
"""Seconds between two readings. A reading takes about 50 us for each process."""


@dataclass(frozen=True)
class _Counted:
    """The kernel's counters of a process, in seconds and bytes."""

    computed: float = 0.0
    """On a core, or runnable while none was free."""
    blocked: float = 0.0
    """Waiting for a disk, if the kernel counts that."""
    read: int = 0
    """Bytes read."""


@dataclass
class _Seen:
    """One process, from its first reading to its last."""

    began: float
    until: float
    before: _Counted
    now: _Counted


class ChildProcesses:
    """The processes that this process has started, directly or indirectly, since this object was created."""

    def __init__(self) -> None:
        """Record the processes that exist already: they may not belong to the loader."""
        self._seen: dict[tuple[int, str], _Seen] = {}
        self._older = {process for process, _ in _descendants()}
        self._looked = 0.0

    def look(self, *, now: bool = False) -> None:
        """Read the counters, unless they were read a moment ago."""
        clock = time.monotonic()
        if not now and clock - self._looked < _LOOK_EVERY:
            return
        self._looked = clock
        for process, counted in _descendants():
            if counted is None:  # It is about to end.
                continue
            # A new process counts from its start, an older one only from its first reading.
            before = counted if process in self._older else _Counted()
            seen = self._seen.setdefault(process, _Seen(clock, clock, before, before))
            seen.until, seen.now = clock, counted

    def computing(self, workers: int) -> float | None:
        """Return the fraction of time in which the ``workers`` processes computed or waited for a core.

        Only the busiest processes count. ``None`` if the kernel does not tell, or if they lived too briefly.
        """
        busiest = self._busiest(workers)
        alive = sum(seen.until - seen.began for seen in busiest)
        computed = sum(seen.now.computed - seen.before.computed for seen in busiest)
        return None if alive < _LOOK_EVERY else min(1.0, computed / alive)

    def counted(self, workers: int) -> tuple[float | None, float, float]:
        """Return :meth:`computing`, the fraction of time waiting for a disk, and the bytes read per process."""
        busiest = self._busiest(workers)
        alive = sum(seen.until - seen.began for seen in busiest)
        blocked = sum(seen.now.blocked - seen.before.blocked for seen in busiest)
        read = sum(seen.now.read - seen.before.read for seen in busiest)
        return self.computing(workers), blocked / alive if alive > 0 else 0.0, read / max(len(busiest), 1)

    def _busiest(self, workers: int) -> list[_Seen]:
        younger = [seen for process, seen in self._seen.items() if process not in self._older]
        candidates = younger if len(younger) >= workers else list(self._seen.values())
        candidates.sort(key=lambda seen: seen.now.computed - seen.before.computed, reverse=True)
        # Each epoch may have started workers of its own.
        return candidates[: max(workers, len(younger))]


def _descendants() -> list[tuple[tuple[int, str], _Counted | None]]:
    """Return all descendants of this process: process number, start time and counters."""
    found, parents = [], [os.getpid()]
    while parents:
        children = _children(parents.pop())
        parents += children
        for child in children:
            stat = _stat(child)
            if stat is not None:
                # Field 22 of /proc/PID/stat is the start time. The first two fields are cut off, and lists count from
                # 0.
                found.append(((child, stat[19]), _counted(child, stat)))
    return found


def _children(process: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as file:
                children += map(int, file.read().split())
    except OSError:
        return children
    return children


def _stat(process: int) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` after the name. The start time distinguishes a reused process number."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return fields if len(fields) > 39 else None


def _counted(process: int, stat: list[str]) -> _Counted | None:
    """Return the counters of a process; ``None`` while it ends."""
    total, read = 0, 0
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/schedstat", encoding="ascii") as file:
                ran, queued = file.read().split()[:2]
            total += int(ran) + int(queued)
        with open(f"/proc/{process}/io", encoding="ascii") as file:
            read = int(file.readline().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    # Field 42 is the time that the process waited for block devices, in clock ticks.
    return _Counted(total / 1e9, int(stat[39]) / os.sysconf("SC_CLK_TCK"), read)
