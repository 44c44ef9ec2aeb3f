"""`framework=`: batches as NumPy and JAX arrays, with the values and the structure of torch's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import feedline as fl
import feedline.torch
from feedline.errors import PlanError
from feedline.torch.frameworks import batch_converter


class Pair(NamedTuple):
    image: torch.Tensor
    name: str


class Nested(Dataset[Any]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        return {"pair": Pair(torch.rand(3, 4), f"name {index}"), "numbers": [index, index / 2], "rest": (np.int8(3),)}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(torch.arange(6.0).unbind())


def rows(samples: list[Any]) -> Any:
    return {"first": samples[0], "count": len(samples), "names": ["a", "b"]}


def check_same(arrays: Any, tensors: Any, kind: type) -> None:
    assert type(arrays) is type(tensors) or isinstance(tensors, torch.Tensor)
    if isinstance(tensors, torch.Tensor):
        assert isinstance(arrays, kind)
        assert arrays.shape == tuple(tensors.shape)
        assert np.array_equal(np.asarray(arrays), tensors.numpy())
    elif isinstance(tensors, dict):
        assert list(arrays) == list(tensors)
        for key, value in tensors.items():
            check_same(arrays[key], value, kind)
    elif isinstance(tensors, (list, tuple)):
        assert len(arrays) == len(tensors)
        for array, tensor in zip(arrays, tensors, strict=True):
            check_same(array, tensor, kind)
    else:
        assert arrays == tensors


CASES: dict[str, dict[str, Any]] = {
    "without workers": {"dataset": Nested(), "batch_size": 4},
    "with workers": {"dataset": Nested(), "batch_size": 4, "num_workers": 2},
    "single samples": {"dataset": Nested(), "batch_size": None, "num_workers": 1},
    "a collate_fn": {"dataset": Nested(), "batch_size": 4, "num_workers": 2, "collate_fn": rows},
    "an iterable dataset": {"dataset": Stream(), "batch_size": 4, "num_workers": 1},
    "a native dataset": {"dataset": TensorDataset(torch.rand(9, 5), torch.arange(9)), "num_workers": 2},
}


def check_case(case: str, framework: Any, kind: type) -> None:
    """Compare the batches with torch's. Also called in a process of its own."""
    options = CASES[case] | {"seed": 3}
    converted: Any = feedline.torch.DataLoader(**options, framework=framework)
    plain: Any = feedline.torch.DataLoader(**options)
    pairs = list(zip(converted, plain, strict=True))
    assert pairs
    for arrays, tensors in pairs:
        check_same(arrays, tensors, kind)


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_becomes_a_numpy_array_and_nothing_else_changes(case: str) -> None:
    check_case(case, "numpy", np.ndarray)


def in_a_process_of_its_own(code: str) -> None:
    """Run code with this module as `t`. Tests that come later here expect forked workers, and JAX forbids them."""
    command = [sys.executable, "-c", f"import test_torch_frameworks as t; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr


def test_every_tensor_becomes_a_jax_array_and_nothing_else_changes() -> None:
    in_a_process_of_its_own("import jax; [t.check_case(case, 'jax', jax.Array) for case in t.CASES]")


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_arrays_have_the_memory_of_the_tensors(framework: str) -> None:
    in_a_process_of_its_own(f"t.check_memory({framework!r})")


def check_memory(framework: Any) -> None:
    convert: Any = batch_converter(framework)
    kept: list[torch.Tensor] = []
    loader: Any = feedline.torch.DataLoader(Nested(), batch_size=4, num_workers=2)
    for batch in loader:
        kept.append(batch["pair"].image)
        (array,) = convert([kept[-1]])
        pointer = array.ctypes.data if framework == "numpy" else array.unsafe_buffer_pointer()
        assert pointer == kept[-1].data_ptr(), "no copy was made"
    assert len(kept) == 3


def test_a_state_continues_with_arrays() -> None:
    def make() -> Any:
        return feedline.torch.DataLoader(
            range(20), batch_size=3, shuffle=True, num_workers=2, seed=1, framework="numpy"
        )

    whole = [batch.tolist() for batch in make()]
    broken = make()
    batches = iter(broken)
    next(batches)
    resumed = make()
    resumed.load_state_dict(broken.state_dict())
    assert [batch.tolist() for batch in resumed] == whole[1:]


def test_bfloat16_is_refused_for_numpy() -> None:
    data = TensorDataset(torch.rand(4, 2, dtype=torch.bfloat16))
    loader: Any = feedline.torch.DataLoader(data, framework="numpy")
    with pytest.raises(PlanError, match="NumPy has no bfloat16"):
        next(iter(loader))


def test_another_framework_is_refused() -> None:
    with pytest.raises(PlanError, match="framework is 'tensorflow'; it must be one of 'torch', 'numpy', 'jax'"):
        feedline.torch.DataLoader(range(4), framework="tensorflow")  # type: ignore[arg-type]


def test_verify_takes_a_loader_of_numpy_arrays() -> None:
    assert fl.torch.verify(feedline.torch.DataLoader(Nested(), batch_size=4, seed=0, framework="numpy"))
