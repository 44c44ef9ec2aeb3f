"""``on_error=fl.substitute``: a bad sample's slot is filled by a named substitute, up to a budget."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import natural, save

import feedline as fl
from feedline import ops

DECODE = [ops.DecodeImage(), ops.Resize((16, 16))]


def skipping(root: Path, **options: Any) -> fl.Loader:
    settings = {"batch_size": 4, "shuffle": True, "seed": 1, "on_error": fl.substitute(0.2)}
    return fl.Loader(fl.folder(root), DECODE, **(settings | options))


def test_a_substitute_replaces_a_bad_sample_and_says_by_which(
    pictures: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    root = pictures(20, classes=())
    (root / "0007.png").write_bytes(b"bad")
    loader = skipping(root)
    planned = loader.plan.indices(0)
    with caplog.at_level(logging.WARNING, logger="feedline"):
        batches = list(loader)
    found = [int(index) for batch in batches for index in batch["index"]]
    place = planned.index(7)
    assert found[:place] + found[place + 1 :] == planned[:place] + planned[place + 1 :]
    by = found[place]
    assert by != 7
    assert np.array_equal(batches[place // 4]["image"][place % 4], picture_of(root, by))
    snapshot = loader.snapshot()
    assert snapshot["substituted"] == 1
    (pair,) = [pair for pair in snapshot["substitutes"] if pair["epoch"] == 0]
    assert (pair["bad"], pair["by"], pair["position"]) == ("0007.png", f"{by:04}.png", place)
    assert "not a JPEG" in pair["reason"]
    assert any("0007.png" in record.getMessage() for record in caplog.records)


def picture_of(root: Path, index: int) -> np.ndarray:
    (batch,) = list(fl.Loader(fl.folder(root).subset([index]), DECODE, batch_size=1))
    return batch["image"][0]


def test_substitutes_do_not_depend_on_the_number_of_workers_and_come_from_the_own_share(
    pictures: Callable[..., Path],
) -> None:
    root = pictures(24, classes=())
    for number in (3, 4, 11):
        (root / f"{number:04}.png").write_bytes(b"bad")
    for rank in range(2):
        streams = []
        for workers in (1, 4):
            loader = skipping(root, num_workers=workers, rank=rank, world_size=2, on_error=fl.substitute(0.5))
            streams.append([index for batch in loader for index in batch["index"].tolist()])
        assert streams[0] == streams[1]
        assert set(streams[0]) <= set(loader.plan.indices(0)) - {3, 4, 11}


def test_a_mask_is_also_replaced_with_its_picture(tmp_path: Path) -> None:
    images = [save(tmp_path / f"{n}.png", natural(16, 16, n)) for n in range(6)]
    masks = [save(tmp_path / f"m{n}.png", np.full((16, 16), n, np.uint8)) for n in range(6)]
    masks[2].write_bytes(b"bad")
    source = fl.files({"image": images, "mask": masks}, labels=range(6))
    loader = fl.Loader(source, [ops.DecodeImage(on=("image", "mask"))], batch_size=6, on_error=fl.substitute(0.2))
    (batch,) = list(loader)
    assert batch["label"].tolist() == batch["index"].tolist() == batch["mask"][:, 0, 0].tolist()
    for index, image in zip(batch["index"], batch["image"], strict=True):
        assert np.array_equal(image, natural(16, 16, int(index)))


def test_past_the_budget_it_raises_with_the_numbers_and_the_last_cause(pictures: Callable[..., Path]) -> None:
    root = pictures(20, classes=())
    for number in (5, 9, 14):
        (root / f"{number:04}.png").write_bytes(b"bad")
    loader = skipping(root, on_error=fl.substitute(0.1), shuffle=False)
    received: list[int] = []
    with pytest.raises(fl.TooManyFailuresError, match="3 bad samples in epoch 0, but at most 2") as caught:  # noqa: PT012
        for batch in loader:
            received += batch["index"].tolist()
    assert len(received) == 12
    assert isinstance(caught.value.__cause__, fl.SampleError)
    assert caught.value.__cause__.key == "0014.png"


def test_the_budget_is_counted_per_epoch_and_goes_through_a_state(pictures: Callable[..., Path]) -> None:
    root = pictures(20, classes=())
    for number in (1, 2, 14):
        (root / f"{number:04}.png").write_bytes(b"bad")
    loader = skipping(root, on_error=fl.substitute(0.15), shuffle=False)
    for _ in range(3):
        assert len(list(loader)) == 5
    first = skipping(root, on_error=fl.substitute(0.15), shuffle=False)
    next(iter(first))
    stricter = skipping(root, on_error=fl.substitute(0.1), shuffle=False)
    stricter.load_state_dict(first.state_dict())
    with pytest.raises(fl.TooManyFailuresError, match="3 bad samples"):
        list(stricter)


def test_if_every_sample_is_bad_it_raises_and_does_not_hang(pictures: Callable[..., Path]) -> None:
    root = pictures(6, classes=())
    for path in root.iterdir():
        path.write_bytes(b"bad")
    with pytest.raises((fl.SampleError, fl.TooManyFailuresError)):
        list(skipping(root, on_error=fl.substitute(1.0)))
