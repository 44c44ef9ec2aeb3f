"""default_collate of torch as programs extend it, and tensors of other layouts than the usual one."""

from __future__ import annotations

import pickle
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset
from torch.utils.data._utils.collate import default_collate_fn_map
from torch_making import Calls, drain, make, ours

import feedline

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse")
Point = namedtuple("Point", ["x", "y"])


@pytest.fixture
def registry() -> Iterator[dict[Any, Any]]:
    """Give torch's registry of collate functions, and restore it after the test."""
    before = dict(default_collate_fn_map)
    yield default_collate_fn_map  # type: ignore[misc]
    default_collate_fn_map.clear()
    default_collate_fn_map.update(before)


def counted(batch: list[Any], *, collate_fn_map: Any = None) -> tuple[str, int]:
    return "own", len(batch)


class Plain:
    """A class that default_collate does not know."""

    def __init__(self, index: int) -> None:
        self.index = index


SAMPLES = {
    Plain: Plain,
    torch.Tensor: lambda i: torch.ones(2) * i,
    np.ndarray: lambda i: np.ones(2) * i,
    np.float32: np.float32,
    int: int,
    bool: bool,
    str: str,
    Point: lambda i: Point(i, i),
    tuple: lambda i: (i, i),
    list: lambda i: [i, i],
    dict: lambda i: {"a": i},
}


@pytest.mark.parametrize("options", [{}, {"order": feedline.arrival(max_displacement=1)}, {"seeding": "torch"}])
@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
def test_a_registered_collate_function_makes_every_batch(
    kind: Any, options: dict[str, Any], registry: dict[Any, Any]
) -> None:
    registry[kind] = counted
    loader = ours(Calls(lambda i: {"value": [SAMPLES[kind](i)]}, 24), 2, batch_size=2, **options)
    expected = next(iter(make("torch", loader.dataset, batch_size=2)))
    assert "own" in str(expected)
    assert list(loader) == [expected] * 12


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("kind", [torch.Tensor, Plain])
def test_workers_that_are_not_forked_know_registered_collate_functions(
    kind: Any, method: str, registry: dict[Any, Any]
) -> None:
    registry[kind] = counted
    del registry[float]
    loader = ours(Calls(SAMPLES[kind], 8), 1, batch_size=2, multiprocessing_context=method)
    assert list(loader) == [("own", 2)] * 4
    loader = ours(Calls(float, 4), 1, batch_size=2, multiprocessing_context=method, collate_fn=collate_default)
    with pytest.raises(TypeError, match="default_collate"):
        list(loader)


def collate_default(batch: list[Any]) -> Any:
    return torch.utils.data.default_collate(batch)


def test_a_registered_collate_function_makes_the_batches_of_native_datasets(registry: dict[Any, Any]) -> None:
    registry[torch.Tensor] = counted
    assert list(ours(TensorDataset(torch.arange(8)), 2, batch_size=4)) == [[("own", 4)]] * 2


def test_workers_that_stay_keep_the_collation_with_which_they_started(registry: dict[Any, Any]) -> None:
    loader = ours(Calls(int, 4), 2, batch_size=2, persistent_workers=True)
    first = [batch.tolist() for batch in loader]
    registry[int] = counted
    assert [batch.tolist() for batch in loader] == first


def nested(index: int) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.arange(3.0) + index, torch.ones(2)])


LAYOUTS = {
    "nested": nested,
    "sparse": lambda i: (torch.eye(4) * (i + 1)).to_sparse(),
    "compressed sparse": lambda i: (torch.eye(4) * (i + 1)).to_sparse_csr(),
}
any_layout = pytest.mark.parametrize("name", LAYOUTS)


def parts(tensor: torch.Tensor) -> list[Any]:
    return [part.tolist() for part in (tensor.unbind() if tensor.is_nested else [tensor.to_dense()])]


@any_layout
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_tensors_of_any_layout_travel_to_workers_and_back(name: str, method: str) -> None:
    dataset = [LAYOUTS[name](index) for index in range(4)]
    loader = ours(dataset, 2, batch_size=1, collate_fn=list, multiprocessing_context=method)
    batches = list(loader)
    assert [batch[0].layout for batch in batches] == [tensor.layout for tensor in dataset]
    assert [parts(batch[0]) for batch in batches] == [parts(tensor) for tensor in dataset]


@any_layout
@pytest.mark.parametrize("kind", ["torch", "feedline"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_default_collation_refuses_tensors_of_other_layouts(kind: str, name: str, workers: int) -> None:
    loader = make(kind, Calls(LAYOUTS[name]), workers, batch_size=2)
    with pytest.raises(RuntimeError, match="not currently supported by the default collate_fn"):
        drain(loader)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_samples_may_be_nested_tensors_after_others_were_not(shape: tuple[int, ...]) -> None:
    def sample(index: int) -> torch.Tensor:
        return nested(index) if index == 30 else torch.full(shape, float(index))

    loader = ours(Calls(sample, 32), 1, batch_size=None)
    batches = list(loader)
    assert [batch.is_nested for batch in batches] == [index == 30 for index in range(32)]
    assert parts(batches[30]) == parts(pickle.loads(pickle.dumps(nested(30))))


def test_workers_collate_arrays_with_negative_strides() -> None:
    flipped = ours(Calls(lambda i: np.arange(i, i + 3)[::-1], 24), 2, batch_size=4)
    rows = [row for batch in flipped for row in batch.tolist()]
    assert rows == [[i + 2, i + 1, i] for i in range(24)]
