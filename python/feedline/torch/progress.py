"""How far the trainer has come in one epoch, for the state of a loader.

In: every batch that is delivered. Out: plain data. A loader may have several iterators, and each has its own progress.
"""

from __future__ import annotations

import pickle
from typing import Any

from feedline.errors import StateError
from feedline.torch.sampler_state import SamplerProgress
from feedline.torch.sampling import TorchDraws


class EpochProgress:
    """The batches of one epoch that were delivered."""

    def __init__(
        self,
        epoch: int,
        received: int,
        sampler: SamplerProgress | None = None,
        iterable: IterableProgress | None = None,
        draws: TorchDraws | None = None,
        start: int | None = None,
        shared: dict[str, Any] | None = None,
    ) -> None:
        """``received`` batches were delivered before. ``draws`` are those of ``seeding="torch"``.

        ``start`` is the position from which on ranks divide the epoch, if it is not 0. ``shared`` is the place at the
        start in samples that jobs share.
        """
        self.shared = shared
        self.length: int | None = None
        """The number of batches. Known from the first batch on: a sampler may choose its batches when it begins."""
        self.epoch, self.received, self.start = epoch, received, start
        self.sampler, self.iterable, self.draws = sampler, iterable, draws

    @property
    def to_skip(self) -> int:
        """How many batches of the sampler to pass over."""
        return 0 if self.sampler is not None and self.sampler.is_continued else self.received

    def receive(self) -> None:
        """Count a batch that was delivered, or raised an exception. From a state, the one after it follows."""
        self.received += 1
        if self.sampler is not None:
            self.sampler.receive()

    def saved(self) -> dict[str, Any]:
        """Return plain data, apart from the states of the user's own objects."""
        saved: dict[str, Any] = {}
        if self.sampler is not None:
            saved["sampler"] = self.sampler.saved(self.received)
        if self.iterable is not None and (self.received or any(self.iterable.states)):
            saved["iterable"] = self.iterable.saved()
        if self.start:
            saved["start"] = self.start
        if self.draws is not None:
            saved["torch"] = self.draws.start
        return saved


class IterableProgress:
    """The items that each worker of an iterable dataset has given."""

    def __init__(
        self, workers: int, saved: dict[str, Any] | None = None, current: dict[str, Any] | None = None
    ) -> None:
        """Begin, or continue from saved data. ``current`` is saved data that the workers need not load."""
        self.workers, self.turn = workers, 0
        self.numbers: list[int] = [0] * workers
        self.states: list[bytes | None] = [None] * workers
        if saved is not None and len(saved["items"]) != workers and not any(saved["items"]):
            # Nothing was received of this epoch, so each worker begins with its part.
            saved = None
        if saved is not None:
            if len(saved["items"]) != workers:
                raise StateError(
                    f"the iterable dataset was read by {len(saved['items'])} workers, and this loader has {workers}; "
                    "continue with as many workers until the end of the epoch"
                )
            self.turn, self.numbers = saved["turn"], list(saved["items"])
            self.states = [None if state is None else pickle.dumps(state) for state in saved["states"]]
        self.starts = list(self.states)
        if saved is None and current is not None and len(current["states"]) == workers:
            self.states = [None if state is None else pickle.dumps(state) for state in current["states"]]

    @property
    def must_skip(self) -> bool:
        """Whether items that were received have to be made again, because the dataset has no state."""
        return any(number and state is None for number, state in zip(self.numbers, self.states, strict=True))

    def receive(self, worker: int, state: bytes | None) -> None:
        """Count a delivered item."""
        self.pass_over(worker)
        self.states[worker] = state

    def pass_over(self, worker: int) -> None:
        """Count an item that raised an exception. A worker that continues from the state before it passes over it."""
        self.turn = (worker + 1) % self.workers
        self.numbers[worker] += 1

    def end(self, worker: int, state: bytes | None) -> None:
        """Take the state of a worker whose iterator has ended."""
        if state is not None:
            self.states[worker] = state

    def saved(self) -> dict[str, Any]:
        """Return plain data, apart from the dataset's own states."""
        states = [None if state is None else pickle.loads(state) for state in self.states]
        return {"turn": self.turn, "items": list(self.numbers), "states": states}

    def saved_for_next_epoch(self) -> dict[str, Any] | None:
        """Return the states of the datasets at the end of the epoch, if there are any. The next epoch begins there."""
        ends = {"items": 0, "is_of_last_epoch": True}
        states = [None if state is None else pickle.loads(state) | ends for state in self.states]
        return {"turn": 0, "items": [0] * self.workers, "states": states} if any(states) else None
