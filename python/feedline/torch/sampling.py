"""Iterates a torch sampler so that its order follows from seed and epoch.

In: the sampler of a DataLoader, a seed and an epoch. Out: its indices or batches, one after the other. A sampler
without a generator of its own draws from torch's global generator, and some draw from ``random`` or NumPy. While the
sampler runs, these generators have states of their own, so the program's random numbers stay as they were.

What is *not* done here: drawing. The order is the sampler's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _InfiniteConstantSampler
from torch.utils.data.distributed import DistributedSampler

from feedline import _feedline
from feedline.torch.rank_sampler import RankSampler
from feedline.torch.sampler_state import decoded, encoded
from feedline.torch.worker.seeding import GeneratorStates
from feedline.worker.seeding import sample_seeder

_SAMPLER_INDEX = (1 << 48) - 1
"""The seed of the sampler is that of this sample, which no dataset has."""

_DRAWS_ONCE = (
    SequentialSampler,
    RandomSampler,  # Draws a seed for a generator of its own.
    SubsetRandomSampler,
    WeightedRandomSampler,
    DistributedSampler,
    _InfiniteConstantSampler,
)


class SeededSampling(Iterator[Any]):
    """An iterator over a sampler, with random numbers that depend on seed and epoch only."""

    def __init__(self, sampler: Iterable[Any], seed: int, epoch: int) -> None:
        """Nothing is drawn before the first index is requested."""
        self._sampler = sampler
        self._iterator: Iterator[Any] | None = None
        seeds = _feedline.SampleSeeds(seed)
        seeds.begin(epoch)
        (self._seed,) = seeds.next([_SAMPLER_INDEX])
        self._draws_often = not _draws_once(sampler)
        self._states: GeneratorStates | None = None

    def __next__(self) -> Any:
        """Return the next index or batch."""
        if self._iterator is not None and not self._draws_often:
            return next(self._iterator)
        return self._drawn(next)

    def rest(self) -> list[Any]:
        """Return all that follows. The generators are exchanged once, not for each index."""
        found: list[Any] = self._drawn(list)
        return found

    def _drawn(self, draw: Callable[[Iterator[Any]], Any]) -> Any:
        outside = GeneratorStates.now()
        try:
            if self._states is not None:
                self._states.restore()
            else:
                sample_seeder()(self._seed)
            if self._iterator is None:
                self._iterator = iter(self._sampler)
            return draw(self._iterator)
        finally:
            if self._draws_often:
                self._states = GeneratorStates.now()
            outside.restore()


class TorchDraws:
    """Draws from torch's global generator, at the moments at which torch's DataLoader draws from it.

    In an epoch that is continued from a state, they come from the saved state of that generator instead, and the
    program's generator stays as it is.
    """

    def __init__(self, saved: str | None = None) -> None:
        """Take the state of the generator at the start of the epoch."""
        self.start = saved if saved is not None else encoded(torch.default_generator.get_state())
        self._own = None if saved is None else decoded(saved)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Draw inside of this context."""
        if self._own is None:
            yield
            return
        outside = torch.default_generator.get_state()
        torch.default_generator.set_state(self._own)
        try:
            yield
        finally:
            self._own = torch.default_generator.get_state()
            torch.default_generator.set_state(outside)

    def seed(self, generator: torch.Generator | None) -> int:
        """Draw a seed as torch's iterators do."""
        with self.drawing():
            return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())

    def sampling(self, sampler: Iterable[Any]) -> Iterator[Any]:
        """Iterate a sampler. Its ``__iter__`` is called at once."""
        with self.drawing():
            iterator = iter(sampler)
        return iterator if self._own is None else self._own_sampling(iterator)

    def _own_sampling(self, iterator: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self.drawing():
                try:
                    indices = next(iterator)
                except StopIteration:
                    return
            yield indices


def _draws_once(sampler: Any) -> bool:
    """Return whether a sampler uses global generators before its first index only."""
    if type(sampler) is BatchSampler:
        return _draws_once(sampler.sampler)
    if type(sampler) is RankSampler:
        return True
    return type(sampler) in _DRAWS_ONCE
