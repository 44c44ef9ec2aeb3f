"""Iterable datasets and data pipes: feedline.torch.DataLoader gives what torch's DataLoader gives."""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import ChainDataset, IterableDataset, get_worker_info
from torch_making import LOADERS, WORKERS, Yields, lists, make, ours, plain, shard_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.utils.data.datapipes.iter import IterableWrapper
    from torch.utils.data.datapipes.map import SequenceWrapper

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
both = pytest.mark.parametrize("kind", list(LOADERS))
with_workers = pytest.mark.parametrize("workers", [*WORKERS, 3])


def uneven(sizes: list[int]) -> Iterator[int]:
    """Yield as many items as a list says for this worker, each named by its worker."""
    info = get_worker_info()
    worker = 0 if info is None else info.id
    yield from range(100 * worker, 100 * worker + sizes[worker])


def check(dataset: Any, workers: int, **options: Any) -> list[Any]:
    """Check that both loaders give the same batches, and return them."""
    expected = list(make("torch", dataset, workers, **options))
    found = list(ours(dataset, workers, **options))
    assert [plain(batch) for batch in found] == [plain(batch) for batch in expected]
    return found


@with_workers
@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_a_dataset_that_splits_itself_gives_each_item_once_in_torch_s_order(
    workers: int, batch_size: int | None
) -> None:
    found = check(Yields(lambda: shard_of(11)), workers, batch_size=batch_size)
    values = [found] if batch_size is None else [batch.tolist() for batch in found]
    assert sorted(itertools.chain(*values)) == list(range(11))


@with_workers
def test_a_dataset_that_does_not_split_itself_is_repeated_by_each_worker(workers: int) -> None:
    found = check(Yields(lambda: iter(range(4))), workers, batch_size=2)
    assert sorted(sum((batch.tolist() for batch in found), [])) == sorted(list(range(4)) * max(workers, 1))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("sizes", [[0, 7, 3], [5, 0, 0], [1, 1, 8], [0, 0, 0]])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_workers_whose_parts_end_unevenly_give_torch_s_order(
    sizes: list[int], drop_last: bool, batch_size: int | None
) -> None:
    if batch_size is None and drop_last:
        return
    check(Yields(lambda: uneven(sizes)), 3, batch_size=batch_size, drop_last=drop_last)


@both
def test_worker_init_fn_may_split_the_dataset(kind: str) -> None:
    class Range(IterableDataset):
        first, last = 0, 8

        def __iter__(self) -> Iterator[int]:
            return iter(range(self.first, self.last))

    def split(worker: int) -> None:
        dataset = get_worker_info().dataset
        dataset.first, dataset.last = 4 * worker, 4 * worker + 4

    assert lists(make(kind, Range(), 2, batch_size=4, worker_init_fn=split)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@both
@with_workers
@pytest.mark.parametrize("persistent", [False, True])
def test_each_epoch_begins_the_dataset_again(kind: str, workers: int, persistent: bool) -> None:
    if persistent and not workers:
        return
    loader = make(kind, Yields(lambda: shard_of(7)), workers, batch_size=2, persistent_workers=persistent)
    first = lists(loader)
    next(iter(loader))
    assert lists(loader) == first
    assert sorted(sum(first, [])) == list(range(7))


@both
@pytest.mark.parametrize("workers", [0, 2])
def test_an_infinite_dataset_gives_items_without_end(kind: str, workers: int) -> None:
    loader = make(kind, Yields(itertools.count), workers, batch_size=2)
    expected = [[0, 1], [2, 3]] if workers == 0 else [[0, 1], [0, 1]]
    assert [batch.tolist() for batch in itertools.islice(loader, 2)] == expected


@both
@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_fn_gets_the_samples_of_one_worker(kind: str, workers: int) -> None:
    loader = make(kind, Yields(lambda: shard_of(5)), workers, batch_size=2, collate_fn=tuple)
    assert list(loader) == ([(0, 1), (2, 3), (4,)] if workers == 0 else [(0, 2), (1, 3), (4,)])


@both
def test_items_may_be_of_any_kind(kind: str) -> None:
    items = [{"a": torch.ones(3, dtype=torch.bfloat16), "b": "text"}, "alone", None, (1, [2.5]), torch.zeros(0)]
    loader = make(kind, Yields(lambda: iter(items)), 1, batch_size=None, collate_fn=lambda x: x)
    assert [plain(item) for item in loader] == [plain(item) for item in items]


@both
def test_a_chain_of_datasets_is_one_dataset(kind: str) -> None:
    chain = ChainDataset([Yields(lambda: shard_of(3)), Yields(lambda: shard_of(2))])
    assert lists(make(kind, chain, 2)) == lists(make("torch", chain, 2))


@both
def test_an_iterator_that_ended_stays_ended(kind: str) -> None:
    for workers in (0, 2):
        batches = iter(make(kind, Yields(lambda: iter([1])), workers))
        assert len(list(batches)) == max(workers, 1)
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(batches)


@both
def test_after_its_end_the_dataset_is_not_asked_again(kind: str) -> None:
    class Ends:
        ended = False

        def __iter__(self) -> Ends:
            return self

        def __next__(self) -> int:
            assert not self.ended, "asked after the end"
            self.ended = True
            raise StopIteration

    for batch_size in (None, 2):
        assert list(make(kind, Yields(lambda: iter(Ends())), 2, batch_size=batch_size)) == []


@both
@pytest.mark.parametrize("workers", [0, 2])
def test_two_passes_see_the_process_of_their_worker(kind: str, workers: int) -> None:
    loader = make(kind, Yields(lambda: iter([os.getpid()])), workers, batch_size=None)
    processes = {process for _ in range(2) for process in loader}
    assert len(processes) == (4 if workers else 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", WORKERS)
def test_data_pipes_are_shuffled_and_split_as_in_torch(workers: int) -> None:
    def epochs(kind: str, **options: Any) -> list[Any]:
        torch.manual_seed(3)
        pipe = IterableWrapper(range(12)).shuffle().sharding_filter()
        loader = make(kind, pipe, workers, batch_size=2, shuffle=True, **options)
        return [lists(loader) for _ in range(2)]

    expected = epochs("torch")
    assert epochs("feedline", seeding="torch") == expected
    own = epochs("feedline")
    assert [sorted(sum(epoch, [])) for epoch in own] == [list(range(12))] * 2
    assert own[0] != own[1]


@pytest.mark.filterwarnings("ignore")
@both
def test_persistent_workers_shuffle_a_data_pipe_together_in_every_epoch(kind: str) -> None:
    pipe = IterableWrapper(range(40)).shuffle().sharding_filter()
    loader = make(kind, pipe, 2, batch_size=None, shuffle=True, persistent_workers=True)
    epochs = [list(loader) for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(40))] * 3
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_no_item_is_lost_or_made_again_where_memory_is_short() -> None:
    def items() -> Iterator[str]:
        return (f"{number:07}" * 100_000 for number in shard_of(40))

    found = []
    for item in ours(Yields(items), 4, batch_size=None, memory_budget="2MB", prefetch_factor=2):
        found.append(int(item[:7]))
        # Slower than the workers, so that items wait for memory.
        time.sleep(0.01)
    assert found == list(range(40))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", WORKERS)
def test_map_style_data_pipes_work(workers: int) -> None:
    check(SequenceWrapper(list(range(6))), workers, batch_size=4)
