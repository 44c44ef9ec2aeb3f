"""The place of a trainer in the stream of a DataLoader, and its saved form."""

from __future__ import annotations

from typing import Any

from feedline.arguments import short
from feedline.errors import StateError
from feedline.torch.progress import EpochProgress
from feedline.torch.rank_sampler import RankSampler

_FORMAT = 1
_PARTS = ("sampler", "iterable", "torch", "start", "shared")
"""The states of the sampler, of an iterable dataset, and of torch's generator for ``seeding="torch"``; the position
from which on ranks divide the epoch; the place in samples that jobs share."""


class Place:
    """An epoch, and how many of its batches the trainer has received."""

    def __init__(self, epoch: int = 0, batches: int = 0, parts: dict[str, Any] | None = None) -> None:
        """The next iterator continues here. ``parts`` are the saved states of the sampler and the dataset."""
        self._next = (epoch, batches, parts)
        self._current: EpochProgress | None = None
        self.skipped = 0
        """Batches to pass over in the next epoch, whichever that is."""

    @property
    def epoch(self) -> int:
        """The epoch that runs, or the next one."""
        return self._next[0] if self._current is None else self._current.epoch

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iterator."""
        return self._next[0]

    def is_next(self, epoch: int) -> bool:
        """Return whether the next iterator begins or continues ``epoch`` anyway."""
        return epoch == self._next[0]

    @property
    def start(self) -> int:
        """The position from which on ranks divide the epoch of the next iterator."""
        parts = self._next[2] or {}
        return int(parts.get("start", 0))

    @property
    def batches(self) -> int:
        """How many batches of :attr:`epoch` the trainer has received."""
        return self._next[1] if self._current is None else self._current.received

    def begin(self) -> tuple[int, int, dict[str, Any]]:
        """Return where a new iterator begins. The one after it begins with the next epoch."""
        epoch, batches, parts = self._next
        self._next, self.skipped = (epoch + 1, 0, None), 0
        return epoch, batches, parts or {}

    def follow(self, progress: EpochProgress) -> None:
        """Take the place of an iterator. Of several iterators, the last one that gave a batch decides."""
        self._current = progress

    def end(self, progress: EpochProgress) -> None:
        """Record that the epoch of an iterator has ended."""
        if self._current is progress:
            self._current = None

    def copy(self) -> Place:
        """Return the place for a copy of the loader, whose first iterator begins a new epoch, as in torch."""
        return Place(*self._next)

    def parts(self) -> dict[str, Any] | None:
        """Return the states of the sampler and the dataset here. ``None`` between epochs: they are as they are."""
        return self._next[2] if self._current is None else self._current.saved()

    def state_dict(self, seed: int | None, batch_size: int | None, parts: dict[str, Any]) -> dict[str, Any]:
        """Return plain data."""
        return {
            "feedline_torch": _FORMAT,
            "epoch": self.epoch,
            "batches": self.batches,
            "batch_size": batch_size,
            "seed": seed,
            **parts,
        }

    @staticmethod
    def from_state(
        state: Any, batch_size: int | None, ranks: RankSampler | None, *, is_shared: bool
    ) -> tuple[Place, int | None]:
        """Return the place of a state, and its seed. Batches are counted anew for another batch size or world size."""
        if not isinstance(state, dict) or state.get("feedline_torch") != _FORMAT:
            raise StateError(f"{short(state)} is no state of a feedline.torch.DataLoader")
        try:
            epoch, batches, old_size, seed = (state[name] for name in ("epoch", "batches", "batch_size", "seed"))
        except KeyError as error:
            raise StateError(f"the state has no {error}") from None
        parts = {name: state[name] for name in _PARTS if name in state}
        if batches and ("shared" in state) != is_shared:
            raise StateError("jobs that share have an order of their own: continue with the same share=... as before")
        if ranks is None and "world_size" in state:
            raise StateError(
                f"the state is that of one of {state['world_size']} ranks; give rank and world_size (1 for one process)"
            )
        start = None if ranks is None else ranks.next_start(state)
        if start is not None:
            return Place(epoch, 0, parts | {"start": start}), seed
        if batches and old_size != batch_size:
            samples = batches * old_size if old_size and batch_size else 1
            if not old_size or not batch_size or samples % batch_size or "iterable" in state:
                raise StateError(
                    f"the state has {batches} batches of {old_size} samples: no whole batches of {batch_size}; "
                    "continue with the old batch size until the end of the epoch"
                )
            batches = samples // batch_size
        return Place(epoch, batches, parts), seed
