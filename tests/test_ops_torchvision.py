"""Each op against the real torchvision, for equal draws: what ``plan.resolve`` says is given to torchvision's function.

Pictures come from ``fl.array``, so that only the op itself differs. Which torchvision is meant (on a PIL picture or on
a uint8 tensor) is said where it matters; the two differ from each other by more than 1/255 for bicubic and nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from making import labels_mask, natural, save
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

import feedline as fl
from feedline import ops

INTERPOLATION = {
    "nearest": InterpolationMode.NEAREST,
    "bilinear": InterpolationMode.BILINEAR,
    "bicubic": InterpolationMode.BICUBIC,
}
Parameters = list[tuple[str, float]]


def tensor(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


def on_pil(function: Callable[[Image.Image], Image.Image], pixels: np.ndarray) -> np.ndarray:
    result = np.asarray(function(Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)))
    return result[..., None] if result.ndim == 2 else result


def on_tensor(function: Callable[[torch.Tensor], torch.Tensor], pixels: np.ndarray) -> np.ndarray:
    return function(tensor(pixels)).permute(1, 2, 0).numpy()


def check(
    op: ops.Op,
    by_torchvision: Callable[[np.ndarray, dict[str, float]], np.ndarray],
    size: tuple[int, int] = (75, 100),
    count: int = 6,
    tolerance: int = 1,
    **loader_options: Any,
) -> list[Parameters]:
    """Prepare ``count`` pictures in two epochs; compare each with torchvision's result for the resolved parameters."""
    pictures = np.stack([natural(*size, seed=seed) for seed in range(count)])
    loader = fl.Loader(fl.array(pictures), [op], batch_size=count, seed=5, **loader_options)
    drawn = []
    for epoch in range(2):
        (batch,) = list(loader)
        for index, found in zip(batch["index"], batch["image"], strict=True):
            resolved = loader.plan.resolve(0, index=int(index), width=size[1], height=size[0], epoch=epoch)
            drawn.append(resolved)
            expected = by_torchvision(pictures[index], dict(resolved))
            assert found.shape == expected.shape
            difference = np.abs(found.astype(int) - expected.astype(int))
            assert difference.max() <= tolerance, f"{op} with {resolved} differs by up to {difference.max()}"
    return drawn


RESIZES = [
    ((150, 200), (96, 96)),
    ((150, 200), (149, 199)),
    ((120, 161), (51, 37)),
    ((60, 80), (224, 224)),
    ((50, 32), (166, 135)),
    ((100, 100), (50, 150)),
    ((7, 5), (64, 64)),
    ((200, 160), (3, 3)),
    ((1, 1), (9, 5)),
]


@pytest.mark.parametrize(("size", "target"), RESIZES)
def test_bilinear_resize_is_as_torchvision_on_pil_and_on_tensors(
    size: tuple[int, int], target: tuple[int, int]
) -> None:
    op = ops.Resize(target)
    check(op, lambda pixels, _: on_pil(lambda p: F.resize(p, list(target)), pixels), size)
    check(op, lambda pixels, _: on_tensor(lambda t: F.resize(t, list(target), antialias=True), pixels), size)


@pytest.mark.parametrize(("size", "target"), RESIZES)
def test_bicubic_resize_is_as_torchvision_on_tensors(size: tuple[int, int], target: tuple[int, int]) -> None:
    def by_torchvision(pixels: np.ndarray, _: dict[str, float]) -> np.ndarray:
        mode = InterpolationMode.BICUBIC
        return on_tensor(lambda t: F.resize(t, list(target), interpolation=mode, antialias=True), pixels)

    check(ops.Resize(target, interpolation="bicubic"), by_torchvision, size)


@pytest.mark.parametrize(("size", "target"), RESIZES)
def test_nearest_resize_is_as_torchvision_on_pil(size: tuple[int, int], target: tuple[int, int]) -> None:
    def by_torchvision(pixels: np.ndarray, _: dict[str, float]) -> np.ndarray:
        return on_pil(lambda p: F.resize(p, list(target), interpolation=InterpolationMode.NEAREST), pixels)

    check(ops.Resize(target, interpolation="nearest"), by_torchvision, size, tolerance=0)


@pytest.mark.parametrize("size", [(75, 100), (100, 75), (64, 64), (10, 200), (200, 11)])
@pytest.mark.parametrize(("side", "max_size"), [(48, None), (150, None), (48, 60), (48, 5000), (64, None), (30, 45)])
def test_resize_to_a_shorter_side_is_as_torchvision(size: tuple[int, int], side: int, max_size: int | None) -> None:
    def by_torchvision(pixels: np.ndarray, resolved: dict[str, float]) -> np.ndarray:
        expected = on_pil(lambda p: F.resize(p, [side], max_size=max_size), pixels)
        assert (resolved["height"], resolved["width"]) == expected.shape[:2]
        return expected

    check(ops.Resize(side, max_size=max_size), by_torchvision, size, count=2)


@pytest.mark.parametrize("size", [(75, 100), (20, 30), (20, 100), (75, 9), (48, 48), (49, 47)])
@pytest.mark.parametrize("target", [48, (31, 64), 1])
def test_center_crop_is_as_torchvision(size: tuple[int, int], target: int | tuple[int, int]) -> None:
    sides = [target, target] if isinstance(target, int) else list(target)
    check(
        ops.CenterCrop(target),
        lambda pixels, _: on_pil(lambda p: F.center_crop(p, sides), pixels),
        size, count=2, tolerance=0,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("padding", [None, 4, (3, 7), (1, 2, 3, 4), (30, 20)])
def test_random_crop_is_as_torchvision(mode: str, padding: int | tuple[int, ...] | None) -> None:
    def by_torchvision(pixels: np.ndarray, resolved: dict[str, float]) -> np.ndarray:
        def crop(picture: Image.Image) -> Image.Image:
            if padding is not None:
                sides = padding if isinstance(padding, int) else list(padding)
                picture = F.pad(picture, sides, fill=7 if mode == "constant" else 0, padding_mode=mode)
            return F.crop(picture, int(resolved["top"]), int(resolved["left"]), 40, 44)

        return on_pil(crop, pixels)

    op = ops.RandomCrop((40, 44), padding=padding, fill=7, padding_mode=mode)
    drawn = check(op, by_torchvision, tolerance=0)
    assert len({tuple(parameters) for parameters in drawn}) > 6, "places differ from sample to sample"


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("size", [(30, 35), (30, 80), (75, 36), (44, 44)])
def test_random_crop_pads_if_needed_as_torchvision(mode: str, size: tuple[int, int]) -> None:
    # torchvision pads both sides by the whole difference, and only on the axis that is too short.
    x, y = max(0, 44 - size[1]), max(0, 40 - size[0])

    def by_torchvision(pixels: np.ndarray, resolved: dict[str, float]) -> np.ndarray:
        padded = F.pad(tensor(pixels), [x, y, x, y], padding_mode=mode)
        return F.crop(padded, int(resolved["top"]), int(resolved["left"]), 40, 44).permute(1, 2, 0).numpy()

    op = ops.RandomCrop((40, 44), pad_if_needed=True, padding_mode=mode)
    check(op, by_torchvision, size, tolerance=0)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(150, 200), (90, 60), (30, 300)])
def test_random_resized_crop_is_as_torchvision_on_tensors(interpolation: str, size: tuple[int, int]) -> None:
    def by_torchvision(pixels: np.ndarray, resolved: dict[str, float]) -> np.ndarray:
        box = [int(resolved[name]) for name in ("top", "left", "height", "width")]
        mode = INTERPOLATION[interpolation]
        return on_tensor(lambda t: F.resized_crop(t, *box, [64, 72], interpolation=mode, antialias=True), pixels)

    check(ops.RandomResizedCrop((64, 72), interpolation=interpolation), by_torchvision, size, count=12)


@pytest.mark.parametrize("size", [(150, 200), (90, 60)])
def test_random_resized_crop_is_as_torchvision_on_pil(size: tuple[int, int]) -> None:
    def by_torchvision(pixels: np.ndarray, resolved: dict[str, float]) -> np.ndarray:
        box = [int(resolved[name]) for name in ("top", "left", "height", "width")]
        return on_pil(lambda p: F.resized_crop(p, *box, [64, 64]), pixels)

    check(ops.RandomResizedCrop(64), by_torchvision, size, count=12)


@pytest.mark.parametrize(
    ("op", "flip"),
    [(ops.RandomHorizontalFlip(), F.horizontal_flip), (ops.RandomVerticalFlip(), F.vertical_flip)],
)
@pytest.mark.parametrize("size", [(30, 41), (31, 64), (1, 1), (2, 3), (5, 1)])
def test_flips_are_as_torchvision(op: ops.Op, flip: Callable[[Any], Any], size: tuple[int, int]) -> None:
    drawn = check(
        op, lambda pixels, drawn: on_pil(flip, pixels) if drawn["flip"] else pixels, size, count=12, tolerance=0
    )
    assert {dict(parameters)["flip"] for parameters in drawn} == {0.0, 1.0}


@pytest.mark.parametrize("channels", [1, 3])
def test_grayscale_is_as_torchvision(channels: int) -> None:
    for convert in (on_pil, on_tensor):
        check(
            ops.Grayscale(channels),
            lambda pixels, _, convert=convert: convert(lambda p: F.rgb_to_grayscale(p, channels), pixels),
        )


DETERMINISTIC = [
    ops.Resize((16, 16)),
    ops.Resize((20, 13)),
    ops.CenterCrop(16),
    ops.CenterCrop((20, 13)),
    ops.RandomHorizontalFlip(p=1.0),
    ops.RandomVerticalFlip(p=1.0),
    ops.Grayscale(3),
    ops.ColorJitter(brightness=(0.5, 0.5)),
    ops.ColorJitter(saturation=(1.5, 1.5)),
    ops.RandomErasing(p=0.0),
]


@pytest.mark.parametrize("seed", range(40))
def test_law_8_a_chain_gives_the_same_bytes_as_its_ops_one_by_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    chain = [DETERMINISTIC[number] for number in random.integers(0, len(DETERMINISTIC), 6)]
    start = np.stack([natural(16, 16, seed) for seed in range(5)])
    (together,) = list(fl.Loader(fl.array(start), chain, batch_size=5))
    one_by_one = start
    for op in chain:
        (batch,) = list(fl.Loader(fl.array(one_by_one), [op], batch_size=5))
        one_by_one = batch["image"]
    assert np.array_equal(together["image"], one_by_one)


@pytest.mark.parametrize("op", [ops.Resize(4, on="data"), ops.RandomResizedCrop(4, on="data")])
def test_resolving_for_a_picture_without_pixels_is_refused(op: ops.Op) -> None:
    plan = fl.Loader(fl.synthetic(4, (8, 8, 3)), [op], batch_size=1).plan
    with pytest.raises(ValueError, match=r"width|height|pixels"):
        plan.resolve(0, index=0, width=0, height=0)


def test_image_and_mask_get_one_draw_and_the_mask_keeps_its_labels(tmp_path: Any) -> None:
    labels = (0, 3, 17, 255)
    pictures = [natural(60, 90, seed) for seed in range(8)]
    masks = [labels_mask(60, 90, labels, seed) for seed in range(8)]
    source = fl.files(
        {
            "image": [save(tmp_path / f"{n}.png", picture) for n, picture in enumerate(pictures)],
            "mask": [save(tmp_path / f"{n}_m.png", mask) for n, mask in enumerate(masks)],
        }
    )
    both = ("image", "mask")
    chain = [ops.DecodeImage(on=both), ops.RandomResizedCrop(48, on=both), ops.RandomHorizontalFlip(on=both)]
    loader = fl.Loader(source, chain, batch_size=8)
    (batch,) = list(loader)
    assert batch["mask"].shape == (8, 48, 48)
    for index in range(8):
        crop = dict(loader.plan.resolve(1, index=index, width=90, height=60))
        box = [int(crop[name]) for name in ("top", "left", "height", "width")]
        expected_mask = F.resized_crop(Image.fromarray(masks[index]), *box, [48, 48], InterpolationMode.NEAREST)
        expected = F.resized_crop(Image.fromarray(pictures[index]), *box, [48, 48])
        if dict(loader.plan.resolve(2, index=index, width=48, height=48))["flip"]:
            expected, expected_mask = F.horizontal_flip(expected), F.horizontal_flip(expected_mask)
        assert np.array_equal(batch["mask"][index], np.asarray(expected_mask))
        assert np.abs(batch["image"][index].astype(int) - np.asarray(expected).astype(int)).max() <= 1
        assert set(np.unique(batch["mask"][index])) <= set(labels)
