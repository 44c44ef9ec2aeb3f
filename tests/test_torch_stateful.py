"""The behaviours of torchdata's StatefulDataLoader, on feedline.torch.DataLoader. States have another format here."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, Sampler, get_worker_info
from torch_making import Calls, Yields, ours, plain
from torch_resuming import Counted, lasting, noisy

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
with_workers = pytest.mark.parametrize("workers", [0, 3])
STOPS = [0, 1, 4]


def epochs(loader: Any, count: int = 1) -> list[Any]:
    return [[plain(batch) for batch in loader] for _ in range(count)]


def own_part(sizes: list[int]) -> range:
    """Give the part of a worker, if the workers have parts of these sizes. Without workers, give all."""
    info = get_worker_info()
    if info is None:
        return range(sum(sizes))
    return range(sum(sizes[: info.id]), sum(sizes[: info.id + 1]))


class Epochs(IterableDataset):
    """Counts its epochs, as a dataset does that shuffles differently in each."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.epoch, self.given, self.start = sizes, 0, 0, 0

    def __iter__(self) -> Iterator[Any]:
        self.given, self.start = self.start, 0
        for number in own_part(self.sizes)[self.given :]:
            self.given += 1
            yield number, self.epoch
        self.given = 0
        self.epoch += 1

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start, self.epoch = state["given"], state["epoch"]


class Resumed(IterableDataset):
    """Takes a loaded state when its generator runs, and counts from the start in each epoch."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.given, self.start = sizes, 0, 0

    def __iter__(self) -> Iterator[Any]:
        self.given, self.start = self.start, 0
        for number in own_part(self.sizes)[self.given :]:
            self.given += 1
            yield noisy(number)

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["given"]


class OwnIterator(IterableDataset):
    """Is its own iterator. A state can be loaded only after ``__iter__``."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.calls = sizes, 0

    def __iter__(self) -> OwnIterator:
        self.calls += 1
        self.numbers = list(own_part(self.sizes))
        return self

    def __next__(self) -> Any:
        if not self.numbers:
            raise StopIteration
        return noisy(self.numbers.pop(0))

    def state_dict(self) -> dict[str, Any]:
        return {"left": len(self.numbers), "calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.numbers = self.numbers[len(self.numbers) - state["left"] :]


class Place(Iterator[int]):
    """An iterator with a state."""

    def __init__(self, numbers: Sequence[int], offset: int = 0) -> None:
        self.numbers, self.place, self.offset = numbers, 0, offset

    def __next__(self) -> Any:
        if self.place == len(self.numbers):
            raise StopIteration
        self.place += 1
        return self.numbers[self.place - 1] + self.offset

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


class BothStates(IterableDataset):
    """Has a state, and its iterators have one, too."""

    def __init__(self, sizes: list[int], offset: int = 0) -> None:
        self.sizes, self.offset = sizes, offset

    def __iter__(self) -> Place:
        return Place(own_part(self.sizes), self.offset)

    def state_dict(self) -> dict[str, int]:
        return {"offset": self.offset}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.offset = state["offset"]


class PlaceSampler(Sampler):
    """Has no state, but its iterators have one."""

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Place:
        return Place(range(40))


SIZES = [0, 20, 9]
DATASETS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "map": lambda: (Calls(noisy, 40), {"shuffle": True}),
    "iterator of the sampler": lambda: (Calls(noisy, 40), {"sampler": PlaceSampler()}),
    "epochs": lambda: (Epochs(SIZES), {}),
    "resumed": lambda: (Resumed(SIZES), {}),
    "own iterator": lambda: (OwnIterator(SIZES), {}),
    "both states": lambda: (BothStates(SIZES), {}),
    "no state": lambda: (Yields(lambda: map(noisy, own_part(SIZES))), {}),
}
any_dataset = pytest.mark.parametrize("name", DATASETS)


def make_loader(name: str, workers: int, batch_size: int | None = 2, **options: Any) -> Any:
    dataset, own = DATASETS[name]()
    return ours(dataset, workers, batch_size=batch_size, seed=3, collate_fn=lambda value: value, **own, **options)


@any_dataset
@with_workers
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_rest_of_an_epoch_follows_from_a_state(
    name: str, workers: int, persistent: bool, batch_size: int | None
) -> None:
    options = {"batch_size": batch_size, "persistent_workers": persistent and workers > 0}
    for stop in STOPS:
        loader = make_loader(name, workers, **options)
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        expected = epochs(batches)
        other = make_loader(name, workers, **options)
        other.load_state_dict(state)
        assert epochs(other) == expected


@any_dataset
@with_workers
def test_the_rest_of_a_later_epoch_follows_from_a_state(name: str, workers: int) -> None:
    options = {"persistent_workers": workers > 0}
    for stop in STOPS:
        loader = make_loader(name, workers, **options)
        epochs(loader, 2)
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        expected = [*epochs(batches), *epochs(loader)]
        other = make_loader(name, workers, **options)
        other.load_state_dict(state)
        assert epochs(other, 2) == expected, f"after {stop} batches"


def test_workers_that_replace_persistent_ones_begin_with_the_dataset_of_the_program() -> None:
    def begin() -> Any:
        return lasting(Epochs([6, 6]), 2, batch_size=2, collate_fn=lambda value: value)

    loader = begin()
    first = epochs(loader)
    loader._iterator._shutdown_workers()
    batches = iter(loader)
    state = loader.state_dict()
    assert [[plain(batch) for batch in batches]] == first
    other = begin()
    other.load_state_dict(state)
    assert epochs(other) == first


def test_arguments_of_torchdata_are_taken() -> None:
    loader = ours(Calls(int, 8), 2, batch_size=2, snapshot_every_n_steps=3, spawn_worker_start_parallelism=2)
    batches = iter(loader)
    next(batches)
    assert (loader.snapshot_every_n_steps, loader.state_dict()["batches"]) == (3, 1)
    with pytest.raises(ValueError, match="spawn_worker_start_parallelism is 0; it must be positive"):
        ours(Calls(int, 8), spawn_worker_start_parallelism=0)


@any_dataset
@with_workers
def test_a_state_from_before_the_first_epoch_gives_all_epochs_again(name: str, workers: int) -> None:
    options = {"persistent_workers": workers > 0}
    loader = make_loader(name, workers, **options)
    before = loader.state_dict()
    expected = epochs(loader, 2)
    other = make_loader(name, workers, **options)
    batches = iter(other)
    next(batches)
    other.load_state_dict(before)
    assert epochs(other, 2) == expected


def test_persistent_workers_that_went_on_to_the_next_epoch_are_replaced_when_a_state_is_loaded() -> None:
    loader = lasting(Epochs([6, 6]), 2, batch_size=2, collate_fn=lambda value: value)
    before = loader.state_dict()
    first = epochs(loader)
    processes = loader._iterator._workers
    loader.load_state_dict(before)
    assert epochs(loader) == first
    assert not {process.pid for process in processes} & {process.pid for process in loader._iterator._workers}


@any_dataset
@with_workers
def test_a_state_between_epochs_gives_the_next_epochs(name: str, workers: int) -> None:
    options = {"persistent_workers": workers > 0}
    loader = make_loader(name, workers, **options)
    epochs(loader, 2)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = epochs(loader, 2)
    other = make_loader(name, workers, **options)
    for _ in range(2):
        # Also from the middle of an epoch, and a second time.
        next(iter(other))
        other.load_state_dict(state)
        assert epochs(other, 2) == expected


def test_workers_that_do_not_stay_begin_each_epoch_with_the_dataset_of_the_program() -> None:
    loader = ours(Epochs([6, 6]), 2, batch_size=2, collate_fn=lambda value: value)
    first = epochs(loader)
    other = ours(Epochs([6, 6]), 2, batch_size=2, collate_fn=lambda value: value)
    other.load_state_dict(loader.state_dict())
    assert epochs(loader) == epochs(other) == first


@any_dataset
@with_workers
def test_a_loaded_state_is_the_state_until_the_next_batch(name: str, workers: int) -> None:
    loader = make_loader(name, workers)
    batches = iter(loader)
    states = [loader.state_dict()]
    for _ in range(3):
        next(batches)
        states.append(loader.state_dict())
    kept = copy.deepcopy(states)
    list(batches)
    assert states == kept, "later batches do not change a state"
    for state in (states[2], states[0], states[3]):
        loader.load_state_dict(state)
        assert loader.state_dict() == state


@any_dataset
@with_workers
def test_a_continued_epoch_may_be_stopped_again_before_every_worker_gave_a_batch(name: str, workers: int) -> None:
    loader = make_loader(name, workers)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    state = loader.state_dict()
    next(batches)
    after = loader.state_dict()
    expected = epochs(batches)
    second = make_loader(name, workers)
    second.load_state_dict(state)
    next(iter(second))
    assert second.state_dict() == after
    third = make_loader(name, workers)
    third.load_state_dict(second.state_dict())
    assert epochs(third) == expected


@with_workers
def test_a_state_of_the_dataset_is_loaded_although_its_iterator_has_one_too(workers: int) -> None:
    loader = ours(BothStates([8, 8, 8], 100), workers, batch_size=None)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    other = ours(BothStates([8, 8, 8]), workers, batch_size=None)
    other.load_state_dict(state)
    rest = list(batches)
    if workers == 0:
        assert rest == list(other)
        return
    # Workers that gave nothing yet have no state, so they begin with their own dataset.
    assert [number for number in other if number >= 100] == [number for number in rest if number < 108]


def test_a_dataset_that_is_its_own_iterator_is_begun_once() -> None:
    loader = ours(OwnIterator([8, 8]), 2, batch_size=None, collate_fn=lambda value: value)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    other = ours(OwnIterator([8, 8]), 2, batch_size=None, collate_fn=lambda value: value)
    other.load_state_dict(loader.state_dict())
    batches = iter(other)
    next(batches), next(batches)
    assert [state["iterator"]["calls"] for state in other.state_dict()["iterable"]["states"]] == [1, 1]


@with_workers
def test_a_state_after_the_last_batch_is_that_of_the_next_epoch(workers: int) -> None:
    def make_map() -> Any:
        return ours(Calls(noisy, 8), workers, batch_size=2, shuffle=True, seed=1)

    loader = make_map()
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    assert next(batches, None) is None
    assert loader.state_dict() == state
    other = make_map()
    other.load_state_dict(state)
    assert epochs(other) == epochs(loader)


@with_workers
def test_a_state_after_a_last_batch_that_raised_is_that_of_the_next_epoch(workers: int) -> None:
    loader = ours(Calls(noisy, 6), workers, batch_size=2, seed=1, collate_fn=failing)
    after_two_and_a_failure(loader)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (1, 0)


def failing(samples: list[Any]) -> list[Any]:
    if 4 in [sample[0] for sample in samples]:
        raise LookupError("not this one")
    return samples


def after_two_and_a_failure(loader: Any) -> Any:
    """Begin an epoch. Give its iterator after two batches and one that raised."""
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    with pytest.raises(LookupError):
        next(batches)
    return batches


@with_workers
@pytest.mark.parametrize("name", ["map", "state", "no state"])
def test_a_batch_that_raised_is_not_made_again_from_a_later_state(workers: int, name: str) -> None:
    workers = min(workers, 1) if name != "map" else workers
    dataset = {"map": Calls(noisy, 12), "state": Counted(12), "no state": Yields(lambda: map(noisy, range(12)))}[name]

    def make_failing() -> Any:
        return ours(copy.deepcopy(dataset), workers, batch_size=2, seed=1, collate_fn=failing)

    for later in range(2):
        loader = make_failing()
        batches = after_two_and_a_failure(loader)
        for _ in range(later):
            next(batches)
        state = loader.state_dict()
        expected = epochs(batches)
        assert len(expected[0]) == 3 - later
        other = make_failing()
        other.load_state_dict(state)
        assert epochs(other) == expected


def test_a_sampler_with_a_state_is_continued_after_a_batch_that_raised() -> None:
    class Position(PlaceSampler):
        place = 0

        def __iter__(self) -> Any:
            while self.place < 12:
                self.place += 1
                yield self.place - 1

        def state_dict(self) -> dict[str, int]:
            return {"place": self.place}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.place = state["place"]

    def make_failing() -> Any:
        return ours(Calls(noisy, 12), 2, batch_size=2, seed=1, collate_fn=failing, sampler=Position())

    loader = make_failing()
    batches = after_two_and_a_failure(loader)
    next(batches)
    state = loader.state_dict()
    other = make_failing()
    other.load_state_dict(state)
    assert epochs(other) == epochs(batches)


def test_with_other_workers_a_state_between_epochs_of_an_iterable_dataset_begins_the_epoch() -> None:
    loader = lasting(Epochs([4, 4]), 2, batch_size=2, collate_fn=lambda value: value)
    list(loader)
    other = lasting(Epochs([4, 4, 4]), 3, batch_size=2, collate_fn=lambda value: value)
    other.load_state_dict(loader.state_dict())
    assert len(list(other)) == 6


@with_workers
def test_an_order_that_is_drawn_when_the_iterator_is_made_is_drawn_again(workers: int) -> None:
    def shuffled() -> Place:
        return Place([list(own_part([9, 9, 9]))[place] for place in torch.randperm(len(own_part([9, 9, 9])))])

    loader = ours(Yields(shuffled), workers, batch_size=2, seed=2)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    other = ours(Yields(shuffled), workers, batch_size=2, seed=2)
    other.load_state_dict(loader.state_dict())
    assert epochs(other) == epochs(batches)


@with_workers
def test_the_generators_of_torch_in_a_state_of_a_dataset_do_not_disturb_seeded_samples(workers: int) -> None:
    class Drawing(Place):
        def __next__(self) -> Any:
            return super().__next__(), torch.randint(1000, ()).item()

        def state_dict(self) -> dict[str, Any]:
            return {"place": self.place, "generator": torch.get_rng_state()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.place = state["place"]
            torch.set_rng_state(state["generator"])

    def make_drawing() -> Any:
        return ours(Yields(lambda: Drawing(own_part([9, 9, 9]))), workers, batch_size=2, seed=2)

    loader = make_drawing()
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    other = make_drawing()
    other.load_state_dict(state)
    assert epochs(other) == epochs(batches)
