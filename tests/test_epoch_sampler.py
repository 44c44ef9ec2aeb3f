"""Samplers that compute each epoch: functions of the epoch and samplers of torch, reproducible and resumable."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, WeightedRandomSampler

import feedline as fl

N = 40


def rotated(epoch: int) -> list[int]:
    return [(index + 3 * epoch) % N for index in range(0, N, 2)]


def make(sampler: Any, **options: Any) -> fl.Loader:
    return fl.Loader(fl.array(np.arange(N)), **({"batch_size": 4, "sampler": sampler} | options))


def indices(batches: Any) -> list[int]:
    return [index for batch in batches for index in batch["index"].tolist()]


SAMPLERS = {
    "function": lambda: rotated,
    "random": lambda: RandomSampler(range(N)),
    "random with a generator": lambda: RandomSampler(range(N), generator=torch.Generator()),
    "replacement": lambda: RandomSampler(range(N), replacement=True, num_samples=22),
    "weighted": lambda: WeightedRandomSampler([1.0, 3.0] * (N // 2), 25),
}


def test_a_function_decides_each_epoch() -> None:
    with make(rotated) as loader:
        assert [indices(loader) for _ in range(3)] == [rotated(epoch) for epoch in range(3)]
        assert loader.plan.indices(7) == rotated(7)
        loader.set_epoch(5)
        assert indices(loader) == rotated(5)


def test_samplers_of_torch_give_what_torch_gives() -> None:
    assert indices(make(SequentialSampler(range(N)))) == list(range(N))
    drawn = indices(make(RandomSampler(range(N))))
    assert sorted(drawn) == list(range(N))
    assert drawn != list(range(N))
    counts = np.bincount(indices(make(WeightedRandomSampler([0.0] * 20 + [1.0] * 20, 100))), minlength=N)
    assert counts[:20].sum() == 0
    assert counts.sum() == 100


@pytest.mark.parametrize("name", SAMPLERS)
def test_law_3_the_stream_depends_on_seed_and_epoch_alone(name: str) -> None:
    torch.manual_seed(1)
    first = [indices(loader) for loader in [make(SAMPLERS[name](), seed=3)] for _ in range(3)]
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    with make(SAMPLERS[name](), seed=3, num_workers=1) as loader:
        assert [indices(loader) for _ in range(3)] == first
    assert torch.equal(torch.random.get_rng_state(), state), "torch's own generator is left as it was"
    assert first[0] != first[1]
    if name != "function":
        assert indices(make(SAMPLERS[name](), seed=4)) != first[0]


@pytest.mark.parametrize("received", [1, 3, 5, 6, 9])
@pytest.mark.parametrize("name", ["function", "random"])
def test_law_4_a_resumed_run_gives_the_rest(name: str, received: int) -> None:
    with make(SAMPLERS[name](), seed=3) as loader:
        whole = [batch["index"].tolist() for _ in range(3) for batch in loader]
    with make(SAMPLERS[name](), seed=3) as loader:
        taken: list[list[int]] = []
        while len(taken) < received:
            for batch in loader:
                taken.append(batch["index"].tolist())
                if len(taken) == received:
                    break
        state = json.loads(json.dumps(loader.state_dict()))
    with make(SAMPLERS[name](), seed=3) as loader:
        loader.load_state_dict(state)
        while len(taken) < len(whole):
            taken += [batch["index"].tolist() for batch in loader]
    assert taken == whole


def test_loaders_with_a_function_travel() -> None:
    source = fl.synthetic(N, (2,))
    with fl.Loader(source, batch_size=4, sampler=rotated) as loader:
        next(iter(loader))
        for copied in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)):
            assert indices(copied) == rotated(0)[4:]
            assert indices(copied) == rotated(1)
    with pytest.raises(fl.PlanError, match="sampler is a function or an object, which cannot be written down"):
        loader.plan.to_toml()


def test_ranks_divide_what_a_function_gives() -> None:
    parts = [make(rotated, rank=rank, world_size=2) for rank in range(2)]
    for epoch in range(2):
        assert sorted(indices(parts[0]) + indices(parts[1])) == sorted(rotated(epoch))


def test_a_torch_sampler_counts_the_samples_of_a_part() -> None:
    part = fl.array(np.arange(N)).subset(range(30, N))
    loader = fl.Loader(part, batch_size=5, sampler=RandomSampler(part))  # type: ignore[arg-type]
    assert sorted(indices(loader)) == list(range(30, N))


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (lambda epoch: [0, N], "sampler names sample 40, which the source of 40 samples does not have"),
        (lambda epoch: [0.5], "sampler is .*whole numbers"),
        (lambda epoch: [], "sampler is empty"),
        (BatchSampler(SequentialSampler(range(N)), 4, False), "sampler is .*whole numbers"),
        (DistributedSampler(range(N), num_replicas=2, rank=0), "which the loader does itself"),  # type: ignore[arg-type]
    ],
    ids=["unknown", "fraction", "empty", "batches", "distributed"],
)
def test_invalid_samplers_are_refused_at_once(sampler: Any, words: str) -> None:
    with pytest.raises(fl.PlanError, match=words):
        make(sampler)


def test_a_function_that_fails_later_raises_its_own_error() -> None:
    def fails(epoch: int) -> list[int]:
        if epoch == 1:
            raise KeyError("no such epoch")
        return rotated(epoch)

    with make(fails) as loader:
        assert indices(loader) == rotated(0)
        with pytest.raises(KeyError, match="no such epoch"):
            iter(loader)
        loader.set_epoch(2)
        assert indices(loader) == rotated(2)
