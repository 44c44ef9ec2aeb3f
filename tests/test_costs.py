"""Costs are predicted before data is touched: from what samples of a size took, and from draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import feedline as fl
from feedline import testing


def test_samples_that_were_not_seen_yet_are_predicted_by_their_size(
    tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    sizes = np.random.default_rng(0).integers(1000, 20_000, 400)
    paths = []
    for number, size in enumerate(sizes):
        paths.append(tmp_path / f"{number:03}.bin")
        paths[-1].write_bytes(bytes(int(size)))
    chain: Any = [testing.delay((sizes / 1000).tolist()), testing.delay(10.0, p=0.5)]
    loader = fl.Loader(
        fl.files({"image": paths}), chain, batch_size=4, num_workers=4, shuffle=True, ragged=["image"], seed=1
    )
    iterator = iter(loader)
    seen = set[int]()

    def spread_of_unseen() -> float:
        seen.update(next(iterator)["index"].tolist())
        unseen = np.array([number not in seen for number in range(len(sizes))])
        # The second delay is drawn: what is left of it after its mean is taken off follows the draws alone.
        predicted = loader.costs()[unseen] * 1e3 - sizes[unseen] / 1000
        drawn = predicted > 5
        return float(max(np.std(predicted[drawn]), np.std(predicted[~drawn])))

    wait_until(lambda: spread_of_unseen() < 1.0, "unseen samples are predicted to a millisecond", seconds=20)
    assert len(seen) < len(sizes) / 2, "long before they are seen"


def test_delays_are_numbers_of_any_kind() -> None:
    assert testing.delay(np.float32(3)).costs_ms == testing.delay(3).costs_ms == (3.0,)
    assert testing.delay(np.arange(3)).costs_ms == testing.delay([0, 1, 2]).costs_ms == (0.0, 1.0, 2.0)
