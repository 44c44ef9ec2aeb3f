"""Costs are predicted before data is read: from other samples of the same size, from headers, and from draws."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np

import feedline as fl
from feedline import ops, testing


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

    def follows_sizes() -> bool:
        seen.update(next(iterator)["index"].tolist())
        unseen = np.array([number not in seen for number in range(len(sizes))])
        predicted, size = loader.costs()[unseen] * 1e3, sizes[unseen] / 1000
        # The second delay fires for half of the samples, so the two halves lie on two lines, 10 ms apart.
        is_drawn = predicted > np.polyval(np.polyfit(size, predicted, 1), size)
        halves = [np.corrcoef(predicted[half], size[half])[0, 1] for half in (is_drawn, ~is_drawn)]
        return bool(np.min(halves) > 0.9)

    with np.errstate(invalid="ignore"):  # As long as all are predicted alike, nothing correlates.
        wait_until(follows_sizes, "predictions for unseen samples follow their sizes")
    assert len(seen) < len(sizes) - 50, "before they are seen"


def test_volumes_that_were_not_seen_yet_are_predicted_by_what_their_headers_say(
    tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    depths = np.random.default_rng(0).integers(8, 200, 200)
    noise = np.random.default_rng(1).integers(0, 255, (8, 8, 8), dtype=np.uint8)
    for number, depth in enumerate(depths):
        # Compressed volumes have about the same number of bytes, whatever their size.
        volume = np.zeros((depth, 8, 8), np.uint8)
        volume[:8] = noise
        with gzip.open(tmp_path / f"{number:03}.nii.gz", "wb", compresslevel=1) as file:
            file.write(nibabel.Nifti1Image(volume, np.eye(4)).to_bytes())
    chain: Any = [testing.delay((depths / 10).tolist()), ops.RandomBalancedCrop(8, oversampling=0.0, on="image")]
    loader = fl.Loader(fl.volumes(str(tmp_path)), chain, batch_size=4, num_workers=4, shuffle=True, seed=1)
    iterator = iter(loader)
    seen = set[int]()

    def follows_headers() -> bool:
        seen.update(next(iterator)["index"].tolist())
        unseen = np.array([number not in seen for number in range(len(depths))])
        return bool(np.corrcoef(loader.costs()[unseen], depths[unseen])[0, 1] > 0.95)

    with np.errstate(invalid="ignore"):  # As long as all are predicted alike, nothing correlates.
        wait_until(follows_headers, "predictions for unseen volumes follow their headers")
    assert len(seen) < len(depths) - 25, "before they are seen"


def test_delays_are_numbers_of_any_kind() -> None:
    assert testing.delay(np.float32(3)).costs_ms == testing.delay(3).costs_ms == (3.0,)
    assert testing.delay(np.arange(3)).costs_ms == testing.delay([0, 1, 2]).costs_ms == (0.0, 1.0, 2.0)
