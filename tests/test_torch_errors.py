"""Exceptions of user code, lost workers and time limits: what feedline.torch.DataLoader raises, and what it leaves."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from making import HANG_SECONDS
from torch_making import LOADERS, Calls, Yields, drain, make, ours, outcomes, shard_of

import feedline

both = pytest.mark.parametrize("kind", list(LOADERS))
LOST = r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly"


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
@pytest.mark.parametrize("workers", [0, 2])
def test_stop_iteration_in_getitem_ends_the_epoch_as_in_torch(kind: str, workers: int) -> None:
    loader = make(kind, Calls(raising(StopIteration(), at=4)), workers, batch_size=2)
    assert [batch.tolist() for batch in drain(loader)] == [[0, 1], [2, 3]]


def kill(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def quietly(function: Callable[[], Any]) -> Callable[[int], None]:
    """Call a function that ends the process, without a report of pytest's fault handler."""

    def lose(_: int) -> None:
        faulthandler.disable()
        function()

    return lose


LOSSES = {
    "kill -9": (kill, "is killed by signal: Killed"),
    "segfault": (quietly(lambda: ctypes.string_at(0)), "is killed by signal: Segmentation fault"),
    "os._exit": (lambda _: os._exit(7), "exit code 7"),
    "sys.exit": (lambda _: sys.exit(8), "exit code 8"),
    "abort": (quietly(os.abort), "is killed by signal: Aborted"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_lost_worker_is_named_with_its_signal_and_sample(name: str) -> None:
    lose, text = LOSSES[name]
    loader = ours(Calls(lambda index: index if index != 5 else lose(index)), 2, batch_size=2)
    batches = iter(loader)
    with pytest.raises(RuntimeError, match=LOST) as caught:
        list(batches)
    assert text in str(caught.value)
    assert re.search(r"while worker [01] made sample 5 of Calls", str(caught.value))
    # The loss must not look like the end of the epoch.
    with pytest.raises(RuntimeError, match=LOST):
        next(batches)


@both
@pytest.mark.parametrize("where", ["collate_fn", "worker_init_fn", "iterable"])
def test_a_worker_that_is_lost_anywhere_is_an_error(kind: str, where: str) -> None:
    dataset: Any = Yields(lambda: map(kill, range(3))) if where == "iterable" else Calls(int)
    options = {} if where == "iterable" else {where: kill}
    with pytest.raises(RuntimeError, match=LOST):
        drain(make(kind, dataset, 1, batch_size=2, **options))


@pytest.mark.parametrize("is_iterable", [False, True])
def test_persistent_workers_that_were_killed_between_epochs_are_an_error_once(is_iterable: bool) -> None:
    dataset: Any = Yields(lambda: shard_of(8)) if is_iterable else Calls(int)
    loader = ours(dataset, 2, batch_size=2, persistent_workers=True)
    expected = sorted(sum((batch.tolist() for batch in loader), []))
    for process in loader._iterator._workers:
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=LOST):
        list(loader)
    assert sorted(sum((batch.tolist() for batch in loader), [])) == expected


def kill_once(path: Path) -> Callable[[int], int]:
    """Give a function that kills its process at sample 5, the first time."""

    def sample(index: int) -> int:
        if index == 5 and not path.exists():
            path.touch()
            kill(index)
        return index

    return sample


@pytest.mark.parametrize("mode", ["sample", "unit", "iterable"])
def test_a_killed_worker_is_replaced_and_every_sample_arrives_once(mode: str, tmp_path: Path) -> None:
    sample = kill_once(tmp_path / "killed")
    options: dict[str, Any] = {"collate_fn": torch.tensor} if mode == "unit" else {}
    dataset: Any = Yields(lambda: map(sample, shard_of(20))) if mode == "iterable" else Calls(sample, 20)
    loader = ours(dataset, 2, batch_size=2, on_error="restart", **options)
    found = [batch.tolist() for batch in loader]
    assert sorted(sum(found, [])) == list(range(20))
    if mode != "iterable":
        assert sum(found, []) == list(range(20))
    assert (tmp_path / "killed").exists()


def test_a_sample_that_kills_every_worker_ends_the_run() -> None:
    loader = ours(Calls(lambda index: kill(index) if index == 1 else index), 1, on_error="restart")
    with pytest.raises(RuntimeError, match=LOST):
        list(loader)


def test_a_bad_sample_can_be_substituted() -> None:
    loader = ours(Calls(raising(ValueError("wrong"))), 2, batch_size=2, on_error=feedline.substitute(max_fraction=0.2))
    found = [value for batch in loader for value in batch.tolist()]
    assert (len(found), 3 in found) == (8, False)


def test_a_stuck_worker_is_named_with_its_sample_and_its_stack() -> None:
    def stuck_here(index: int) -> int:
        if index == 2:
            time.sleep(HANG_SECONDS)
        return index

    batches = iter(ours(Calls(stuck_here), 2, timeout=1))
    assert [next(batches).tolist() for _ in range(2)] == [[0], [1]]
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"DataLoader timed out after 1 seconds") as caught:
            next(batches)
    assert re.search(r"worker [01] \(pid \d+\) works on sample 2\n", str(caught.value))
    assert "in stuck_here" in str(caught.value)


@both
def test_a_timeout_needs_workers(kind: str) -> None:
    with pytest.raises(AssertionError, match="timeout"):
        iter(make(kind, Calls(int), 0, timeout=1))


def test_an_unpicklable_dataset_is_named_by_attribute() -> None:
    dataset = Calls(int)
    dataset.stream = (i for i in range(3))  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"dataset\.stream"):
        iter(ours(dataset, 1, multiprocessing_context="forkserver"))


def test_nothing_is_left_of_twenty_loaders() -> None:
    def use(number: int) -> None:
        sample = Calls(lambda index: kill(index) if number == 3 and index == 5 else torch.ones(1000), 20)
        batches = iter(ours(sample, 2, batch_size=4))
        for _ in range(number):
            next(batches)

    gc.collect()
    files, memory = len(os.listdir("/proc/self/fd")), set(os.listdir("/dev/shm"))
    children = set(psutil.Process().children())
    for number in range(20):
        with pytest.raises(RuntimeError, match=LOST) if number % 5 == 3 else nullcontext():
            use(number % 5)
        gc.collect()
    assert set(psutil.Process().children()) <= children
    assert len(os.listdir("/proc/self/fd")) <= files
    assert set(os.listdir("/dev/shm")) <= memory


LOOP = """
import os, sys
sys.path[:0] = sys.argv[2:]
import time, torch
from torch_making import Calls, ours
def sample(index):
    time.sleep(0.01)
    return torch.ones(100) * index
loader = ours(Calls(sample, 10**6), 2, batch_size=2, persistent_workers=True)
batches = iter(loader)
next(batches)
print(*(worker.pid for worker in batches._workers), flush=True)
if sys.argv[1] == "exit":
    sys.exit(0)
for batch in batches:
    pass
"""


@pytest.mark.parametrize("how", ["SIGINT", "SIGKILL", "SIGTERM", "exit"])
def test_however_the_program_ends_its_workers_end_too(how: str, start_python: Callable[..., Any]) -> None:
    process = start_python(LOOP, how, Path(feedline.__file__).parent.parent)
    workers = [int(text) for text in process.stdout.readline().split()]
    assert len(workers) == 2, process.stderr.read()
    if how != "exit":
        process.send_signal(getattr(signal, how))
    _, errors = process.communicate(timeout=HANG_SECONDS)
    if how == "SIGINT":
        assert "KeyboardInterrupt" in errors
        assert process.returncode != 0
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in workers if psutil.pid_exists(pid)], HANG_SECONDS)
    assert not alive
