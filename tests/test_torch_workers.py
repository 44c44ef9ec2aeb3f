"""Worker processes of feedline.torch.DataLoader as users see them: their info, their life, where they may run."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset, get_worker_info
from torch_making import LOADERS, Calls, Yields, drain, lists, make, ours, shard_of

import feedline
from feedline.torch import DataLoader
from feedline.torch.processes import choose_context

both = pytest.mark.parametrize("kind", list(LOADERS))


class Described(Dataset):
    """Says who made a sample."""

    def __init__(self, length: int = 8) -> None:
        self.length, self.offset = length, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, int, int, int]:
        info = get_worker_info()
        if info is None:
            return index + self.offset, -1, 0, os.getpid()
        assert info.dataset is self
        return index + self.offset, info.id, info.num_workers, os.getpid()


def makers(loader: Any) -> set[int]:
    """Give the process ids of the workers that made an epoch."""
    return {process for batch in loader for process in batch[3].tolist()}


@both
@pytest.mark.parametrize("workers", [0, 2])
def test_get_worker_info_names_the_worker(kind: str, workers: int) -> None:
    for _, number, count, process in make(kind, Described(), workers, batch_size=None):
        if workers:
            assert 0 <= number < count == workers
            assert process != os.getpid()
        else:
            assert (number, process) == (-1, os.getpid())
    assert get_worker_info() is None


@both
def test_worker_seeds_are_consecutive_and_torch_runs_one_thread_in_a_worker(kind: str) -> None:
    def describe(_: int) -> tuple[int, int, int]:
        info = get_worker_info()
        return info.id, info.seed, torch.get_num_threads()

    found = set(make(kind, Calls(describe, 64), 2, batch_size=None, collate_fn=lambda x: x))
    seeds = {number: seed for number, seed, threads in found}
    assert {threads for _, _, threads in found} == {1}
    assert seeds[1] == seeds[0] + 1


@both
def test_worker_init_fn_sees_the_dataset_of_its_worker_and_may_change_it(kind: str) -> None:
    def offset(worker: int) -> None:
        info = get_worker_info()
        assert info.id == worker
        info.dataset.offset = 100

    dataset = Described(4)
    batches = list(make(kind, dataset, 2, batch_size=2, worker_init_fn=offset))
    assert [batch[0].tolist() for batch in batches] == [[100, 101], [102, 103]]
    assert dataset.offset == 0


@both
def test_persistent_workers_live_as_long_as_the_loader_and_keep_their_dataset(kind: str) -> None:
    dataset = Described(16)
    loader = make(kind, dataset, 2, batch_size=2, persistent_workers=True)
    first = makers(loader)
    dataset.offset = 1000
    batches = list(loader)
    assert {process for batch in batches for process in batch[3].tolist()} <= first | makers(loader)
    assert len(first | makers(loader)) <= 2
    assert batches[0][0].tolist() == [0, 1]


@both
def test_other_workers_end_with_the_epoch_and_see_changes_of_the_dataset(kind: str) -> None:
    dataset = Described(16)
    loader = make(kind, dataset, 2, batch_size=2)
    first = makers(loader)
    dataset.offset = 1000
    batches = list(loader)
    assert first.isdisjoint(process for batch in batches for process in batch[3].tolist())
    assert batches[0][0].tolist() == [1000, 1001]


@both
@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_that_was_left_early_does_not_disturb_the_next(kind: str, persistent: bool) -> None:
    loader = make(kind, Calls(int, 20), 2, batch_size=2, persistent_workers=persistent)
    for _ in range(3):
        assert next(iter(loader)).tolist() == [0, 1]
    assert lists(loader) == [[i, i + 1] for i in range(0, 20, 2)]


@both
@pytest.mark.parametrize("workers", [0, 2])
def test_several_iterators_of_one_loader_run_at_once(kind: str, workers: int) -> None:
    loader = make(kind, Calls(int, 6), workers, batch_size=2)
    assert [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)] == [
        ([0, 1], [0, 1]),
        ([2, 3], [2, 3]),
        ([4, 5], [4, 5]),
    ]
    nested = [(a.tolist(), b.tolist()) for a in loader for b in loader]
    assert nested == [([i, i + 1], [j, j + 1]) for i in (0, 2, 4) for j in (0, 2, 4)]


@both
def test_several_iterators_of_a_loader_that_runs_natively_run_at_once(kind: str) -> None:
    loader = make(kind, TensorDataset(torch.arange(6)), 1, batch_size=2)
    batches = [[0, 1], [2, 3], [4, 5]]
    assert [(a.tolist(), b.tolist()) for (a,), (b,) in zip(loader, loader, strict=True)] == [(b, b) for b in batches]
    early = iter(loader)
    next(early)
    for _ in range(2):
        assert [batch.tolist() for (batch,) in loader] == batches
    assert [batch.tolist() for (batch,) in early] == batches[1:]


def test_an_iterator_that_runs_natively_goes_on_after_its_loader_went_back_to_a_state() -> None:
    loader = ours(TensorDataset(torch.arange(6)), 1, batch_size=2)
    early = iter(loader)
    next(early)
    loader.load_state_dict(loader.state_dict())
    assert [batch.tolist() for (batch,) in early] == [[2, 3], [4, 5]] == [batch.tolist() for (batch,) in loader]


def test_an_iterator_that_runs_natively_has_no_worker_processes() -> None:
    batches = iter(ours(TensorDataset(torch.arange(6)), 1, batch_size=2))
    next(batches)
    assert batches._workers == []
    batches._shutdown_workers()
    with pytest.raises(StopIteration):
        next(batches)


@both
def test_the_processes_of_an_iterator_can_be_read(kind: str) -> None:
    batches = iter(make(kind, Calls(int, 8), 2, batch_size=2))
    processes = batches._workers
    assert len({process.pid for process in processes}) == 2
    assert all(process.is_alive() for process in processes)
    assert len(list(batches)) == 4
    assert [process.pid for process in batches._workers] == [process.pid for process in processes]
    assert [process.exitcode for process in processes] == [0, 0]


@both
def test_deleting_an_iterator_ends_its_workers(kind: str) -> None:
    batches = iter(make(kind, Calls(int, 1000), 2))
    processes = batches._workers
    next(batches)
    del batches
    for process in processes:
        process.join(60)
        assert not process.is_alive()


@both
def test_a_loader_with_persistent_workers_and_its_iterator_end_without_the_cycle_collector(kind: str) -> None:
    loader = make(kind, Calls(int, 8), 2, batch_size=2, persistent_workers=True)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            assert len(list(loader)) == 4
        batches = iter(loader)
        processes, lives = batches._workers, weakref.ref(loader)
        del loader
        assert lives() is None
        assert len(list(batches)) == 4, "the iterator outlives the loader"
        del batches
        for process in processes:
            process.join(60)
            assert not process.is_alive()
    finally:
        gc.enable()


@both
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_of_a_loader_gives_the_same_batches(kind: str, copied: Callable[[Any], Any]) -> None:
    loader = make(kind, Described(6), 2, batch_size=2)
    expected = [batch[0].tolist() for batch in loader]
    other = copied(loader)
    assert type(other) is type(loader)
    assert [batch[0].tolist() for batch in other] == expected


def test_a_copy_of_a_loader_has_a_place_of_its_own() -> None:
    loader = ours(Calls(int, 8), 0, batch_size=2)
    batches = iter(loader)
    other = copy.copy(loader)
    next(batches)
    next(iter(other))
    next(batches)
    assert (loader.state_dict()["batches"], other.state_dict()["batches"]) == (2, 1)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_start_method_works_by_name_and_as_a_context_object(method: str) -> None:
    contexts = [torch.multiprocessing.get_context(method), method, multiprocessing.get_context(method)]
    # A spawned worker imports torch, which takes seconds.
    for context in contexts[:1] if method == "spawn" else contexts:
        loader = ours(Described(4), 1, batch_size=2, multiprocessing_context=context)
        assert loader.multiprocessing_context.get_start_method() == method
        assert [batch[0].tolist() for batch in loader] == [[0, 1], [2, 3]]


def test_lambdas_and_local_classes_work_with_every_start_method() -> None:
    class Local:
        def __getitem__(self, index: int) -> int:
            return index

        def __len__(self) -> int:
            return 4

    loader = ours(Local(), 1, batch_size=2, multiprocessing_context="forkserver", collate_fn=lambda x: x)
    assert list(loader) == [[0, 1], [2, 3]]


@both
def test_a_loader_works_in_a_thread(kind: str) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(lists(make(kind, Calls(int, 4), 2, batch_size=2))))
    thread.start()
    thread.join(60)
    assert found == [[0, 1], [2, 3]]


@both
def test_a_worker_may_use_a_loader_without_workers_but_not_start_processes(kind: str) -> None:
    def inner(workers: int) -> list[Any]:
        return lists(LOADERS[kind](Calls(int, 4), batch_size=2, num_workers=workers))

    loader = make(kind, Calls(lambda index: inner(0)), 1, batch_size=None, sampler=[0], collate_fn=lambda x: x)
    assert list(loader) == [[[0, 1], [2, 3]]]
    loader = make(kind, Calls(lambda index: inner(1)), 1, batch_size=None, sampler=[0])
    with pytest.raises(AssertionError, match="daemonic processes are not allowed to have children"):
        drain(loader)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_works_in_a_child_process(method: str) -> None:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    # The child has no daemon status, so it may have children.
    process = context.Process(target=send_batches, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == [[0, 1], [2, 3]]
    process.join(60)
    assert process.exitcode == 0


def send_batches(queue: Any) -> None:
    queue.put(lists(ours(Described(4), 2, batch_size=2, collate_fn=lambda x: torch.tensor([s[0] for s in x]))))


def test_a_forked_child_says_that_an_iterator_belongs_to_its_parent() -> None:
    batches = iter(ours(Calls(int, 100), 1, batch_size=2))
    next(batches)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def use() -> None:
        try:
            next(batches)
        except feedline.FeedlineError as error:
            queue.put(str(error))

    process = context.Process(target=use)
    process.start()
    assert "started in the parent process" in queue.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    assert next(batches).tolist() == [2, 3]


def test_a_number_of_workers_can_be_chosen_by_the_machine() -> None:
    loader = DataLoader(Calls(int, 4), num_workers="auto")
    assert loader.num_workers == len(os.sched_getaffinity(0))


def test_in_order_false_gives_all_batches_in_order() -> None:
    loader = ours(Calls(int, 20), 2, batch_size=2, in_order=False)
    assert lists(loader) == [[i, i + 1] for i in range(0, 20, 2)]
    loader = ours(Yields(lambda: shard_of(10)), 2, batch_size=2, in_order=False)
    assert lists(loader) == lists(make("torch", Yields(lambda: shard_of(10)), 2, batch_size=2))


def test_a_forked_child_can_read_a_batch_of_its_parent() -> None:
    batches = list(ours(Calls(lambda index: torch.full((1000,), float(index))), 2, batch_size=2))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=lambda: queue.put([batch.sum().item() for batch in batches]))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert queue.get(timeout=60) == [1000.0, 5000.0, 9000.0, 13000.0]


def test_batches_outlive_the_loader_and_can_be_written() -> None:
    loader = ours(Calls(lambda index: torch.full((4,), float(index))), 2, batch_size=2, persistent_workers=True)
    batches = list(loader)
    for batch in batches:
        batch += 1
    list(loader)
    del loader
    assert [batch[:, 0].tolist() for batch in batches] == [[1, 2], [3, 4], [5, 6], [7, 8]]


def test_a_start_method_that_the_program_set_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: "spawn")
    assert choose_context(None).get_start_method() == "spawn"
    assert choose_context("fork").get_start_method() == "fork"


def test_prefetch_factor_zero_prepares_one_batch_ahead() -> None:
    assert lists(ours(Calls(int, 4), 2, batch_size=2, prefetch_factor=0)) == [[0, 1], [2, 3]]
