"""Samplers that choose new samples for each epoch: functions of the epoch, and torch samplers."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.errors import PlanError

EpochIndices = Callable[[int], Sequence[int]]
"""From an epoch to the indices of its samples, in order."""


@dataclass(frozen=True)
class TorchSampler:
    """A torch sampler as a function of the epoch: the same seed and epoch give the same samples."""

    sampler: Iterable[int]
    seed: object
    indices: tuple[int, ...] | None
    """The index of each sample, if the source is a subset. Torch samplers count from 0."""

    def __call__(self, epoch: int) -> list[int]:
        """Draw the samples of an epoch."""
        # Samplers such as DistributedSampler derive their order from the epoch.
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
        with _seeded(self.sampler, self.seed, epoch):
            positions = list(self.sampler)
        if self.indices is None:
            return positions
        try:
            return [self.indices[position] for position in positions]
        except (IndexError, TypeError) as error:
            count = len(self.indices)
            raise PlanError(f"sampler gives positions that the source of {count} samples does not have") from error


def by_epoch(sampler: Any, seed: object, indices: Callable[[], list[int]]) -> EpochIndices | None:
    """Return a sampler as a function of the epoch; ``None`` for a rule or a list that holds for all epochs."""
    if sampler is None or isinstance(sampler, (Sequence, np.ndarray)):
        return None
    if getattr(sampler, "num_replicas", 1) != 1:
        raise PlanError(
            "sampler divides the samples over ranks, which the loader does itself; give shuffle=True instead"
        )
    if callable(sampler):
        function: EpochIndices = sampler
        return function
    if not isinstance(sampler, Iterable):
        return None
    # Listing the indices may take a while for a large source, so it happens only for torch samplers.
    own = indices()
    return TorchSampler(sampler, seed, None if own == list(range(len(own))) else tuple(own))


@contextlib.contextmanager
def _seeded(sampler: Any, seed: object, epoch: int) -> Iterator[None]:
    """Make torch's random numbers depend on seed and epoch only. Restore its generator afterwards."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    digest = hashlib.blake2b(f"{seed} {epoch}".encode(), digest_size=8).digest()
    # torch.manual_seed takes a signed 64-bit number, so the top bit is dropped.
    number = int.from_bytes(digest, "little") >> 1
    if getattr(sampler, "generator", None) is not None:
        sampler.generator.manual_seed(number)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        yield
