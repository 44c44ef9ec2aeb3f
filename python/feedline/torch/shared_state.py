"""What a DataLoader shares with its iterators, so that they need not refer to it.

A persistent iterator belongs to its loader. If it referred to the loader too, both would live until Python's cycle
collector finds them, and so would their worker processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from feedline.torch.engine import WorkerEngine
from feedline.torch.place import Place


@dataclass
class SharedState:
    """What changes while a loader is iterated."""

    place: Place = field(default_factory=Place)
    drawn_seed: int | None = None
    """The seed, if the user gave none and one was needed."""
    has_left_sampler: bool = False
    """Whether the last epoch was left early, so that the state of its sampler is no start of the next one."""
    iterable: dict[str, Any] | None = None
    """The states of an iterable dataset that goes on from epoch to epoch, at the end of the last one."""
    last_engine: WorkerEngine | None = None
    """The workers that were started last."""
    said: set[str] = field(default_factory=set)
    """Topics of warnings that were logged."""

    def copy(self) -> SharedState:
        """Return the state of a copy of the loader, which has no workers."""
        return replace(self, place=self.place.copy(), last_engine=None, said=set(self.said))
