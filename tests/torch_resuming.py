"""Helpers for tests of resume: compare a loader that continues with one that never stopped."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch_making import ours, plain


def noisy(index: Any) -> tuple[Any, float, torch.Tensor]:
    return index, random.random(), torch.rand(2)


def lasting(dataset: Any, workers: int, **options: Any) -> Any:
    """Make a loader whose workers stay, since the checks below need several epochs."""
    return ours(dataset, workers, persistent_workers=workers > 0, **options)


def check_resume(
    make_loader: Callable[[int], Any],
    workers: tuple[int, int] = (2, 2),
    copied: Callable[[Any], Any] = lambda state: pickle.loads(pickle.dumps(state)),
    stops: tuple[int, ...] = (0, 1, 3),
    epoch: int = 1,
) -> None:
    """Stop after some batches of an epoch, continue with another loader, and compare with a loader that did not stop.

    ``workers`` are those before and after. The epoch after is compared, too.
    """
    unbroken = make_loader(workers[0])
    expected = [[plain(batch) for batch in unbroken] for _ in range(epoch + 2)]
    for stop in stops:
        loader = make_loader(workers[0])
        for _ in range(epoch):
            list(loader)
        batches = iter(loader)
        received = [plain(next(batches)) for _ in range(stop)]
        state = copied(loader.state_dict())
        # Whatever the old loader does now must not matter.
        next(batches, None)
        other = make_loader(workers[1])
        other.load_state_dict(state)
        received += [plain(batch) for batch in other]
        assert received == expected[epoch], f"after {stop} batches"
        assert [plain(batch) for batch in other] == expected[epoch + 1], f"the epoch after, stopped after {stop}"
    loader = make_loader(workers[0])
    for _ in range(epoch + 1):
        list(loader)
    other = make_loader(workers[1])
    other.load_state_dict(copied(loader.state_dict()))
    assert [plain(batch) for batch in other] == expected[epoch + 1], "between epochs"


class Counted(IterableDataset):
    """Iterable with a state, whose ``__iter__`` is a generator."""

    def __init__(self, length: int) -> None:
        self.length, self.given, self.start = length, 0, 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        own = range(self.length)[info.id :: info.num_workers] if info else range(self.length)
        self.given, self.start = self.start, 0
        for index in own[self.given :]:
            self.given += 1
            yield noisy(index)
        self.given = 0

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = state["given"]
