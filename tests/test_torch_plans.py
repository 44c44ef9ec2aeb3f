"""Options of plans for Python datasets: order, cache, share, metrics, threads and ranks."""

from __future__ import annotations

import subprocess
import threading
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import feedline as fl
from feedline.torch import DataLoader

N = 60


class Numbers(Dataset[Any]):
    """Samples of one shape."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((2, 3), float(index)), "y": index, "z": np.arange(2, dtype=np.int16) + index}


class Noisy(Numbers):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(3), np.random.random(), index


class Ragged(Numbers):
    def __getitem__(self, index: int) -> Any:
        return torch.arange(index % 4), f"sample {index}"


class Counting(Numbers):
    """Tells in a file which samples were made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        with (self.folder / "made").open("a") as file:
            file.write(f"{index}\n")
        return torch.tensor(index)

    def made(self) -> list[int]:
        path = self.folder / "made"
        found = [int(line) for line in path.read_text().split()] if path.exists() else []
        path.unlink(missing_ok=True)
        return found


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(N))


class Bad(Numbers):
    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise LookupError("no sample seven")
        return torch.tensor(index)


class InThreads(Numbers):
    def __getitem__(self, index: int) -> Any:
        return threading.get_native_id(), index


def same(one: Any, other: Any) -> bool:
    """Whether two batches are equal, with their structure and types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return torch.equal(one, other) and one.dtype == other.dtype if isinstance(one, torch.Tensor) else one == other


def loader(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, **({"batch_size": 8, "shuffle": True, "seed": 3, "num_workers": 2} | options))


@pytest.mark.parametrize("dataset", [Numbers(), Noisy()])
@pytest.mark.parametrize("drop_last", [False, True])
def test_law_1_a_plan_gives_the_batches_of_workers(dataset: Any, drop_last: bool) -> None:
    expected = list(loader(dataset, drop_last=drop_last))
    order = fl.arrival(max_displacement=8)
    found = list(loader(dataset, drop_last=drop_last, order=order))
    assert len(found) == len(expected)
    rows = {int(index): row for batch in expected for row, index in zip(rows_of(batch), numbers_of(batch), strict=True)}
    for batch in found:
        for row, index in zip(rows_of(batch), numbers_of(batch), strict=True):
            assert drop_last or same(row, rows[int(index)])


def numbers_of(batch: Any) -> torch.Tensor:
    return batch["y"] if isinstance(batch, dict) else batch[-1]


def rows_of(batch: Any) -> list[Any]:
    parts = list(batch.values()) if isinstance(batch, dict) else batch
    return [list(row) for row in zip(*parts, strict=True)]


def test_threads_give_the_batches_of_processes() -> None:
    expected = list(loader(Numbers()))
    found = list(loader(Numbers(), worker_type="thread"))
    assert len(found) == len(expected)
    assert all(map(same, found, expected))
    ids = {int(thread) for batch in loader(InThreads(), worker_type="thread") for thread in batch[0]}
    assert threading.get_native_id() not in ids
    assert 1 <= len(ids) <= 2


def test_samples_without_common_shapes_keep_their_structure() -> None:
    def collate(samples: list[Any]) -> Any:
        return [sample[1] for sample in samples], torch.nn.utils.rnn.pad_sequence([sample[0] for sample in samples])

    expected = list(loader(Ragged(), collate_fn=collate))
    assert all(map(same, loader(Ragged(), collate_fn=collate, worker_type="thread"), expected))


def test_an_exception_of_a_thread_keeps_its_type_and_traceback() -> None:
    batches = iter(loader(Bad(), shuffle=False, worker_type="thread"))
    with pytest.raises(LookupError, match="no sample seven") as caught:
        next(batches)
    assert "__getitem__" in [entry.name for entry in caught.traceback]
    with pytest.raises(LookupError, match=r"(?s)in __getitem__.*no sample seven"):
        list(loader(Bad(), shuffle=False, order=fl.arrival()))


def test_a_cache_keeps_samples_of_a_dataset_between_epochs(tmp_path: Path) -> None:
    dataset = Counting(tmp_path)
    batches = loader(dataset, cache=fl.cache(ram="10MB"))
    first = [int(index) for batch in batches for index in batch]
    made = dataset.made()
    second = [int(index) for batch in batches for index in batch]
    assert sorted(first) == sorted(second) == list(range(N))
    assert first != second, "each epoch has an order of its own"
    assert set(made) == set(range(N))
    # The first samples are made before the cache knows what it keeps.
    assert len(dataset.made()) <= N // 2
    list(batches)
    assert dataset.made() == []


def test_a_random_dataset_is_not_cached() -> None:
    with pytest.raises(fl.PlanError, match="sample 0 of Noisy differs each time it is made"):
        iter(loader(Noisy(), cache=fl.cache(ram="10MB")))


def test_law_2_jobs_share_a_dataset(socket: Path, node: subprocess.Popen[str]) -> None:
    for _ in range(2):
        batches = loader(Numbers(), share=socket)
        for _ in range(2):
            found = list(batches)
            assert sorted(int(index) for batch in found for index in batch["y"]) == list(range(N))
            for batch in found:
                assert torch.equal(batch["x"][:, 0, 0], batch["y"].float())
                assert batch["z"].dtype == torch.int16


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"share": True, "shuffle": False}, "this needs shuffle=True"),
        ({"share": True, "dataset": Ragged()}, "arrays of different shapes"),
        ({"order": fl.arrival(), "dataset": Stream(), "shuffle": None}, "Stream is iterable"),
        ({"worker_type": "thread", "num_workers": 0}, "num_workers above 0"),
        ({"worker_type": "thread", "seeding": "torch"}, 'seeding="torch"'),
        ({"order": fl.arrival(), "worker_init_fn": print}, "worker_init_fn"),
        ({"order": fl.arrival(), "batch_size": None, "shuffle": False}, "batch_size"),
        ({"worker_type": "fiber"}, "\"process\"|'process'"),
    ],
)
def test_what_a_plan_cannot_do_is_refused_and_named(options: dict[str, Any], words: str) -> None:
    dataset = options.pop("dataset", Numbers())
    with pytest.raises(fl.PlanError, match=words):
        iter(loader(dataset, **options))


def test_metrics_of_worker_processes_are_served_while_they_run() -> None:
    with_metrics = loader(Numbers(), metrics="127.0.0.1:0", persistent_workers=True)
    batches = iter(with_metrics)
    next(batches)
    page = urllib.request.urlopen(f"http://{with_metrics.metrics_address}/metrics").read().decode()
    assert "feedline_loader_batches_total" in page
    del batches
    with_metrics._iterator = None
    assert with_metrics.metrics_address is None


def test_metrics_of_a_plan_are_served() -> None:
    with_metrics = loader(Numbers(), metrics="127.0.0.1:0", worker_type="thread")
    next(iter(with_metrics))
    page = urllib.request.urlopen(f"http://{with_metrics.metrics_address}/stats").read().decode()
    assert '"Map"' in page


def indices(batches: Any) -> list[int]:
    return [int(index) for batch in batches for index in batch["y"]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_law_2_ranks_divide_an_epoch(world: int, workers: int) -> None:
    options = {"world_size": world, "num_workers": workers, "seed": None}
    shares = [indices(loader(Numbers(), rank=rank, **options)) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1, "all ranks take equally many steps"
    everything = [index for share in shares for index in share]
    assert set(everything) == set(range(N))
    assert len(everything) - N < world, "only padding is repeated"
    one = indices(loader(Numbers(), rank=0, world_size=1, seed=None))
    assert [share[0] for share in shares] == one[:world], "positions are dealt out in turn"


def test_drop_last_drops_what_does_not_fill_all_ranks() -> None:
    shares = [indices(loader(Numbers(), rank=rank, world_size=7, drop_last=True, batch_size=2)) for rank in range(7)]
    everything = [index for share in shares for index in share]
    assert len(everything) == len(set(everything)) == 7 * 8


def test_law_4_another_number_of_ranks_and_another_batch_size_continue_an_epoch() -> None:
    received: list[int] = []
    plan = [(2, 8, 2), (3, 4, 1), (1, 5, 2), (2, 7, None)]
    state = None
    for world, batch_size, steps in plan:
        states = []
        for rank in range(world):
            part = loader(Numbers(), rank=rank, world_size=world, batch_size=batch_size, num_workers=rank % 2)
            if state is not None:
                part.load_state_dict(state)
            batches = iter(part)
            received += indices(batches if steps is None else [next(batches) for _ in range(steps)])
            states.append(part.state_dict())
            del batches
        state = states[0]
        assert all(other == state for other in states)
    assert set(received) == set(range(N))
    assert len(received) - N < 2, "only the padding of the end is repeated"
    assert state["epoch"] == 1, "the epoch has ended, and the next one begins whole"
    whole = loader(Numbers(), rank=0, world_size=1)
    whole.load_state_dict(state)
    assert sorted(indices(whole)) == list(range(N))


def test_a_state_of_ranks_is_refused_by_a_loader_without_ranks() -> None:
    part = loader(Numbers(), rank=0, world_size=2)
    next(iter(part))
    with pytest.raises(fl.StateError, match="one of 2 ranks; give rank and world_size"):
        loader(Numbers()).load_state_dict(part.state_dict())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 0}, "belong together"),
        ({"rank": 2, "world_size": 2}, "rank is 2"),
        ({"rank": 0, "world_size": 2, "sampler": range(4), "shuffle": None}, "give only one of both"),
        ({"rank": 0, "world_size": 2, "dataset": Stream(), "shuffle": None}, "dataset with a length"),
    ],
)
def test_ranks_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(fl.PlanError, match=words):
        loader(options.pop("dataset", Numbers()), **options)


def test_law_4_a_loader_that_shares_continues_in_mid_epoch(socket: Path, node: subprocess.Popen[str]) -> None:
    first = loader(Numbers(), share=socket)
    batches = iter(first)
    received = indices([next(batches) for _ in range(3)])
    state = first.state_dict()
    del batches
    second = loader(Numbers(), share=socket)
    second.load_state_dict(state)
    assert sorted(received + indices(second)) == list(range(N))
    with pytest.raises(fl.StateError, match="same share"):
        loader(Numbers()).load_state_dict(state)


def test_law_4_ranks_continue_with_the_seed_of_the_state() -> None:
    whole = loader(Numbers(), rank=0, world_size=1, seed=9)
    batches = iter(whole)
    received = indices([next(batches) for _ in range(2)])
    state = whole.state_dict()
    for rank in range(2):
        part = loader(Numbers(), rank=rank, world_size=2, seed=None)
        part.load_state_dict(state)
        received += indices(part)
    assert sorted(received) == list(range(N))


@pytest.mark.parametrize("options", [{}, {"worker_type": "thread"}])
def test_a_divided_rest_of_an_epoch_is_not_taken_for_the_whole(options: dict[str, Any]) -> None:
    first = loader(Numbers(), rank=0, world_size=2)
    next(iter(first))
    second = loader(Numbers(), rank=0, world_size=1, **options)
    second.load_state_dict(first.state_dict())
    assert len(indices(second)) == N - 16
    assert len(second) == 8, "the next epoch is whole again"
    second.set_epoch(0)
    assert sorted(indices(second)) == list(range(N))


def test_a_seed_of_torch_or_a_generator_cannot_divide_an_epoch() -> None:
    for options in ({"seeding": "torch"}, {"generator": torch.Generator()}):
        with pytest.raises(fl.PlanError, match="the same order on all ranks"):
            loader(Numbers(), rank=0, world_size=2, **options)


class Flipped(Numbers):
    def __getitem__(self, index: int) -> Any:
        return torch.tensor([1, 2]).flip(0) if torch.rand(1) < 0.5 else torch.tensor([1, 2])


def test_rare_random_numbers_are_found_before_a_cache_keeps_them() -> None:
    with pytest.raises(fl.PlanError, match="differs each time it is made"):
        iter(loader(Flipped(), cache=fl.cache(ram="10MB")))
    with pytest.raises(fl.PlanError, match="would not notice files"):
        iter(loader(Numbers(), cache=fl.cache(disk="10MB")))


def test_repeats_of_a_sampler_have_random_numbers_of_their_own() -> None:
    batches = DataLoader(Noisy(), batch_size=4, sampler=[5, 5, 5, 5], num_workers=1, seed=3, order=fl.arrival())
    (batch,) = list(batches)
    assert len(torch.unique(batch[0][:, 0])) == 4
