"""state_dict and load_state_dict: a loader that continues gives the batches of one that never stopped."""

from __future__ import annotations

import json
import logging
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, Sampler, get_worker_info
from torch_making import Calls, Yields, lists, ours, plain, shard_of

import feedline

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def noisy(index: Any) -> tuple[Any, float, torch.Tensor]:
    return index, random.random(), torch.rand(2)


def lasting(dataset: Any, workers: int, **options: Any) -> Any:
    """Make a loader whose workers stay, since the checks below need several epochs."""
    return ours(dataset, workers, persistent_workers=workers > 0, **options)


def check(
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


@pytest.mark.parametrize("workers", [(0, 0), (0, 2), (3, 1)])
@pytest.mark.parametrize("mode", ["sample", "unit", "no batches"])
def test_law_4_a_map_style_dataset_continues_with_any_number_of_workers(workers: tuple[int, int], mode: str) -> None:
    options = {"sample": {}, "unit": {"collate_fn": lambda samples: samples}, "no batches": {"batch_size": None}}[mode]

    def make_loader(count: int) -> Any:
        return lasting(Calls(noisy, 13), count, seed=3, shuffle=True, **({"batch_size": 3} | options))

    check(make_loader, workers)


@pytest.mark.parametrize("copied", [lambda state: json.loads(json.dumps(state)), lambda state: state])
def test_a_state_is_plain_data(copied: Callable[[Any], Any]) -> None:
    check(lambda count: lasting(Calls(noisy, 9), count, batch_size=2, shuffle=True, seed=1), (0, 0), copied)
    check(lambda count: lasting(Counted(9), count, batch_size=2, seed=1), (2, 2), copied)


def test_without_a_seed_the_state_has_it() -> None:
    loader = ours(Calls(noisy, 9), 0, batch_size=2, shuffle=True)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [plain(batch) for batch in batches]
    other = ours(Calls(noisy, 9), 2, batch_size=2, shuffle=True)
    other.load_state_dict(state)
    assert [plain(batch) for batch in other] == rest


def test_only_delivered_batches_count_and_none_is_made_again() -> None:
    made: list[int] = []
    loader = ours(Calls(lambda index: made.append(index) or index, 20), 0, batch_size=2)  # type: ignore[func-returns-value]
    state = ours(Calls(int, 20), 2, batch_size=2)
    batches = iter(state)
    for count in range(3):
        assert state.state_dict()["batches"] == count
        next(batches)
    loader.load_state_dict(state.state_dict())
    assert lists(loader)[0] == [6, 7]
    assert made == list(range(6, 20))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_can_go_back_to_its_own_state(persistent: bool) -> None:
    for dataset in (Calls(noisy, 12), Counted(12)):
        options: dict[str, Any] = {} if isinstance(dataset, Counted) else {"shuffle": True}
        loader = ours(dataset, 2, batch_size=2, seed=1, persistent_workers=persistent, **options)
        list(loader)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [plain(batch) for batch in batches]
        for _ in range(2):
            loader.load_state_dict(state)
            assert [plain(batch) for batch in loader] == rest


def test_at_the_end_of_an_epoch_the_next_one_follows() -> None:
    loader = ours(Calls(noisy, 9), 2, batch_size=2, shuffle=True, seed=1)
    list(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 0)
    expected = [plain(batch) for batch in loader]
    other = ours(Calls(noisy, 9), 1, batch_size=2, shuffle=True, seed=1)
    other.load_state_dict(state)
    assert [plain(batch) for batch in other] == expected


def test_another_batch_size_is_possible_where_batches_are_whole() -> None:
    loader = ours(Calls(int, 12), 0, batch_size=4)
    next(iter(loader))
    state = loader.state_dict()
    other = ours(Calls(int, 12), 0, batch_size=2)
    other.load_state_dict(state)
    assert next(iter(other)).tolist() == [4, 5]
    with pytest.raises(feedline.StateError, match="no whole batches of 3"):
        ours(Calls(int, 12), 0, batch_size=3).load_state_dict(state)
    for wrong in ({}, None, {"epoch": 1}, {"feedline_torch": 1}):
        with pytest.raises(feedline.StateError):
            other.load_state_dict(wrong)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("replacement", [False, True])
def test_the_generator_of_the_user_continues(workers: int, replacement: bool) -> None:
    def make_loader(count: int) -> Any:
        generator = torch.Generator().manual_seed(3)
        sampler = RandomSampler(range(11), replacement=replacement, generator=generator)
        return lasting(Calls(noisy, 11), count, batch_size=2, sampler=sampler, seed=1)

    check(make_loader, (workers, workers))

    def make_own(count: int) -> Any:
        generator = torch.Generator().manual_seed(3)
        return lasting(Calls(noisy, 11), count, batch_size=2, shuffle=True, generator=generator)

    check(make_own, (workers, workers))


class Position(Sampler):
    """Saves how many indices it gave, as torchdata's StatefulDistributedSampler does."""

    def __init__(self) -> None:
        self.given, self.next_given = 0, None

    def __len__(self) -> int:
        return 11

    def __iter__(self) -> Iterator[int]:
        self.given = self.next_given or 0
        self.next_given = None
        for index in range(self.given, 11):
            self.given += 1
            yield 10 - index

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next_given = state["given"]


class Passes(Sampler):
    """Saves the number of its epoch, on which its order depends."""

    def __init__(self) -> None:
        self.passes = 0

    def __len__(self) -> int:
        return 11

    def __iter__(self) -> Iterator[int]:
        order = random.Random(self.passes).sample(range(11), 11)
        self.passes += 1
        return iter(order)

    def state_dict(self) -> dict[str, Any]:
        return {"passes": self.passes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.passes = state["passes"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", [Position, Passes])
@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}, {"batch_sampler": True}])
def test_a_sampler_with_a_state_continues(workers: int, sampler: Any, options: dict[str, Any]) -> None:
    def make_loader(count: int) -> Any:
        if "batch_sampler" in options:
            return lasting(Calls(int, 11), count, batch_sampler=BatchSampler(sampler(), 2, False))
        return lasting(Calls(int, 11), count, sampler=sampler(), **options)

    check(make_loader, (workers, workers), lambda state: json.loads(json.dumps(state)))


def test_with_the_seeding_of_torch_the_order_continues() -> None:
    for has_generator in (False, True):
        torch.manual_seed(5)
        generator = torch.Generator().manual_seed(5) if has_generator else None

        def make_loader(seed: int, generator: Any = generator) -> Any:
            if generator is not None:
                generator.manual_seed(seed)
            return ours(Calls(int, 13), 2, batch_size=3, shuffle=True, seeding="torch", generator=generator)

        loader = make_loader(1)
        list(loader)
        batches = iter(loader)
        next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        rest = [batch.tolist() for batch in batches]
        torch.manual_seed(77)
        before = torch.get_rng_state().tolist()
        other = make_loader(2)
        other.load_state_dict(state)
        assert [batch.tolist() for batch in other] == rest
        assert torch.get_rng_state().tolist() == before


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
    check(lambda count: lasting(ITERABLES[name](), count, **options, **seed), (workers, workers), stops=(0, 5))


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
    check(lambda count: lasting(Counted(9), count, batch_size=2, seed=1), (0, 1))


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
