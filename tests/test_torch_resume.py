"""state_dict and load_state_dict of map-style datasets: continuing gives the batches of never stopping."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler
from torch_making import Calls, lists, ours, plain
from torch_resuming import Counted, check_resume, lasting, noisy

import feedline

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.mark.parametrize("workers", [(0, 0), (0, 2), (3, 1)])
@pytest.mark.parametrize("mode", ["sample", "unit", "no batches"])
def test_law_4_a_map_style_dataset_continues_with_any_number_of_workers(workers: tuple[int, int], mode: str) -> None:
    options = {"sample": {}, "unit": {"collate_fn": lambda samples: samples}, "no batches": {"batch_size": None}}[mode]

    def make_loader(count: int) -> Any:
        return lasting(Calls(noisy, 13), count, seed=3, shuffle=True, **({"batch_size": 3} | options))

    check_resume(make_loader, workers)


@pytest.mark.parametrize("copied", [lambda state: json.loads(json.dumps(state)), lambda state: state])
def test_a_state_is_plain_data(copied: Callable[[Any], Any]) -> None:
    check_resume(lambda count: lasting(Calls(noisy, 9), count, batch_size=2, shuffle=True, seed=1), (0, 0), copied)
    check_resume(lambda count: lasting(Counted(9), count, batch_size=2, seed=1), (2, 2), copied)


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

    check_resume(make_loader, (workers, workers))

    def make_own(count: int) -> Any:
        generator = torch.Generator().manual_seed(3)
        return lasting(Calls(noisy, 11), count, batch_size=2, shuffle=True, generator=generator)

    check_resume(make_own, (workers, workers))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_seed_that_is_drawn_from_the_generator_of_the_user_is_not_drawn_again(workers: int) -> None:
    def make_loader() -> Any:
        generator = torch.Generator().manual_seed(3)
        return ours(Calls(noisy, 11), workers, batch_size=2, shuffle=True, generator=generator)

    loader = make_loader()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    expected = [plain(batch) for batch in [*batches, *loader]]
    other = make_loader()
    other.load_state_dict(state)
    assert [plain(batch) for batch in [*other, *other]] == expected


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


class Walks(Sampler):
    """Saves epoch and position, and goes on to the next epoch after its last index."""

    def __init__(self) -> None:
        self.epoch, self.given = 0, 0

    def __len__(self) -> int:
        return 11

    def __iter__(self) -> Iterator[int]:
        order = random.Random(self.epoch).sample(range(11), 11)
        while self.given < 11:
            self.given += 1
            yield order[self.given - 1]
        self.epoch, self.given = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.given = state["epoch"], state["given"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", [Position, Passes, Walks])
@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}, {"batch_sampler": True}])
def test_a_sampler_with_a_state_continues(workers: int, sampler: Any, options: dict[str, Any]) -> None:
    def make_loader(count: int) -> Any:
        if "batch_sampler" in options:
            return lasting(Calls(int, 11), count, batch_sampler=BatchSampler(sampler(), 2, False))
        return lasting(Calls(int, 11), count, sampler=sampler(), **options)

    check_resume(make_loader, (workers, workers), lambda state: json.loads(json.dumps(state)))


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
