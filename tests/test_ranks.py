"""Which samples a rank receives: law 2 over ranks, samplers, and where rank and world size come from."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import numpy as np
import pytest
from making import natural

import feedline as fl
from feedline import ops, placement


def numbers(n: int, **options: Any) -> fl.Loader:
    """A loader over ``n`` samples whose data are their ids."""
    return fl.Loader(fl.array(np.arange(n, dtype=np.int64)), **({"batch_size": 4} | options))


def ids(batches: Any) -> list[int]:
    return [index for batch in batches for index in batch["data"].tolist()]


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("n", [5, 64, 67])
def test_law_2_ranks_see_each_sample_once_but_for_marked_padding(world: int, drop_last: bool, n: int) -> None:
    seen: Counter[int] = Counter()
    padded: Counter[int] = Counter()
    lengths = set()
    for rank in range(world):
        options = {"rank": rank, "world_size": world, "shuffle": True, "drop_last": drop_last, "batch_size": 3}
        batches = list(numbers(n, **options))
        lengths.add(tuple(len(batch["index"]) for batch in batches))
        for batch in batches:
            marks = batch.get("padded", np.zeros(len(batch["index"]), bool))
            assert marks.dtype == np.bool_
            seen.update(batch["index"][~marks].tolist())
            padded.update(batch["index"][marks].tolist())
    assert len(lengths) == 1, "all ranks get equal numbers of batches of equal length"
    if drop_last:
        assert not padded
        assert set(seen.values()) <= {1}
        assert n - len(seen) < 3 * world
    else:
        assert seen == Counter(range(n))
        assert padded.total() == -n % world


def test_padded_is_there_for_several_ranks_and_can_be_asked_for_on_one() -> None:
    assert "padded" in next(iter(numbers(9, rank=0, world_size=2)))
    assert "padded" not in next(iter(numbers(9)))
    (marks,) = next(iter(numbers(9, fields=("padded",))))
    assert not marks.any()


def test_a_sampler_list_is_the_epoch_with_repeats_each_with_its_own_draw() -> None:
    wanted = [3, 1, 3, 3, 0]
    assert ids(numbers(6, sampler=wanted)) == ids(numbers(6, sampler=np.array(wanted))) == wanted
    source = fl.array(np.stack([natural(20, 20, seed) for seed in range(4)]))
    loader = fl.Loader(source, [ops.RandomCrop(8)], batch_size=12, sampler=[2] * 12)
    (batch,) = list(loader)
    assert len({picture.tobytes() for picture in batch["image"]}) > 6


def test_weighted_draws_in_proportion_and_anew_each_epoch() -> None:
    weights = np.array([0, 1, 2, 5.0])
    loader = numbers(4, sampler=fl.weighted(weights, num_samples=8000), batch_size=500)
    first, second = ids(loader), ids(loader)
    assert first != second
    share = np.bincount(first, minlength=4) / 8000
    assert share[0] == 0
    assert np.abs(share - weights / 8).max() < 5 * np.sqrt(0.25 / 8000)
    assert len(ids(numbers(4, sampler=fl.weighted(weights)))) == 4


def test_class_balanced_draws_each_class_equally() -> None:
    labels = np.array([0] * 90 + [1] * 9 + [2])
    loader = fl.Loader(
        fl.array(np.arange(100), labels=labels), batch_size=1000, sampler=fl.class_balanced(num_samples=6000)
    )
    share = np.bincount(np.concatenate([batch["label"] for batch in loader])) / 6000
    assert np.abs(share - 1 / 3).max() < 5 * np.sqrt(0.25 / 6000)


def test_a_sampler_is_divided_over_ranks_by_position() -> None:
    wanted = [5, 5, 1, 0, 2, 5, 3, 4]
    parts = [ids(numbers(6, sampler=wanted, rank=rank, world_size=2)) for rank in range(2)]
    assert parts == [wanted[0::2], wanted[1::2]]


@pytest.mark.parametrize(
    ("variables", "launcher"),
    [
        ({"RANK": "1", "WORLD_SIZE": "3"}, "torchrun"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "3", "SLURM_STEP_ID": "0"}, "SLURM"),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, "MPI"),
        ({"PMI_RANK": "1", "PMI_SIZE": "3"}, "MPI"),
    ],
)
def test_rank_and_world_size_come_from_the_launcher_with_one_line_logged(
    variables: dict[str, str], launcher: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    placement._announced_before.clear()
    with caplog.at_level(logging.INFO, logger="feedline"):
        loader = numbers(30)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "1 of 3" in line
    assert launcher in line
    assert ids(loader) == list(range(1, 30, 3))
    caplog.clear()
    assert ids(numbers(30, rank=0, world_size=2)) == list(range(0, 30, 2)), "arguments go before the environment"
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]


def test_a_batch_script_of_slurm_without_a_step_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert ids(numbers(8)) == list(range(8))
