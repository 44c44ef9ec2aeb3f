"""`feedline.torch.verify` and `fl.doctor` on a DataLoader."""

from __future__ import annotations

import random
import re
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import feedline as fl
import feedline.torch
from feedline.torch import DataLoader, verify


class Seeded(Dataset[Any]):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Any:
        return torch.rand(3), np.random.rand(), random.random(), index


class OwnGenerator(Seeded):
    """Random numbers that nobody can seed from outside."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng()

    def __getitem__(self, index: int) -> Any:
        return self.generator.random()


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(20))


class Slow(Seeded):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.005)  # the slow line
        return index


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4, "shuffle": True},
        {"batch_size": None},
        {"batch_size": 4, "collate_fn": list},
        {"batch_sampler": [[3, 1], [2], [0, 4, 5]]},
    ],
    ids=str,
)
def test_a_dataset_with_global_random_numbers_keeps_every_promise(options: dict[str, Any]) -> None:
    found = verify(DataLoader(Seeded(), seed=3, **options), batches=6)
    assert found, found


def test_a_generator_of_the_dataset_itself_breaks_law_1_and_is_found() -> None:
    found = verify(DataLoader(OwnGenerator(), batch_size=4, seed=3))
    assert not found
    assert found.findings[0].problem is not None
    assert re.fullmatch(r"batch 0 differs with [02] workers", found.findings[0].problem)
    assert str(found).startswith("BROKEN  law 1: the same batches for 0, 1 and 2 workers: batch 0")


def test_samples_that_come_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from feedline.torch.verification import _Indices

    monkeypatch.setattr(_Indices, "__getitem__", lambda self, index: 0)
    # Only a fork has the changed class.
    loader = DataLoader(Seeded(), batch_size=4, seed=3, num_workers=1, multiprocessing_context="fork")
    found = verify(loader)
    assert [finding.problem for finding in found.findings if "law 2" in finding.promise] == [
        "sample 0 came at place 1, where the sampler has 1"
    ]


def test_an_iterable_dataset_keeps_its_promises_for_its_number_of_workers() -> None:
    assert verify(DataLoader(Stream(), batch_size=3, seed=1))


def test_the_doctor_names_the_slow_line_of_a_dataset_by_class_file_and_line() -> None:
    loader = DataLoader(Slow(), batch_size=2, num_workers=1, seed=0)
    found = fl.doctor(loader, step=lambda batch: None, seconds=2)
    assert isinstance(found, feedline.torch.DatasetReport)
    line, share = found.hot_lines[0]
    assert (line.function, line.file) == ("Slow.__getitem__", __file__)
    with open(__file__) as file:
        assert file.readlines()[line.line - 1].strip() == "time.sleep(0.005)  # the slow line"
    assert 0.05 < share <= 1.0
    assert "Slow.__getitem__" in str(found)
    assert "not native" in str(found)


def test_the_doctor_examines_a_native_loader_part_by_part() -> None:
    dataset = TensorDataset(torch.zeros(256, 8), torch.arange(256))
    found = fl.doctor(DataLoader(dataset, batch_size=8, num_workers=1), step=lambda batch: batch[1].sum(), seconds=1)
    assert isinstance(found, fl.Diagnosis)
    assert found.measured_samples_per_second > 0


def test_the_doctor_refuses_other_loaders_and_says_what_to_use() -> None:
    with pytest.raises(fl.PlanError, match=r"feedline.wrap\(loader"):
        fl.doctor([1, 2, 3])  # type: ignore[call-overload]


class Random(Dataset[Any]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(2)


def test_random_numbers_of_threads_are_reported() -> None:
    found = verify(DataLoader(Random(), batch_size=4, num_workers=2, worker_type="thread", seed=0))
    assert [finding.problem is None for finding in found.findings] == [False, False, True, False]
    assert verify(DataLoader(Random(), batch_size=4, num_workers=2, seed=0))
