"""state_dict and load_state_dict of iterable datasets, with a state of their own and without."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch_making import Yields, ours, shard_of
from torch_resuming import Counted, check_resume, lasting, noisy

import feedline

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Remembers(Iterator[Any]):
    """An iterator with a state."""

    made = 0

    def __init__(self, values: list[int]) -> None:
        self.values, self.place = values, 0

    def __next__(self) -> Any:
        if self.place == len(self.values):
            raise StopIteration
        self.place += 1
        return noisy(self.values[self.place - 1])

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place, "array": torch.tensor([self.place])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["array"].tolist() == [state["place"]]
        self.place = state["place"]


ITERABLES = {
    "state of the dataset": lambda: Counted(23),
    "state of the iterator": lambda: Yields(lambda: Remembers(list(shard_of(23)))),
    "no state": lambda: Yields(lambda: map(noisy, shard_of(23))),
    "uneven": lambda: Yields(lambda: Remembers([1, 2, 3] if get_worker_info().id else list(range(20)))),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ITERABLES)
@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}, {"batch_size": 2, "seeding": "torch"}])
def test_an_iterable_dataset_continues_in_every_worker(workers: int, name: str, options: dict[str, Any]) -> None:
    if workers == 0 and name == "uneven":
        return
    if "seeding" in options:
        # The random numbers of torch's workers cannot be continued. Only the items are compared.
        options |= {"collate_fn": lambda samples: [index for index, _, _ in samples]}
    seed = {} if "seeding" in options else {"seed": 9}
    check_resume(lambda count: lasting(ITERABLES[name](), count, **options, **seed), (workers, workers), stops=(0, 5))


def test_an_iterable_dataset_with_a_state_makes_nothing_again(caplog: pytest.LogCaptureFixture) -> None:
    given: list[int] = []

    class Logged(Counted):
        def __iter__(self) -> Iterator[Any]:
            for value in super().__iter__():
                given.append(value[0])
                yield value

    loader = ours(Logged(20), 0, batch_size=2, collate_fn=lambda x: x)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    given.clear()
    other = ours(Logged(20), 0, batch_size=2, collate_fn=lambda x: x)
    other.load_state_dict(state)
    list(other)
    assert given == list(range(8, 20))
    assert not caplog.records


def test_skipping_in_an_iterable_dataset_without_state_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    loader = ours(Yields(lambda: shard_of(20)), 2, batch_size=2)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    with caplog.at_level(logging.WARNING, "feedline"):
        for _ in range(2):
            loader.load_state_dict(state)
            list(loader)
    (record,) = caplog.records
    assert "the 3 batches received before are made again" in record.getMessage()


def test_an_iterable_dataset_needs_as_many_workers_until_the_end_of_the_epoch() -> None:
    loader = ours(Counted(12), 2, batch_size=2)
    next(iter(loader))
    other = ours(Counted(12), 3, batch_size=2)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(feedline.StateError, match="read by 2 workers, and this loader has 3"):
        iter(other)
    list(loader)
    other.load_state_dict(loader.state_dict())
    assert len(list(other)) == 6
    check_resume(lambda count: lasting(Counted(9), count, batch_size=2, seed=1), (0, 1))


def test_a_dataset_that_is_its_own_iterator_continues_even_if_it_was_used_up() -> None:
    class Own(IterableDataset):
        place = 0

        def __iter__(self) -> Own:
            return self

        def __next__(self) -> int:
            if self.place == 8:
                raise StopIteration
            self.place += 1
            return self.place

        def state_dict(self) -> dict[str, Any]:
            return {"place": self.place}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.place = state["place"]

    dataset = Own()
    loader = ours(dataset, 0, batch_size=2)
    for stop in (0, 1, 3):
        dataset.place = 0
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = loader.state_dict()
        rest = [batch.tolist() for batch in batches]
        other = ours(dataset, 0, batch_size=2)
        other.load_state_dict(state)
        assert [batch.tolist() for batch in other] == rest
