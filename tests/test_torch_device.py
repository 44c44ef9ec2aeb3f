"""`feedline.torch.prefetch`: batches pass through on the CPU, and the state counts only delivered ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

import feedline as fl
import feedline.torch


class Pair(NamedTuple):
    image: torch.Tensor
    names: list[str]


def batches(count: int = 3) -> list[Any]:
    return [{"pair": Pair(torch.full((2, 3, 4, 4), float(n)), ["a", "b"]), "n": n} for n in range(count)]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_batches_come_in_order_with_their_structure(depth: int) -> None:
    found = list(feedline.torch.prefetch(batches(), "cpu", depth=depth, channels_last=True))
    assert [batch["n"] for batch in found] == [0, 1, 2]
    for number, batch in enumerate(found):
        assert type(batch["pair"]) is Pair
        assert batch["pair"].names == ["a", "b"]
        assert batch["pair"].image.is_contiguous(memory_format=torch.channels_last)
        assert torch.all(batch["pair"].image == number)


def test_a_transform_gets_each_batch_once() -> None:
    seen = []

    def transform(batch: Any) -> Any:
        seen.append(batch["n"])
        return batch["n"] * 10

    assert list(feedline.torch.prefetch(batches(), "cpu", transform=transform)) == [0, 10, 20]
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("depth", [1, 3])
def test_law_4_the_state_counts_delivered_batches_whatever_was_read_ahead(depth: int) -> None:
    def make() -> feedline.torch.DevicePrefetcher:
        loader = feedline.torch.DataLoader(range(20), batch_size=3, shuffle=True, seed=4)
        return feedline.torch.prefetch(loader, "cpu", depth=depth)

    whole = [batch.tolist() for batch in make()]
    for taken in range(len(whole)):
        broken = make()
        iterator = iter(broken)
        for _ in range(taken):
            next(iterator)
        resumed = make()
        resumed.load_state_dict(broken.state_dict())
        assert [batch.tolist() for batch in resumed] == whole[taken:]


def test_an_epoch_that_ended_is_followed_by_the_next() -> None:
    loader = feedline.torch.prefetch(feedline.torch.DataLoader(range(6), batch_size=3, shuffle=True, seed=1), "cpu")
    first, second = (torch.cat(list(loader)).tolist() for _ in range(2))
    assert first != second
    assert sorted(first) == sorted(second) == list(range(6))
    assert loader.state_dict()["epoch"] == 2


def test_a_depth_below_one_is_refused() -> None:
    with pytest.raises(fl.PlanError, match="depth"):
        feedline.torch.prefetch(batches(), "cpu", depth=0)
