"""Exceptions of user code: what feedline.torch.DataLoader raises, and how it goes on."""

from __future__ import annotations

import gc
import multiprocessing
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch_making import LOADERS, Calls, Yields, drain, make, ours, outcomes

import feedline

both = pytest.mark.parametrize("kind", list(LOADERS))


class NeedsTwo(Exception):
    """An exception that cannot be made from one text."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class HoldsLock(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = gc.get_objects


def raising(error: BaseException, at: int = 3) -> Callable[[int], int]:
    def sample(index: int) -> int:
        if index == at:
            raise error
        return index

    return sample


@both
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("wrong"), ValueError),
        (KeyError("missing"), KeyError),
        (IndexError("outside"), IndexError),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), RuntimeError),
        (NeedsTwo(1, 2), RuntimeError),
        (HoldsLock("held"), HoldsLock),
        (OSError(2, "no file"), OSError),
        (NotImplementedError(), NotImplementedError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_keeps_its_class_and_its_traceback(
    kind: str, workers: int, error: Exception, expected: type[Exception]
) -> None:
    loader = make(kind, Calls(raising(error)), workers, batch_size=2)
    with pytest.raises(expected) as caught:
        drain(loader)
    text = str(caught.value)
    assert re.match(rf"Caught {type(error).__name__} in DataLoader worker process [01]\.\n", text)
    assert "Original Traceback" in text
    assert "in sample\n" in text, "the line that raised"
    assert str(error) in text


@both
def test_without_workers_the_exception_itself_is_raised(kind: str) -> None:
    error = NeedsTwo(1, 2)
    with pytest.raises(NeedsTwo) as caught:
        drain(make(kind, Calls(raising(error)), batch_size=2))
    assert caught.value is error


@both
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_after_an_exception_the_next_batch_follows(kind: str, workers: int) -> None:
    found = outcomes(make(kind, Calls(raising(ValueError("wrong"))), workers, batch_size=2), 5)
    assert [type(outcome) for outcome in found] == [list, ValueError, list, list, StopIteration]
    assert [outcome for outcome in found if isinstance(outcome, list)] == [[0, 1], [4, 5], [6, 7]]


@both
@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_of_collate_fn_concerns_one_batch(kind: str, workers: int) -> None:
    def collate(samples: list[int]) -> list[int]:
        if 2 in samples:
            raise LookupError("not this one")
        return samples

    found = outcomes(make(kind, Calls(int, 6), workers, batch_size=2, collate_fn=collate), 4)
    assert (found[0], found[2], type(found[1]), type(found[3])) == ([0, 1], [4, 5], LookupError, StopIteration)


@both
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("sample", "error", "text"),
    [
        (lambda i: torch.zeros(i), RuntimeError, "stack expects each tensor to be equal size"),
        (lambda i: [0] * i, RuntimeError, "each element in list of batch should be of equal size"),
        (lambda i: None, TypeError, "default_collate: batch must contain tensors.*NoneType"),
        (lambda i: object(), TypeError, "default_collate: batch must contain tensors"),
        (lambda i: {"a": i} if i % 2 == 0 else {"b": i}, KeyError, "a"),
        (lambda i: torch.eye(2).to_sparse(), RuntimeError, "Batches of sparse tensors are not currently supported"),
    ],
    ids=["tensors", "lists", "None", "object", "keys", "sparse"],
)
def test_samples_that_do_not_collate_raise_the_error_of_torch(
    kind: str, workers: int, sample: Callable[[int], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        drain(make(kind, Calls(sample), workers, batch_size=2))


@both
def test_an_exception_of_worker_init_fn_comes_with_the_first_batch(kind: str) -> None:
    def fail(worker: int) -> None:
        raise ValueError(f"no licence for {worker}")

    with pytest.raises(ValueError, match=r"Caught ValueError in DataLoader worker process 0\.[\s\S]*no licence for 0"):
        drain(make(kind, Calls(int), 1, worker_init_fn=fail))


@pytest.mark.parametrize(("kind", "workers"), [("torch", 0), ("feedline", 0), ("feedline", 1)])
def test_an_exception_of_the_sampler_is_raised_as_it_is(kind: str, workers: int) -> None:
    def sampler() -> Iterator[int]:
        raise ZeroDivisionError("no first index")
        yield 0

    with pytest.raises(ZeroDivisionError, match="no first index"):
        drain(make(kind, Calls(int), workers, sampler=sampler()))


def test_batches_before_an_exception_of_the_sampler_are_delivered() -> None:
    def sampler() -> Iterator[int]:
        yield from range(4)
        raise ZeroDivisionError("no fifth index")

    for workers in (0, 2):
        found = outcomes(ours(Calls(int), workers, batch_size=2, sampler=sampler()), 3)
        assert found[:2] == [[0, 1], [2, 3]]
        assert isinstance(found[2], ZeroDivisionError)


@both
@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_of_an_iterable_dataset_is_raised(kind: str, workers: int) -> None:
    def early() -> Iterator[int]:
        raise ValueError("no iterator")

    def late() -> Iterator[int]:
        yield 1
        raise ValueError("no second item")

    with pytest.raises(ValueError, match="no iterator"):
        drain(make(kind, Yields(early), workers))
    found = outcomes(make(kind, Yields(late), workers), 3)
    assert found[0] == [1]
    assert isinstance(found[1], ValueError)
    assert isinstance(found[2], StopIteration)


@both
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_no_item_of_an_iterable_dataset_is_lost_after_an_exception(kind: str, workers: int) -> None:
    def collate(samples: list[int]) -> list[int]:
        if 2 in samples:
            raise LookupError("not this one")
        return samples

    found = outcomes(make(kind, Yields(lambda: iter(range(8))), workers, batch_size=2, collate_fn=collate), 9)
    own = [[0, 1], LookupError, [4, 5], [6, 7]]
    expected = [item for item in own for _ in range(max(workers, 1))]
    assert [type(item) if isinstance(item, Exception) else item for item in found[: len(expected)]] == expected


@both
@pytest.mark.parametrize("workers", [0, 2])
def test_stop_iteration_in_getitem_ends_the_epoch_as_in_torch(kind: str, workers: int) -> None:
    loader = make(kind, Calls(raising(StopIteration(), at=4)), workers, batch_size=2)
    assert [batch.tolist() for batch in drain(loader)] == [[0, 1], [2, 3]]


@both
@pytest.mark.parametrize("workers", [0, 2])
def test_an_empty_list_of_a_batch_sampler_raises_in_the_default_collation_only(kind: str, workers: int) -> None:
    # The second time, the worker has learnt which arrays the samples have.
    sampler = [[1], [], [2], []]
    found = outcomes(make(kind, Calls(int), workers, batch_sampler=sampler), 5)
    assert [type(outcome) for outcome in found] == [list, IndexError, list, IndexError, StopIteration]
    assert list(make(kind, Calls(int), workers, batch_sampler=sampler, collate_fn=len)) == [1, 0, 1, 0]


def test_a_bad_sample_can_be_substituted(caplog: pytest.LogCaptureFixture) -> None:
    loader = ours(Calls(raising(ValueError("wrong"))), 2, batch_size=2, on_error=feedline.substitute(max_fraction=0.2))
    found = [value for batch in loader for value in batch.tolist()]
    assert (len(found), 3 in found) == (8, False)
    assert "ValueError: wrong" in caplog.text


def test_only_samples_with_whole_numbers_and_the_default_collation_are_substituted() -> None:
    """Other indices belong to a whole batch, which is made in one call. It must not be made again for each attempt."""
    names = ["zero", "one", "two", "three", "four", "five"]
    made = multiprocessing.get_context("fork").Value("i", 0)

    def sample(index: Any) -> int:
        made.value += 1
        return raising(ValueError("wrong"))(names.index(index) if isinstance(index, str) else index)

    for options in ({"sampler": names}, {"collate_fn": list}, {"batch_size": None}):
        made.value = 0
        substitute = feedline.substitute(max_fraction=1.0)
        loader = ours(Calls(sample, 6), 1, **({"batch_size": 6} | options), on_error=substitute)
        with pytest.raises(ValueError, match="wrong"):
            drain(loader)
        assert 4 <= made.value <= 6


def test_a_substitute_needs_a_dataset_with_a_length() -> None:
    class Endless:
        def __getitem__(self, index: int) -> int:
            return index

    for dataset in (Endless(), Yields(lambda: iter([1]))):
        with pytest.raises(feedline.PlanError, match="the dataset needs a length"):
            ours(dataset, 1, on_error=feedline.substitute())


@both
def test_a_timeout_needs_workers(kind: str) -> None:
    with pytest.raises(AssertionError, match="timeout"):
        iter(make(kind, Calls(int), 0, timeout=1))


def test_an_unpicklable_dataset_is_named_by_attribute() -> None:
    dataset = Calls(int)
    dataset.stream = (i for i in range(3))  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"dataset\.stream"):
        iter(ours(dataset, 1, multiprocessing_context="forkserver"))
