"""What the worker processes of another loader do: compute, wait for a core, or wait for something else.

The system counts for each thread how long it ran and how long it was ready to run while no core was free
(``/proc/PID/task/TID/schedstat``). The second is no wait for storage. Workers may end with each epoch, so they are read
a few times a second while batches come.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

_LOOK_EVERY = 0.2
"""Seconds between two looks: a look takes some 50 us for each process."""


@dataclass
class _Seen:
    """One process, from when it was first seen."""

    began: float
    until: float
    computed_before: float
    computed: float


class ChildProcesses:
    """The processes that this one has started, directly or not, since this object was made."""

    def __init__(self) -> None:
        """Note the processes that are there already: they may not belong to the loader."""
        self._seen: dict[tuple[int, str], _Seen] = {}
        self._older = {process for process, _ in _descendants()}
        self._looked = 0.0
        self._can_tell = True

    def look(self, *, now: bool = False) -> None:
        """Read what the system counts, unless that was done a moment ago."""
        clock = time.monotonic()
        if not now and clock - self._looked < _LOOK_EVERY:
            return
        self._looked = clock
        for process, seconds in _descendants():
            if seconds is None:
                self._can_tell = False
                continue
            before = seconds if process in self._older else 0.0
            seen = self._seen.setdefault(process, _Seen(clock, clock, before, before))
            seen.until, seen.computed = clock, seconds

    def computing(self, workers: int) -> float | None:
        """Give the part of their time in which ``workers`` processes computed, or would have if a core had been free.

        Of all processes it takes the busiest. ``None`` if the system does not say, or if they were hardly seen.
        """
        younger = [seen for process, seen in self._seen.items() if process not in self._older]
        candidates = younger if len(younger) >= workers else list(self._seen.values())
        candidates.sort(key=lambda seen: seen.computed - seen.computed_before, reverse=True)
        # Workers of several epochs were there one after the other.
        busiest = candidates[: max(workers, len(younger))]
        alive = sum(seen.until - seen.began for seen in busiest)
        computed = sum(seen.computed - seen.computed_before for seen in busiest)
        if not self._can_tell or alive < _LOOK_EVERY:
            return None
        return min(1.0, computed / alive)


def _descendants() -> list[tuple[tuple[int, str], float | None]]:
    """Give all processes below this one, each by number and start time, with the seconds that it ran or queued."""
    found, parents = [], [os.getpid()]
    while parents:
        children = _children(parents.pop())
        parents += children
        for child in children:
            started = _start_time(child)
            if started is not None:
                found.append(((child, started), _ran_or_queued(child)))
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


def _start_time(process: int) -> str | None:
    """Give when a process started, which tells it from a later one with the same number."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def _ran_or_queued(process: int) -> float | None:
    """Give the seconds that the threads of a process ran, or were ready while no core was free."""
    total = 0
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/schedstat", encoding="ascii") as file:
                ran, queued = file.read().split()[:2]
            total += int(ran) + int(queued)
    except (OSError, ValueError):
        return None
    return total / 1e9
