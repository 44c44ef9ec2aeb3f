"""feedline.torch.DataLoader gives what torch's DataLoader gives: map-style datasets, samplers, collation, arguments."""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
)
from torch_making import LOADERS, WORKERS, Calls, Yields, lists, make, ours, plain

import feedline
from feedline.torch import DataLoader

Point = namedtuple("Point", ["x", "y"])
KINDS = list(LOADERS)
both = pytest.mark.parametrize("kind", KINDS)
with_workers = pytest.mark.parametrize("workers", WORKERS)


class Marked(torch.Tensor):
    """A subclass of torch's Tensor."""


SAMPLES = {
    "int": lambda i: i,
    "float": lambda i: i / 2,
    "bool": lambda i: i % 2 == 0,
    "string": lambda i: f"text {i}",
    "bytes": lambda i: bytes([i]),
    "tensor": lambda i: torch.full((2, 3), float(i)),
    "zero-dim": lambda i: torch.tensor(i),
    "empty": lambda i: torch.empty(0, 3),
    "bfloat16": lambda i: torch.full((3,), i, dtype=torch.bfloat16),
    "complex": lambda i: torch.full((2,), i * 1j),
    "bool tensor": lambda i: torch.tensor([True, i > 3]),
    "transposed": lambda i: torch.arange(6.0).reshape(2, 3).T + i,
    "subclass": lambda i: torch.full((2,), float(i)).as_subclass(Marked),
    "parameter": lambda i: torch.nn.Parameter(torch.ones(2) * i, requires_grad=False),
    "array": lambda i: np.full((2, 2), i, np.int16),
    "array scalar": lambda i: np.float32(i),
    "array zero-dim": lambda i: np.array(i),
    "tuple": lambda i: (i, torch.tensor([i]), "s"),
    "list": lambda i: [i, [i, i / 2]],
    "namedtuple": lambda i: Point(i, torch.tensor(i)),
    "dict": lambda i: {"a": i, "b": {"c": np.ones(2) * i, "d": (i, str(i))}},
    "OrderedDict": lambda i: OrderedDict(a=i, b=torch.ones(1)),
    "defaultdict": lambda i: defaultdict(int, a=i),
    "UserDict": lambda i: UserDict(a=i),
    "empty containers": lambda i: {"a": [], "b": {}, "c": i},
    "large int": lambda i: 2**40 + i,
    "mixed numbers": lambda i: i if i % 2 else float(i),
    "no tensor": lambda i: {"a": "x", "b": ["y", str(i)]},
    "range": lambda i: range(i, i + 3),
}
"""What ``__getitem__`` returns, of every kind that default_collate takes."""


class Together(Calls):
    """Fetches all samples of a batch in one call."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(self.function(index), len(indices)) for index in indices]


def worker_number(_: int) -> int:
    info = get_worker_info()
    return -1 if info is None else info.id


@pytest.mark.parametrize("name", SAMPLES)
def test_a_batch_of_any_sample_is_that_of_torch(name: str) -> None:
    expected = [plain(batch) for batch in make("torch", Calls(SAMPLES[name]), batch_size=3)]
    for workers in (0, 2):
        batches = list(ours(Calls(SAMPLES[name]), workers, batch_size=3))
        assert [plain(batch) for batch in batches] == expected
        again = list(ours(Calls(SAMPLES[name]), workers, batch_size=3, collate_fn=default_collate))
        assert [plain(batch) for batch in again] == expected


@pytest.mark.parametrize("name", SAMPLES)
def test_without_automatic_batching_a_sample_is_that_of_torch(name: str) -> None:
    expected = [plain(sample) for sample in make("torch", Calls(SAMPLES[name]), batch_size=None)]
    assert [plain(sample) for sample in ours(Calls(SAMPLES[name]), 2, batch_size=None)] == expected
    assert [plain(sample) for sample in ours(Calls(SAMPLES[name]), 0, batch_size=None)] == expected


@both
@with_workers
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_last_batch_is_short_or_dropped(kind: str, workers: int, drop_last: bool) -> None:
    loader = make(kind, Calls(int, 7), workers, batch_size=3, drop_last=drop_last)
    expected = [[0, 1, 2], [3, 4, 5], [6]]
    assert lists(loader) == (expected[:2] if drop_last else expected)
    assert len(loader) == len(list(loader))


@both
@with_workers
def test_samplers_of_any_kind_decide_the_order(kind: str, workers: int) -> None:
    dataset = Calls(int, 6)
    for sampler, expected in [
        ([5, 3, 3], [5, 3, 3]),
        ((i for i in (4, 2)), [4, 2]),
        (range(0, 6, 2), [0, 2, 4]),
        (torch.tensor([1, 5]), [1, 5]),
        (np.array([2, 0]), [2, 0]),
        (SubsetRandomSampler([3], torch.Generator().manual_seed(0)), [3]),
        (DistributedSampler(dataset, 2, 1, shuffle=False), [1, 3, 5]),
        ([], []),
    ]:
        loader = make(kind, dataset, workers, batch_size=2, sampler=sampler)
        assert [value for batch in loader for value in batch.tolist()] == expected


def memory_format(value: Any) -> Any:
    return [leaf.stride() if isinstance(leaf, torch.Tensor) else leaf.strides for leaf in value]


@pytest.mark.parametrize("workers", [0, 2])
def test_items_keep_their_order_in_memory(workers: int) -> None:
    def sample(index: int) -> tuple[Any, ...]:
        pixels = torch.arange(24.0).reshape(2, 3, 4) + index
        last = pixels.permute(2, 0, 1)
        return last, last.to(torch.bfloat16), last.numpy(), np.asfortranarray(pixels.numpy()), pixels

    for expected, item in zip(
        make("torch", Calls(sample, 3), batch_size=None), ours(Calls(sample, 3), workers, batch_size=None), strict=True
    ):
        assert memory_format(item) == memory_format(expected)
        assert plain(item) == plain(expected)

    def collate(samples: list[Any]) -> tuple[Any]:
        return (torch.stack([values[4] for values in samples]).to(memory_format=torch.channels_last),)

    (expected,) = make("torch", Calls(sample, 3), batch_size=3, collate_fn=collate)
    (batch,) = ours(Calls(sample, 3), workers, batch_size=3, collate_fn=collate)
    assert memory_format(batch) == memory_format(expected)
    assert plain(batch) == plain(expected)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"native": False},
        {"worker_type": "thread"},
        {"cache": feedline.cache(ram="1MB")},
        {"seeding": "torch"},
    ],
)
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_batch_sampler_of_torch_decides_the_batches_of_every_loader(options: dict[str, Any], drop_last: bool) -> None:
    for dataset in (TensorDataset(torch.arange(10)), Calls(lambda index: (index,), 10)):
        for sampler in (SequentialSampler(dataset), [7, 1, 3, 3, 2]):
            batches = BatchSampler(sampler, 3, drop_last)
            (expected, found) = (
                make("torch", dataset, batch_sampler=batches),
                ours(dataset, 2, batch_sampler=batches, **options),
            )
            assert [batch[0].tolist() for batch in found] == [batch[0].tolist() for batch in expected]
            assert len(found) == len(list(found))


@both
@with_workers
def test_batch_samplers_of_any_kind_decide_the_batches(kind: str, workers: int) -> None:
    def generated() -> Iterator[list[int]]:
        yield from ([0], [1, 2, 3], [4, 5])

    for batch_sampler, expected in [
        ([[5], [3, 4]], [[5], [3, 4]]),
        (generated(), [[0], [1, 2, 3], [4, 5]]),
        (BatchSampler([1, 2, 3], 2, True), [[1, 2]]),
        ([(0, 1), torch.tensor([2, 3])], [[0, 1], [2, 3]]),
    ]:
        loader = make(kind, Calls(int, 6), workers, batch_sampler=batch_sampler)
        assert (lists(loader), loader.batch_size, loader.drop_last) == (expected, None, False)


@both
@with_workers
def test_an_index_may_be_of_any_type(kind: str, workers: int) -> None:
    indices = ["one", ("a", 2), -1, 3.5, None, True, np.int64(4), torch.tensor(5), frozenset({1}), 2**63, 2**70]
    sampler = [[index] for index in indices]
    loader = make(kind, Calls(repr), workers, batch_sampler=sampler)
    assert list(loader) == [[repr(index)] for index in indices]
    loader = make(kind, Calls(repr), workers, batch_size=None, sampler=indices)
    assert list(loader) == [repr(index) for index in indices]


@both
@with_workers
def test_an_infinite_sampler_gives_batches_without_end(kind: str, workers: int) -> None:
    loader = make(kind, Calls(int), workers, batch_size=2, sampler=itertools.count())
    assert [batch.tolist() for batch in itertools.islice(loader, 3)] == [[0, 1], [2, 3], [4, 5]]


@both
@pytest.mark.parametrize("factor", [1, 3])
def test_the_sampler_is_read_as_far_ahead_as_prefetch_factor_says(kind: str, factor: int) -> None:
    drawn: list[int] = []
    sampler = (drawn.append(i) or i for i in itertools.count())  # type: ignore[func-returns-value]
    batches = iter(make(kind, Calls(int), 2, batch_size=None, sampler=sampler, prefetch_factor=factor))
    assert len(drawn) == 2 * factor
    for taken in range(1, 4):
        next(batches)
        assert len(drawn) == 2 * factor + taken


def test_by_default_the_engine_reads_the_sampler_at_least_as_far_ahead_as_torch() -> None:
    drawn: list[int] = []
    sampler = (drawn.append(i) or i for i in itertools.count())  # type: ignore[func-returns-value]
    batches = iter(ours(Calls(int), 2, batch_size=None, sampler=sampler))
    next(batches)
    assert 4 < len(drawn) < 1000


@both
@with_workers
def test_getitems_fetches_a_batch_in_one_call(kind: str, workers: int) -> None:
    loader = make(kind, Together(int, 5), workers, batch_size=2)
    assert [[part.tolist() for part in batch] for batch in loader] == [[[0, 1], [2, 2]], [[2, 3], [2, 2]], [[4], [1]]]


@both
@with_workers
def test_a_collate_fn_gets_a_list_of_samples_in_the_worker(kind: str, workers: int) -> None:
    loader = make(kind, Calls(int, 5), workers, batch_size=2, collate_fn=lambda x: (x, worker_number(0) >= 0))
    assert list(loader) == [([0, 1], workers > 0), ([2, 3], workers > 0), ([4], workers > 0)]


@both
@with_workers
def test_without_automatic_batching_a_collate_fn_gets_one_sample(kind: str, workers: int) -> None:
    loader = make(kind, Calls(int, 3), workers, batch_size=None, collate_fn=lambda x: -x)
    assert list(loader) == [0, -1, -2]


@both
def test_the_datasets_of_torch_work(kind: str) -> None:
    points = TensorDataset(torch.arange(6.0), torch.arange(6))
    for dataset in (points, Subset(points, [4, 1]), ConcatDataset([points, points]), StackDataset(points, points)):
        expected = [plain(batch) for batch in make("torch", dataset, batch_size=4)]
        for options in ({}, {"native": False}) if kind == "feedline" else ({},):
            assert [plain(batch) for batch in make(kind, dataset, 2, batch_size=4, **options)] == expected


@both
def test_random_samplers_visit_what_they_should(kind: str) -> None:
    dataset = Calls(int, 10)
    assert sorted(sum(lists(make(kind, dataset, 2, batch_size=3, shuffle=True)), [])) == list(range(10))
    more = make(kind, dataset, 2, batch_size=5, sampler=RandomSampler(dataset, replacement=True, num_samples=30))
    assert len(sum(lists(more), [])) == 30
    weighted = make(kind, dataset, 2, sampler=WeightedRandomSampler([0.0] * 9 + [1.0], 4))
    assert lists(weighted) == [[9]] * 4


@both
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_workers": -1}, ValueError, "num_workers option should be non-negative"),
        ({"timeout": -1}, ValueError, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, ValueError, "prefetch_factor option could only be specified in multiprocessing"),
        ({"num_workers": 1, "prefetch_factor": -1}, ValueError, "prefetch_factor option should be non-negative"),
        ({"persistent_workers": True}, ValueError, "persistent_workers option needs num_workers > 0"),
        ({"shuffle": True, "sampler": [0]}, ValueError, "sampler option is mutually exclusive with shuffle"),
        ({"batch_sampler": [[0]], "batch_size": 2}, ValueError, "batch_sampler option is mutually exclusive"),
        ({"batch_sampler": [[0]], "drop_last": True}, ValueError, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, ValueError, "batch_size=None option disables auto-batching"),
        ({"batch_size": 0}, ValueError, "batch_size should be a positive integer"),
        ({"batch_size": 1.5}, ValueError, "batch_size should be a positive integer"),
        ({"multiprocessing_context": "fork"}, ValueError, "can only be used with multi-process loading"),
        ({"num_workers": 1, "multiprocessing_context": "bad"}, ValueError, "should specify a valid start method"),
        ({"num_workers": 1, "multiprocessing_context": object()}, TypeError, "should be a valid context object"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_arguments_raise_the_errors_of_torch(
    kind: str, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        LOADERS[kind](Calls(int), **options)


@both
def test_an_iterable_dataset_takes_no_sampler(kind: str) -> None:
    for options in ({"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}):
        with pytest.raises(ValueError, match="DataLoader with IterableDataset: expected unspecified"):
            make(kind, Yields(lambda: iter([])), **options)


@both
def test_attributes_that_decide_the_batches_cannot_be_set(kind: str) -> None:
    loader = make(kind, Calls(int))
    for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
            setattr(loader, name, None)
    loader.num_workers = 0
    assert loader.num_workers == 0


@both
@pytest.mark.filterwarnings("ignore:Length of IterableDataset")
def test_len_of_an_iterable_dataset_is_an_estimate_and_too_many_items_warn(kind: str) -> None:
    loader = make(kind, Yields(lambda: iter(range(6)), length=3), 0, batch_size=None)
    assert len(loader) == 3
    with pytest.warns(UserWarning, match="was reported to be 3.*but 4 samples have been fetched"):
        assert len(list(loader)) == 6
    assert len(make(kind, Yields(lambda: iter([]), length=7), batch_size=2)) == 4
    assert len(make(kind, Yields(lambda: iter([]), length=7), batch_size=2, drop_last=True)) == 3
    with pytest.raises(TypeError, match="no length"):
        len(make(kind, Yields(lambda: iter([]))))


@both
def test_more_workers_than_cores_warn(kind: str) -> None:
    with pytest.warns(UserWarning, match="This DataLoader will create 500 worker processes in total"):
        make(kind, Calls(int), 500)


@both
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_pin_memory_without_an_accelerator_warns_once_per_iterator(kind: str, workers: int) -> None:
    loader = make(kind, Calls(int), workers, batch_size=4, pin_memory=True, pin_memory_device="cuda")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(list(loader)) == 2
    texts = [str(warning.message) for warning in caught if "pin_memory" in str(warning.message)]
    assert len(texts) == 2
    assert "pin_memory_device is deprecated" in texts[0]
    assert "no accelerator is found" in texts[1]


@both
def test_an_iterator_has_the_length_of_its_sampler_and_is_its_own_iterator(kind: str) -> None:
    for workers in (0, 1):
        batches = iter(make(kind, Calls(int, 7), workers, batch_size=2))
        assert len(batches) == 4
        assert iter(batches) is batches
        with pytest.raises(NotImplementedError):
            batches.__getstate__()


def test_it_is_a_subclass_of_torch_s_class_with_its_arguments() -> None:
    assert issubclass(DataLoader, torch.utils.data.DataLoader)
    loader = DataLoader(Calls(int), 2, None, [0, 1], None, 0, None, False, True, 0, None, None, None)
    assert (loader.batch_size, loader.drop_last, lists(loader)) == (2, True, [[0, 1]])
    assert isinstance(iter(loader), torch.utils.data.dataloader._BaseDataLoaderIter)


@pytest.mark.parametrize("name", ["seeding", "native", "on_error"])
def test_a_wrong_value_of_our_own_arguments_names_the_argument(name: str) -> None:
    with pytest.raises(feedline.PlanError, match=name):
        DataLoader(Calls(int), **{name: "wrong"})
