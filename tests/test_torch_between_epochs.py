"""States between epochs, and numbers of batches, as torchdata's StatefulDataLoader gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset
from torch_making import ours, plain
from torch_resuming import Counted, lasting

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
with_workers = pytest.mark.parametrize("workers", [0, 3])


def epochs(loader: Any, count: int = 1) -> list[Any]:
    return [[plain(batch) for batch in loader] for _ in range(count)]


class Continued(IterableDataset):
    """Goes on where its last iterator stopped, and counts its epochs when an iterator begins one."""

    def __init__(self, size: int) -> None:
        self.size, self.given, self.epoch = size, 0, 0

    def __iter__(self) -> Iterator[Any]:
        self.epoch += self.given == 0
        return self.numbers()

    def numbers(self) -> Iterator[Any]:
        while self.given < self.size:
            self.given += 1
            yield self.given - 1, self.epoch
        self.given = 0

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given, self.epoch = state["given"], state["epoch"]


@with_workers
def test_a_state_between_epochs_begins_the_epoch_of_a_dataset_once(workers: int) -> None:
    loader = lasting(Continued(6), workers, batch_size=2, collate_fn=lambda value: value)
    epochs(loader, 2)
    other = lasting(Continued(6), workers, batch_size=2, collate_fn=lambda value: value)
    other.load_state_dict(loader.state_dict())
    assert epochs(other, 2) == epochs(loader, 2)


def test_an_exception_at_the_start_of_an_epoch_comes_from_its_first_batch() -> None:
    class Failing(Continued):
        def numbers(self) -> Iterator[Any]:
            for number, epoch in super().numbers():
                if (number, epoch) == (0, 3):
                    raise LookupError("not this one")
                yield number, epoch

    loader = lasting(Failing(4), 1, batch_size=2, collate_fn=lambda value: value)
    epochs(loader, 2)
    other = lasting(Failing(4), 1, batch_size=2, collate_fn=lambda value: value)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(LookupError, match="not this one"):
        next(iter(other))


@with_workers
@pytest.mark.parametrize("dataset", [TensorDataset(torch.arange(10)), Counted(12)])
def test_enumerate_goes_on_with_the_number_of_the_batch(workers: int, dataset: Any) -> None:
    def begin() -> Any:
        return ours(dataset, workers, batch_size=2, seed=0)

    loader = begin()
    numbers, batches = zip(*loader.enumerate(), strict=True)
    assert list(numbers) == list(range(len(batches)))
    assert [number for number, _ in loader.enumerate(start=10)] == [number + 10 for number in numbers]
    received = iter(loader)
    next(received), next(received)
    other = begin()
    other.load_state_dict(loader.state_dict())
    assert [(number, plain(batch)) for number, batch in other.enumerate()] == [
        (number, plain(batch)) for number, batch in enumerate(received, 2)
    ]
    assert [number for number, _ in other.enumerate()] == list(numbers)
