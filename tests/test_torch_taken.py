"""Small batches that are ready are taken from the engine together: each still comes, fails and counts in its turn."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch.utils.data import Sampler
from torch_making import Calls, lists, ours, outcomes

import feedline

LIMIT_SECONDS = 60
Begun = Callable[[Any], Any]


@pytest.fixture
def begun(wait_until: Callable[..., None]) -> Begun:
    """Begin an epoch, and take one batch when all that were requested are ready. The iterator then holds the others."""

    def begin(loader: Any) -> Any:
        batches = iter(loader)
        wait_until(lambda: loader.snapshot()["queue"]["ready_batches"] >= batches._requested, "all batches are ready")
        next(batches)
        assert len(batches._taken) >= 3
        return batches

    return begin


def test_law_4_a_state_counts_what_was_delivered_not_what_was_taken(begun: Begun) -> None:
    loader = ours(Calls(int, 40), 2, batch_size=2, shuffle=True, seed=3)
    batches = begun(loader)
    state = loader.state_dict()
    assert state["batches"] == 1
    rest = lists(batches)
    loader.load_state_dict(state)
    assert lists(loader) == rest
    assert len(rest) == 19


def test_an_exception_comes_in_its_turn(begun: Begun) -> None:
    loader = ours(Calls(lambda index: index // (index != 5), 12), 2, batch_size=2)
    batches = begun(loader)
    assert next(batches).tolist() == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(batches)
    assert loader.state_dict()["batches"] == 3
    assert lists(batches) == [[6, 7], [8, 9], [10, 11]]


def test_batches_that_were_taken_come_before_the_loss_of_a_worker(begun: Begun) -> None:
    loader = ours(Calls(int, 200), 2, batch_size=2)
    batches = begun(loader)
    taken = len(batches._taken)
    for worker in batches._workers:
        os.kill(worker.pid, signal.SIGKILL)
    for number in range(1, taken + 1):
        assert next(batches).tolist() == [2 * number, 2 * number + 1]
    with pytest.raises(RuntimeError, match="SIGKILL"):
        list(batches)
    with pytest.raises(RuntimeError, match="SIGKILL"):
        next(batches)


def test_the_last_batch_before_an_exception_of_the_sampler_is_delivered() -> None:
    def sampler() -> Iterator[list[int]]:
        yield [0, 1]
        raise ValueError("sampler")

    loader = ours(Calls(int), 1, batch_sampler=sampler(), prefetch_factor=1)
    batch, error = outcomes(loader, 2)
    assert batch == [0, 1]
    assert isinstance(error, ValueError)


class Grows(Sampler[list[int]]):
    """Its length is that of the last epoch until it begins."""

    def __init__(self) -> None:
        self.length = 2

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[list[int]]:
        self.length += 1
        return iter([[index] for index in range(self.length)])


@pytest.mark.parametrize("workers", [0, 1])
def test_law_4_a_sampler_may_know_its_length_only_when_it_begins(workers: int) -> None:
    loader = ours(Calls(int), workers, batch_sampler=Grows())
    batches = iter(loader)
    next(batches), next(batches)
    assert loader.state_dict()["batches"] == 2
    next(batches)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (1, 0)


def interrupted_once() -> str:
    if not interrupts:
        interrupts.append(True)
        raise KeyboardInterrupt
    return "made"


interrupts: list[bool] = []


class InterruptsUnpickling:
    """A sample whose unpickling is interrupted the first time."""

    def __reduce__(self) -> Any:
        return interrupted_once, ()


def test_no_batch_is_lost_if_ctrl_c_comes_while_it_is_put_together() -> None:
    interrupts.clear()
    dataset = Calls(lambda index: InterruptsUnpickling() if index == 2 else index, 6)
    loader = ours(dataset, 1, batch_size=None)
    batches = iter(loader)
    seen: list[Any] = []
    while True:
        try:
            seen.extend(batches)
            break
        except KeyboardInterrupt:
            continue
    assert interrupts
    assert seen == [0, 1, "made", 3, 4, 5]


def test_large_batches_are_taken_one_by_one(wait_until: Callable[..., None]) -> None:
    loader = ours(Calls(lambda index: bytes(700_000), 8), 1, batch_size=1, memory_budget="100MB")
    batches = iter(loader)
    wait_until(lambda: loader.snapshot()["queue"]["ready_batches"] >= 2, "two batches are ready")
    next(batches)
    assert len(batches._taken) == 0


def test_too_many_bad_samples_are_reported_again_and_again() -> None:
    dataset = Calls(lambda index: index if index < 6 else 1 // 0, 12)
    loader = ours(dataset, 1, batch_size=2, on_error=feedline.substitute(max_fraction=0.1))
    batches = iter(loader)
    with pytest.raises(feedline.TooManyFailuresError):
        list(batches)
    with pytest.raises(feedline.TooManyFailuresError):
        next(batches)
