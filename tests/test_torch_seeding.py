"""Random numbers: those of torch's DataLoader with seeding="torch", and those of samples with seeding="sample"."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import RandomSampler, Sampler, WeightedRandomSampler
from torch_making import Calls, Yields, make, ours, plain, shard_of

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def draw(index: Any) -> tuple[Any, ...]:
    """Give an index and a number of each generator."""
    return index, random.random(), np.random.rand(), torch.rand(2), random.gauss(0, 1)


class DrawsAtOnce(Sampler):
    """Draws its order when ``iter`` is called, and not before the first index."""

    def __len__(self) -> int:
        return 9

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(9).tolist())


class DrawsEach(DrawsAtOnce):
    """Draws each index from all global generators."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(9):
            yield (int(torch.randint(9, ())) + random.randrange(9) + np.random.randint(9)) % 9


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def states() -> list[Any]:
    return [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]


def epochs(loader: Any, count: int = 2) -> list[Any]:
    return [[plain(batch) for batch in loader] for _ in range(count)]


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize(("persistent", "has_generator"), [(False, False), (False, True), (True, True)])
def test_seeding_torch_gives_the_batches_of_torch_bit_for_bit(
    workers: int, persistent: bool, has_generator: bool
) -> None:
    def run(kind: str, **options: Any) -> tuple[Any, ...]:
        seed_all(11)
        generator = torch.Generator().manual_seed(5) if has_generator else None
        loader = make(
            kind, Calls(draw, 11), workers, batch_size=2, shuffle=True, generator=generator,
            persistent_workers=persistent and workers > 0, **options,
        )  # fmt: skip
        found = epochs(loader)
        # Also the caller's generators are used as torch uses them.
        return found, states(), generator and generator.get_state().tolist()

    assert run("feedline", seeding="torch") == run("torch")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", [DrawsAtOnce, DrawsEach, lambda: RandomSampler(range(9), replacement=True)])
def test_seeding_torch_draws_custom_samplers_as_torch_does(workers: int, sampler: Any) -> None:
    def run(kind: str, **options: Any) -> tuple[Any, ...]:
        seed_all(4)
        loader = make(kind, Calls(draw, 9), workers, batch_size=2, sampler=sampler(), prefetch_factor=None, **options)
        return epochs(loader), states()

    assert run("feedline", seeding="torch") == run("torch")


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_seeding_torch_gives_the_items_of_iterable_datasets_bit_for_bit(workers: int, persistent: bool) -> None:
    def run(kind: str, **options: Any) -> tuple[Any, ...]:
        seed_all(2)
        loader = make(
            kind, Yields(lambda: map(draw, shard_of(7))), workers, batch_size=2,
            persistent_workers=persistent and workers > 0, **options,
        )  # fmt: skip
        return epochs(loader), states()

    assert run("feedline", seeding="torch") == run("torch")


@pytest.mark.parametrize("options", [{}, {"collate_fn": lambda samples: samples}, {"batch_size": None}])
@pytest.mark.parametrize("sampler", [None, DrawsAtOnce, DrawsEach])
def test_law_1_seeding_by_sample_does_not_depend_on_the_number_of_workers(options: Any, sampler: Any) -> None:
    found = []
    for workers in (0, 1, 2, 4):
        seed_all(workers)
        order = {"shuffle": True} if sampler is None else {"sampler": sampler()}
        found.append(epochs(ours(Calls(draw, 9), workers, seed=7, **({"batch_size": 2} | options | order))))
    assert found[1:] == found[:-1]
    assert found[0][0] != found[0][1], "each epoch has an order and numbers of its own"


def test_an_item_of_an_iterable_dataset_has_the_same_numbers_without_workers_and_with_one() -> None:
    def shuffled() -> Iterator[Any]:
        order = list(range(7))
        random.shuffle(order)
        return map(draw, order)

    found = [epochs(ours(Yields(shuffled), workers, batch_size=2, seed=7)) for workers in (0, 1)]
    assert found[0] == found[1]


@pytest.mark.parametrize("sizes", [[3, 40], [40, 3]])
def test_the_numbers_of_an_iterable_dataset_do_not_depend_on_how_far_ahead_it_is_read(sizes: list[int]) -> None:
    def part() -> Iterator[Any]:
        return map(draw, range(sizes[torch.utils.data.get_worker_info().id]))

    found = [epochs(ours(Yields(part), 2, batch_size=2, seed=7, prefetch_factor=factor), 1) for factor in (1, 8, None)]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("is_iterable", [False, True])
def test_the_caller_s_generators_are_left_as_they_were(workers: int, is_iterable: bool) -> None:
    dataset: Any = Yields(lambda: map(draw, shard_of(6))) if is_iterable else Calls(draw, 6)
    options = {} if is_iterable else {"sampler": DrawsEach()}
    loader = ours(dataset, workers, batch_size=2, seed=7, **options)
    seed_all(1)
    before = states()
    epochs(loader)
    assert states() == before


def test_an_index_that_is_drawn_again_gets_other_random_numbers() -> None:
    for options in ({"collate_fn": lambda samples: samples}, {}):
        for workers in (0, 2):
            loader = ours(Calls(lambda index: random.random(), 4), workers, batch_size=2, sampler=[1] * 8, **options)
            values = {float(value) for batch in loader for value in batch}
            assert len(values) == 8


def test_manual_seed_decides_the_order_if_no_seed_is_given() -> None:
    def run(seed: int) -> Any:
        torch.manual_seed(seed)
        return epochs(ours(Calls(draw, 9), 2, batch_size=2, shuffle=True))

    assert run(3) == run(3) != run(4)


def test_a_generator_decides_the_order_if_no_seed_is_given() -> None:
    def run(seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        return epochs(ours(Calls(draw, 9), 2, batch_size=2, shuffle=True, generator=generator))

    assert run(3) == run(3) != run(4)


def test_without_seeding_workers_still_differ() -> None:
    def first_number(_: int) -> tuple[int, float]:
        return torch.utils.data.get_worker_info().id, random.random()

    found = list(ours(Calls(first_number, 64), 2, batch_size=None, seeding=None, collate_fn=lambda x: x))
    assert len({number for _, number in found}) == 64


def test_weighted_samplers_are_reproducible_by_seed() -> None:
    def run() -> Any:
        sampler = WeightedRandomSampler([1.0, 5.0, 2.0], 20)
        return epochs(ours(Calls(int, 3), 2, batch_size=4, sampler=sampler, seed=1))

    assert run() == run()


@pytest.mark.parametrize("seeding", ["torch", None])
def test_seeds_that_worker_init_fn_sets_last_unless_samples_are_seeded(seeding: Any) -> None:
    def worker_seeds(**options: Any) -> set[int]:
        dataset = Calls(lambda index: torch.initial_seed(), 4)
        return {
            int(seed)
            for batch in ours(dataset, 2, worker_init_fn=lambda _: seed_all(12345), **options)
            for seed in batch
        }

    assert worker_seeds(seeding=seeding) == {12345}
    assert len(worker_seeds()) == 4


def test_seeding_torch_gives_batches_to_workers_in_turn() -> None:
    loader = ours(Calls(lambda index: torch.utils.data.get_worker_info().id, 8), 2, batch_size=2, seeding="torch")
    assert [batch.tolist() for batch in loader] == [[0, 0], [1, 1]] * 2
