"""A crop that follows a resize: only its part is decoded and resized, and the pixels are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import labels_mask, natural, save
from test_seek_index import flavours

import feedline as fl
from feedline import ops

BOTH = ("image", "mask")


def crop_of(whole: Any, place: dict[str, float], side: int) -> Any:
    top, left = int(place["top"]), int(place["left"])
    return whole[top : top + side, left : left + side]


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [33, (40, 90), (130, 35)])
def test_law_8_a_crop_of_a_resized_picture_has_the_pixels_of_the_whole_one(
    tmp_path: Path, size: int, interpolation: Any
) -> None:
    source = fl.folder(flavours(tmp_path / "pictures"))
    for mode in ("rgb", "grey"):
        resized = [ops.DecodeImage(mode=mode), ops.Resize(size, interpolation)]
        whole = fl.Loader(source, resized, batch_size=1, ragged=("image",))
        expected = {int(batch["index"][0]): batch["image"][0] for batch in whole}
        cropped = ops.CenterCrop(24), ops.RandomCrop(31), ops.CenterCrop(60), ops.RandomCrop(60, pad_if_needed=True)
        for crop in cropped:
            side = crop.size
            assert isinstance(side, int)
            # A flip that never happens needs the whole picture, but is no crop.
            blocked = fl.Loader(source, [*resized, ops.RandomHorizontalFlip(p=0.0), crop], batch_size=1, seed=3)
            # The number of an op keys its draws, so the flip comes after the decoder here.
            early = [resized[0], ops.RandomHorizontalFlip(p=0.0), resized[1], crop]
            unread = fl.Loader(source, early, batch_size=1, seed=3)
            fused = fl.Loader(source, [*resized, crop], batch_size=1, seed=3)
            # The first epoch builds seek indexes, and the second one uses them.
            for epoch in range(2):
                pairs = zip(blocked, unread, fused, strict=True)
                for one, other, read in pairs:
                    np.testing.assert_array_equal(one["image"], other["image"])
                    index, found = int(read["index"][0]), read["image"][0]
                    height, width = expected[index].shape[:2]
                    if min(height, width) >= side:
                        place = dict(fused.plan.resolve(2, index=index, width=width, height=height, epoch=epoch))
                        np.testing.assert_array_equal(found, crop_of(expected[index], place, side), source.key(index))


def test_law_8_picture_and_mask_are_resized_and_cropped_as_whole_ones(tmp_path: Path) -> None:
    source = fl.files(
        {
            "image": [save(tmp_path / f"{n}.jpg", natural(60 + n, 90, n), quality=90) for n in range(6)],
            "mask": [save(tmp_path / f"{n}_m.png", labels_mask(60 + n, 90, (0, 3, 17, 255), n)) for n in range(6)],
        }
    )
    resized = [ops.DecodeImage(on=BOTH), ops.Resize(80, on=BOTH)]
    whole = {int(b["index"][0]): b for b in fl.Loader(source, resized, batch_size=1, ragged=BOTH)}
    loader = fl.Loader(source, [*resized, ops.RandomCrop(48, on=BOTH)], batch_size=1, shuffle=True, seed=5)
    for epoch in range(3):
        for batch in loader:
            index = int(batch["index"][0])
            height, width = whole[index]["mask"][0].shape[:2]
            place = dict(loader.plan.resolve(2, index=index, width=width, height=height, epoch=epoch))
            for field in BOTH:
                np.testing.assert_array_equal(batch[field][0], crop_of(whole[index][field][0], place, 48))


def test_validation_reads_and_decodes_less_than_whole_pictures(tmp_path: Path) -> None:
    root = tmp_path / "pictures"
    for number in range(8):
        save(root / f"{number}.jpg", natural(300, 480, number), quality=90)

    def bytes_per_read(crop: ops.Op) -> float:
        chain = [ops.DecodeImage(), ops.Resize(64), crop]
        # The second loader finds the seek indexes that the first one has built.
        for _ in range(2):
            loader = fl.Loader(fl.folder(root), chain, batch_size=4)
            assert sum(len(batch["index"]) for batch in loader) == 8
        # Read-ahead into the next epoch varies, so bytes are compared per read.
        store = loader.snapshot()["store"]
        return float(store["bytes"] / store["reads"])

    assert bytes_per_read(ops.CenterCrop(32)) < 0.8 * bytes_per_read(ops.CenterCrop(64))
