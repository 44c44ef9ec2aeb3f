"""Ops that change values, not places, against torchvision: colours, erasing, conversion to tensors, normalising."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from making import natural
from PIL import Image
from torchvision.transforms.v2 import functional as F

import feedline as fl
from feedline import ops

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ADJUST = {
    "brightness": F.adjust_brightness,
    "contrast": F.adjust_contrast,
    "saturation": F.adjust_saturation,
    "hue": F.adjust_hue,
}


def prepare(op: ops.Op | list[ops.Op], pictures: np.ndarray, **options: Any) -> tuple[fl.Loader, Any]:
    chain = op if isinstance(op, list) else [op]
    loader = fl.Loader(fl.array(pictures), chain, batch_size=len(pictures), seed=11, **options)
    (batch,) = list(loader)
    return loader, batch["image"]


def naturals(count: int, height: int = 60, width: int = 80) -> np.ndarray:
    return np.stack([natural(height, width, seed) for seed in range(count)])


def check_jitter(op: ops.ColorJitter, count: int = 8, tolerance: int = 1) -> list[tuple[str, ...]]:
    """Compare with torchvision's functions on uint8 tensors, in the order that resolve() gives."""
    pictures = naturals(count)
    loader, found = prepare(op, pictures)
    orders = []
    for index in range(count):
        steps = loader.plan.resolve(0, index=index, width=80, height=60)
        orders.append(tuple(name for name, _ in steps))
        expected = torch.from_numpy(pictures[index].copy()).permute(2, 0, 1)
        for name, value in steps:
            expected = ADJUST[name](expected, value)
        difference = np.abs(found[index].astype(int) - expected.permute(1, 2, 0).numpy().astype(int))
        assert difference.max() <= tolerance, (
            f"{steps} differs by up to {difference.max()}, in {np.mean(difference > tolerance):.3%} of the values"
        )
    return orders


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
@pytest.mark.parametrize("strength", ["little", "much", "pair"])
def test_each_factor_of_color_jitter_is_as_torchvision_on_tensors(name: str, strength: str) -> None:
    value: Any = {"little": 0.1, "much": 0.5 if name == "hue" else 0.9, "pair": (0.2, 0.4)}[strength]
    orders = check_jitter(ops.ColorJitter(**{name: value}))
    assert set(orders) == {(name,)}


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_each_factor_of_color_jitter_is_as_torchvision_on_pil(name: str) -> None:
    pictures = naturals(6)
    loader, found = prepare(ops.ColorJitter(**{name: 0.6}), pictures)
    for index in range(6):
        ((_, value),) = loader.plan.resolve(0, index=index, width=80, height=60)
        expected = np.asarray(ADJUST[name](Image.fromarray(pictures[index]), value)).astype(int)
        assert np.abs(found[index].astype(int) - expected).max() <= 1, f"{name} {value}"


def test_brightness_and_contrast_and_saturation_together_are_as_torchvision() -> None:
    orders = check_jitter(ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4), count=24)
    assert len(set(orders)) == 6, "all orders come up"


def test_all_factors_of_color_jitter_together_are_as_torchvision() -> None:
    orders = check_jitter(ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1), count=32)
    assert all(sorted(order) == sorted(ADJUST) for order in orders)
    assert len(set(orders)) > 12, "orders are drawn"


def test_hue_leaves_grey_and_extreme_pixels_as_torchvision_does() -> None:
    colours = np.array(
        [[0, 0, 0], [255, 255, 255], [9, 9, 9], [255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [1, 0, 0]],
        np.uint8,
    )
    pictures = np.broadcast_to(colours[None, None], (16, 1, 8, 3)).copy()
    loader, found = prepare(ops.ColorJitter(hue=0.5), pictures)
    for index in range(16):
        ((_, turn),) = loader.plan.resolve(0, index=index, width=8, height=1)
        expected = F.adjust_hue(torch.from_numpy(pictures[index]).permute(2, 0, 1), turn).permute(1, 2, 0).numpy()
        assert np.abs(found[index].astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("value", [0, 77, (10, 20, 30)])
def test_random_erasing_of_pictures_is_as_torchvision(value: Any) -> None:
    pictures = naturals(16)
    loader, found = prepare(ops.RandomErasing(value=value), pictures)
    erased = 0
    for index in range(16):
        box = dict(loader.plan.resolve(0, index=index, width=80, height=60))
        expected = torch.from_numpy(pictures[index].copy()).permute(2, 0, 1)
        if box:
            erased += 1
            top, left, height, width = (int(box[name]) for name in ("top", "left", "height", "width"))
            fill = torch.tensor(value, dtype=torch.uint8).reshape(-1, 1, 1)
            expected = F.erase(expected, top, left, height, width, fill)
        assert np.array_equal(found[index], expected.permute(1, 2, 0).numpy())
    assert 0 < erased < 16


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("size", [(60, 80), (3, 50), (1, 50), (50, 3)])
def test_random_erasing_knows_the_axes_of_any_size(layout: str, size: tuple[int, int]) -> None:
    height, width = size
    pictures = naturals(24, height, width)
    chain = [ops.ToTensor(layout=layout), ops.RandomErasing(p=1.0, value=(0.25, 0.5, 0.75))]
    _check_erased(prepare(chain, pictures), pictures, size, layout)


@pytest.mark.parametrize("size", [(3, 50), (1, 50), (50, 3)])
def test_random_erasing_of_narrow_pictures_erases_what_was_drawn(size: tuple[int, int]) -> None:
    pictures = naturals(24, *size)
    loader, found = prepare(ops.RandomErasing(p=1.0, value=(1, 2, 3), scale=(0.1, 0.4)), pictures)
    for index in range(24):
        box = dict(loader.plan.resolve(0, index=index, width=size[1], height=size[0]))
        expected = pictures[index].copy()
        if box:
            top, left, height, width = (int(box[name]) for name in ("top", "left", "height", "width"))
            expected[top : top + height, left : left + width] = (1, 2, 3)
        assert np.array_equal(found[index], expected), f"{box} of {size}"


def _check_erased(prepared: tuple[fl.Loader, Any], pictures: np.ndarray, size: tuple[int, int], layout: str) -> None:
    loader, found = prepared
    for index, picture in enumerate(pictures):
        box = dict(loader.plan.resolve(1, index=index, width=size[1], height=size[0]))
        expected = torch.from_numpy(picture.astype(np.float32) / 255).permute(2, 0, 1).contiguous()
        if box:
            top, left, height, width = (int(box[name]) for name in ("top", "left", "height", "width"))
            expected = F.erase(expected, top, left, height, width, torch.tensor((0.25, 0.5, 0.75)).reshape(3, 1, 1))
        expected = expected if layout == "CHW" else expected.permute(1, 2, 0)
        np.testing.assert_allclose(found[index], expected.numpy(), atol=1e-6, err_msg=f"{box} of {size}")


def test_random_erasing_with_noise_fills_with_the_standard_normal_distribution() -> None:
    chain = [ops.ToTensor(), ops.RandomErasing(p=1.0, scale=(0.3, 0.33), value="random")]
    pictures = np.full((40, 64, 64, 3), 128, np.uint8)
    _, found = prepare(chain, pictures)
    noise = found[np.abs(found - 128 / 255) > 1e-6]
    assert noise.size > 40 * 3 * 1000
    error = 1 / np.sqrt(noise.size)
    assert abs(noise.mean()) < 5 * error
    assert abs(noise.std() - 1) < 5 * error
    one = noise[:1000]
    assert len(np.unique(one)) > 990, "noise is drawn per element"


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "bfloat16"])
@pytest.mark.parametrize("name", [str, lambda dtype: getattr(torch, dtype)], ids=["by name", "torch dtype"])
def test_to_tensor_is_as_torchvision_for_every_dtype_and_layout(layout: str, dtype: str, name: Any) -> None:
    pictures = naturals(3, 13, 37)
    _, found = prepare(ops.ToTensor(dtype=name(dtype), layout=layout), pictures, framework="torch")
    expected = torch.from_numpy(pictures).permute(0, 3, 1, 2)
    expected = F.to_dtype(expected, getattr(torch, dtype), scale=True) if dtype != "uint8" else expected
    expected = expected if layout == "CHW" else expected.permute(0, 2, 3, 1)
    assert found.dtype == getattr(torch, dtype)
    assert found.shape == expected.shape
    tolerance = {"uint8": 0, "float32": 1e-6, "float16": 2**-11, "bfloat16": 2**-8}[dtype]
    assert (found.double() - expected.double()).abs().max() <= tolerance


def test_bfloat16_without_torch_is_refused_at_once_and_says_what_to_take() -> None:
    with pytest.raises(fl.PlanError, match='framework="torch"'):
        fl.Loader(fl.array(naturals(2)), [ops.ToTensor(dtype="bfloat16")], batch_size=2)


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize(("dtype", "step"), [("float32", 2**-22), ("float16", 2**-10), ("bfloat16", 2**-7)])
@pytest.mark.parametrize("before", [[], [ops.ToTensor()]], ids=["of pixels", "after ToTensor"])
def test_normalize_is_as_torchvision(layout: str, dtype: str, step: float, before: list[ops.Op]) -> None:
    if before:
        before = [ops.ToTensor(dtype=dtype, layout=layout)]
    pictures = naturals(3, 21, 17)
    chain = [*before, ops.Normalize(dtype=dtype, layout=layout)]
    _, found = prepare(chain, pictures, framework="torch")
    scaled = F.to_dtype(torch.from_numpy(pictures).permute(0, 3, 1, 2), torch.float32, scale=True)
    expected = F.normalize(scaled, list(MEAN), list(STD))
    expected = expected if layout == "CHW" else expected.permute(0, 2, 3, 1)
    assert found.dtype == getattr(torch, dtype)
    # Values lie within 2.7; rounding before the division by std adds its own step.
    tolerance = 2.7 * step + (step / min(STD) if before else 0)
    assert (found.double() - expected.double()).abs().max() <= tolerance


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("size", [(3, 50), (1, 50), (50, 3)])
def test_normalize_after_to_tensor_knows_the_axes_of_any_size(layout: str, size: tuple[int, int]) -> None:
    pictures = naturals(2, *size)
    _, found = prepare([ops.ToTensor(layout=layout), ops.Normalize()], pictures)
    expected = (pictures / 255 - MEAN) / STD
    expected = expected if layout == "HWC" else expected.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_normalize_of_one_channel_takes_one_mean() -> None:
    pictures = naturals(2)
    _, found = prepare([ops.Grayscale(1), ops.Normalize(mean=(0.5,), std=(0.25,))], pictures)
    grey = F.rgb_to_grayscale(torch.from_numpy(pictures).permute(0, 3, 1, 2)).float() / 255
    assert found.shape == (2, 1, 60, 80)
    assert np.abs(found - ((grey - 0.5) / 0.25).numpy()).max() <= 1 / 255 / 0.25 + 1e-6


def test_the_whole_training_chain_is_as_torchvision() -> None:
    pictures = naturals(8, 150, 200)
    chain = [ops.RandomResizedCrop(64), ops.RandomHorizontalFlip(), ops.Normalize()]
    loader, found = prepare(chain, pictures)
    for index in range(8):
        box = dict(loader.plan.resolve(0, index=index, width=200, height=150))
        sides = [int(box[name]) for name in ("top", "left", "height", "width")]
        expected = F.resized_crop(Image.fromarray(pictures[index]), *sides, [64, 64])
        if dict(loader.plan.resolve(1, index=index, width=64, height=64))["flip"]:
            expected = F.horizontal_flip(expected)
        expected = F.normalize(F.to_dtype(F.to_image(expected), torch.float32, scale=True), list(MEAN), list(STD))
        assert np.abs(found[index] - expected.numpy()).max() <= 1 / 255 / min(STD) + 1e-5
