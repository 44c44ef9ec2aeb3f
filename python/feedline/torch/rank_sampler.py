"""Divides an epoch between ranks, for ``DataLoader(rank=..., world_size=...)``.

In: a sampler, a rank and the number of ranks. Out: the share of the rank. Positions of the epoch are dealt out in
turn, as by torch's ``DistributedSampler``: rank ``r`` of ``n`` gets the positions ``r``, ``r + n``, ``r + 2n`` and so
on. All ranks get equally many samples: without ``drop_last`` the last ones repeat samples from the start.

A state of such a loader counts the positions that all ranks have received together. So it continues with another
number of ranks: from that position on, the rest of the epoch is divided anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from feedline.arguments import whole
from feedline.errors import PlanError


class RankSampler(Sampler[int]):
    """The share of one rank of a sampler's indices."""

    def __init__(self, base: Sampler[int], rank: int, world_size: int, batch_size: int, *, drop_last: bool) -> None:
        """Divide the whole epoch."""
        self.base, self.rank, self.world_size, self.batch_size = base, rank, world_size, batch_size
        self.start = 0
        """Positions that were received before, by any number of ranks. Only the rest is divided."""
        self._drop_last = drop_last

    def __iter__(self) -> Iterator[int]:
        """Give the indices of the share."""
        order = list(self.base)
        rest = order[self.start :]
        count = len(self) * self.world_size
        # Padding repeats samples of the rest, or of the epoch if the rest is shorter than the number of ranks.
        padded = rest + (rest * -(-count // len(rest)))[: max(count - len(rest), 0)] if rest else []
        return iter(padded[self.rank : count : self.world_size])

    def __len__(self) -> int:
        """Return the number of samples of the share."""
        rest = max(len(self.base) - self.start, 0)  # type: ignore[arg-type]
        return rest // self.world_size if self._drop_last else -(-rest // self.world_size)

    def next_start(self, state: dict[str, Any]) -> int | None:
        """Return the position at which a state continues here. ``None``: at the same batch of the same share."""
        world_size, start = state.get("world_size", 1), state.get("start", 0)
        if world_size == self.world_size and state["batch_size"] == self.batch_size:
            return None
        return int(start + state["batches"] * state["batch_size"] * world_size)


def divided(
    dataset: Any,
    shuffle: bool | None,
    sampler: Iterable[Any] | None,
    batch_sampler: Iterable[Any] | None,
    batch_size: int | None,
    rank: int | None,
    world_size: int | None,
    drop_last: bool,
) -> RankSampler:
    """Return the sampler for the ``rank`` and ``world_size`` of a loader."""
    if rank is None or world_size is None:
        raise PlanError("rank and world_size belong together: give both, or neither")
    world_size = whole("world_size", world_size, 1)
    rank = whole("rank", rank, 0, f"below world_size={world_size}", most=world_size - 1)
    if type(sampler) is RankSampler and (sampler.rank, sampler.world_size) == (rank, world_size):
        # Trainers make a loader again from its attributes.
        return sampler
    if sampler is not None or batch_sampler is not None:
        raise PlanError("rank and world_size divide the data, and so may the sampler: give only one of both")
    if not isinstance(dataset, Sized):
        raise PlanError("rank and world_size need a dataset with a length; an iterable dataset divides its data itself")
    if batch_size is None:
        raise PlanError("rank and world_size need a batch_size: states count batches")
    base: Sampler[int] = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
    return RankSampler(base, rank, world_size, batch_size, drop_last=drop_last)
