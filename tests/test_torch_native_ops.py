"""``native_ops`` against the real torchvision: equal results, equal distributions, and a reason for all others."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import test_ops_distributions as distributions
import torch
from making import natural
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode, v2

import feedline as fl
from feedline import ops
from feedline.torch.native.conversion import native_ops

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TO_FLOAT = v2.ToDtype(torch.float32, scale=True)


def pictures(height: int = 75, width: int = 100, count: int = 4) -> np.ndarray:
    return np.stack([natural(height, width, seed) for seed in range(count)])


def by_feedline(transform: Any, pixels: np.ndarray) -> torch.Tensor:
    loader = fl.Loader(fl.array(pixels), native_ops(transform).ops, batch_size=len(pixels), framework="torch")
    return next(iter(loader))["image"]


def by_torchvision(transform: Any, pixels: np.ndarray) -> torch.Tensor:
    return torch.utils.data.default_collate([transform(Image.fromarray(picture)) for picture in pixels])


def check(
    transform: Any, size: tuple[int, int] = (75, 100), std: tuple[float, ...] = (1.0,), tolerance: float = 1 / 255
) -> None:
    """Compare shapes, dtypes and values. ``std`` brings normalised values back to the scale of [0, 1]."""
    assert native_ops(transform).is_native, native_ops(transform)
    found, expected = by_feedline(transform, pictures(*size)), by_torchvision(transform, pictures(*size))
    assert type(found) is type(expected) is torch.Tensor
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    scale = 255 if found.dtype == torch.uint8 else 1
    by_channel = torch.tensor(std).reshape(-1, 1, 1) / scale
    difference = ((found.double() - expected.double()).abs() * by_channel).max().item()
    assert difference <= tolerance + 1e-6, f"differs by {difference * 255:.2f}/255"


DETERMINISTIC = [
    [T.Resize(48), T.CenterCrop(40), T.ToTensor()],
    [T.Resize([48]), T.CenterCrop([40]), T.ToTensor()],
    [T.Resize((33, 41)), T.ToTensor()],
    [T.Resize(48, max_size=60), T.ToTensor()],
    [T.Resize(48, antialias=None), T.ToTensor()],
    [T.Resize(48, interpolation=2), T.ToTensor()],
    [T.Resize((33, 41), interpolation=InterpolationMode.NEAREST), T.ToTensor()],
    [T.Resize((33, 41), interpolation=InterpolationMode.NEAREST_EXACT), T.ToTensor()],
    [T.CenterCrop((31, 64)), T.ToTensor()],
    [T.CenterCrop(120), T.ToTensor()],
    [T.RandomHorizontalFlip(p=1.0), T.RandomVerticalFlip(p=1.0), T.ToTensor()],
    [T.RandomResizedCrop(30, scale=(1.0, 1.0), ratio=(4 / 3, 4 / 3)), T.ToTensor()],
    [T.Grayscale(), T.ToTensor()],
    [T.Grayscale(), T.Grayscale(), T.ToTensor()],
    [T.Grayscale(3), T.ToTensor()],
    [T.ColorJitter(), T.ToTensor()],
    [T.ColorJitter(brightness=(0.5, 0.5)), T.ToTensor()],
    [T.PILToTensor()],
    [T.PILToTensor(), T.ConvertImageDtype(torch.float32)],
    [T.PILToTensor(), T.Resize((33, 41)), T.ConvertImageDtype(torch.float32)],
    [T.ToTensor(), T.RandomHorizontalFlip(p=1.0), T.CenterCrop(120)],
    [T.ToTensor(), torch.nn.Identity()],
    [v2.Resize(48), v2.CenterCrop(40), v2.ToTensor()],
    [v2.ToImage(), v2.Resize(48), v2.CenterCrop(40)],
    [v2.ToImage(), v2.ToDtype(torch.uint8, scale=True), v2.Resize((33, 41), interpolation="bicubic"), TO_FLOAT],
    [v2.PILToTensor(), v2.ToImage(), v2.ToPureTensor(), v2.Identity(), TO_FLOAT, TO_FLOAT],
    [v2.ToDtype(torch.float32), v2.ToImage(), v2.ConvertImageDtype(torch.float32)],
    [v2.RGB(), v2.ToImage(), v2.Grayscale(3), TO_FLOAT],
    [v2.ToImage(), v2.ColorJitter(hue=(0.2, 0.2)), TO_FLOAT],
    [v2.ToImage(), v2.RandomErasing(p=0.0), TO_FLOAT],
    [v2.Resize(48, interpolation=2), v2.ToImage()],
    [v2.Resize(48, interpolation=InterpolationMode.BILINEAR), v2.ToImage()],
]  # fmt: skip


@pytest.mark.parametrize("chain", DETERMINISTIC, ids=str)
def test_deterministic_chains_are_within_one_step_of_torchvision(chain: list[Any]) -> None:
    compose = v2.Compose if type(chain[0]).__module__.startswith("torchvision.transforms.v2") else T.Compose
    check(compose(chain))


@pytest.mark.parametrize("size", [(375, 500), (300, 280), (200, 601)])
@pytest.mark.parametrize(
    "transform",
    [
        T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize(MEAN, STD)]),
        v2.Compose([v2.Resize(256), v2.CenterCrop(224), v2.ToImage(), TO_FLOAT, v2.Normalize(MEAN, STD)]),
        v2.Compose([v2.ToImage(), v2.Resize(256), v2.CenterCrop(224), TO_FLOAT, v2.Normalize(MEAN, STD)]),
    ],
    ids=["v1", "v2 on PIL", "v2 on tensors"],
)
def test_the_validation_chain_is_within_one_step_of_torchvision(transform: Any, size: tuple[int, int]) -> None:
    check(transform, size, std=STD)


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        (MEAN, STD),
        ((0.5,), (0.5,)),
        (torch.tensor(MEAN), torch.tensor(STD)),
        (np.array(MEAN), np.array(STD)),
        (0.5, 0.2),
    ],
)
def test_normalize_takes_all_that_torchvision_takes(mean: Any, std: Any) -> None:
    check(T.Compose([T.ToTensor(), T.Normalize(mean, std)]), tolerance=1e-5)


def test_a_sequential_and_a_single_transform_are_read_like_a_compose() -> None:
    check(torch.nn.Sequential(v2.Resize(48), torch.nn.Sequential(v2.ToImage()), TO_FLOAT))
    check(T.ToTensor())


def test_to_tensor_and_normalize_become_one_op() -> None:
    native = native_ops(T.Compose([T.ToTensor(), T.Normalize(MEAN, STD), T.RandomErasing()]))
    assert native.ops == [ops.Normalize(MEAN, STD), ops.RandomErasing()]
    assert native.output == "float32 tensor"


def test_a_flip_after_the_conversion_moves_before_it() -> None:
    native = native_ops(T.Compose([T.ToTensor(), T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()]))
    assert native.ops == [ops.RandomCrop((32, 32), padding=4), ops.RandomHorizontalFlip(), ops.ToTensor()]


def test_v2_stores_padding_in_another_order() -> None:
    for crop in (T.RandomCrop(8, padding=(1, 2, 3, 4)), v2.RandomCrop(8, padding=(1, 2, 3, 4))):
        assert native_ops(crop).ops == [ops.RandomCrop((8, 8), padding=(1, 2, 3, 4))]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("version", [T, v2])
def test_a_random_crop_that_can_only_be_at_one_place_is_as_torchvision(mode: str, version: Any) -> None:
    crop = version.RandomCrop((79, 106), padding=(1, 3, 5, 1), fill=9, padding_mode=mode)
    check(version.Compose([crop, version.PILToTensor()]), tolerance=0)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_padding_if_needed_has_the_distribution_of_torchvision(mode: str) -> None:
    (op,) = native_ops(T.RandomCrop(90, pad_if_needed=True, padding_mode=mode)).ops
    found = distributions.columns(distributions.drawn(op, 100, 75), ("top", "left"))
    torch.manual_seed(0)
    # The height of 75 is padded by 15 at both ends; the width of 100 needs no padding.
    drawn = [T.RandomCrop.get_params(torch.zeros(3, 105, 100), (90, 90)) for _ in range(distributions.COUNT)]
    for number, name in enumerate(("top", "left")):
        distributions.check(found[name], np.array([row[number] for row in drawn], float), name)


BOX = distributions.BOX


@pytest.mark.parametrize("version", [T, v2])
@pytest.mark.parametrize("parameters", [{}, {"scale": (0.5, 0.9), "ratio": (0.5, 1.0)}])
def test_random_resized_crop_draws_as_torchvision(version: Any, parameters: dict[str, Any]) -> None:
    transform = version.RandomResizedCrop(8, **parameters)
    (op,) = native_ops(transform).ops
    torch.manual_seed(0)
    picture = torch.zeros(3, 75, 100)
    drawn = [transform.get_params(picture, transform.scale, transform.ratio) for _ in range(distributions.COUNT)]
    found = distributions.columns(distributions.drawn(op, 100, 75), BOX)
    for number, name in enumerate(BOX):
        distributions.check(found[name], np.array([row[number] for row in drawn], float), name)


@pytest.mark.parametrize("version", [T, v2])
def test_random_crop_draws_as_torchvision(version: Any) -> None:
    (op,) = native_ops(version.RandomCrop((40, 50), padding=(1, 2, 3, 4))).ops
    torch.manual_seed(0)
    padded = torch.zeros(3, 75 + 2 + 4, 100 + 1 + 3)
    drawn = [T.RandomCrop.get_params(padded, (40, 50)) for _ in range(distributions.COUNT)]
    found = distributions.columns(distributions.drawn(op, 100, 75), ("top", "left"))
    for number, name in enumerate(("top", "left")):
        distributions.check(found[name], np.array([row[number] for row in drawn], float), name)


@pytest.mark.parametrize("version", [T, v2])
@pytest.mark.parametrize("name", ["RandomHorizontalFlip", "RandomVerticalFlip"])
def test_flips_keep_their_probability(version: Any, name: str) -> None:
    (op,) = native_ops(getattr(version, name)(p=0.3)).ops
    flips = distributions.columns(distributions.drawn(op), ("flip",))["flip"]
    assert abs(flips.mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / distributions.COUNT)


@pytest.mark.parametrize("version", [T, v2])
def test_color_jitter_draws_as_torchvision(version: Any) -> None:
    transform = version.ColorJitter(0.4, (0.5, 0.8), 1.2)
    (op,) = native_ops(transform).ops
    rows = distributions.drawn(op)
    torch.manual_seed(0)
    drawn = [
        T.ColorJitter.get_params(transform.brightness, transform.contrast, transform.saturation, None) for _ in rows
    ]
    for number, name in enumerate(("brightness", "contrast", "saturation")):
        found = np.array([row[name] for row in rows])
        distributions.check(found, np.array([row[number + 1] for row in drawn]), name)
        place = np.array([float(list(row).index(name)) for row in rows])
        places = [[factor for factor in row[0].tolist() if factor != 3].index(number) for row in drawn]
        distributions.check(place, np.array(places, float), f"place of {name}")


def test_color_jitter_of_several_factors_is_near_torchvision_on_pil() -> None:
    # Feedline rounds as torchvision does on tensors. On PIL pictures each factor rounds by up to 1/255, and later
    # factors enlarge that.
    pixels = pictures(count=24)
    (op,) = native_ops(T.ColorJitter(0.4, 0.4, 0.4)).ops
    loader = fl.Loader(fl.array(pixels), [op], batch_size=24)
    found = next(iter(loader))["image"]
    for index, picture in enumerate(pixels):
        expected: Any = Image.fromarray(picture)
        for name, value in loader.plan.resolve(0, index=index, width=100, height=75):
            expected = getattr(v2.functional, f"adjust_{name}")(expected, value)
        assert np.abs(found[index].astype(int) - np.asarray(expected).astype(int)).max() <= 5


@pytest.mark.parametrize("value", [0, 0.5, (0.1, 0.2, 0.3), "random"])
@pytest.mark.parametrize("version", [T, v2])
def test_random_erasing_draws_as_torchvision(version: Any, value: Any) -> None:
    transform = version.RandomErasing(p=1.0, scale=(0.1, 0.2), ratio=(0.5, 2.0), value=value)
    *_, op = native_ops(version.Compose([version.ToTensor(), transform])).ops
    assert op.value == value
    torch.manual_seed(0)
    picture = torch.zeros(3, 75, 100)
    drawn = [T.RandomErasing.get_params(picture, (0.1, 0.2), (0.5, 2.0), [0.0]) for _ in range(distributions.COUNT)]
    found = distributions.columns(distributions.drawn(op, 100, 75), BOX)
    for number, name in enumerate(BOX):
        distributions.check(found[name], np.array([row[number] for row in drawn], float), name)


class ResizeSubclass(T.Resize):
    pass


def hooked() -> Any:
    resize = T.Resize(8)
    resize.register_forward_hook(lambda module, inputs, output: output)
    return resize


def patched() -> Any:
    resize = T.Resize(8)
    resize.forward = lambda picture: picture
    return resize


def with_odd_size() -> Any:
    crop = T.CenterCrop(8)
    crop.size = (8.5, 8)
    return crop


def after_to_tensor(*transforms: Any) -> Any:
    return T.Compose([T.ToTensor(), *transforms])


def after_to_image(*transforms: Any) -> Any:
    return v2.Compose([v2.ToImage(), *transforms])


NORMALIZED = [T.ToTensor(), T.Normalize(MEAN, STD)]
REASONS = [
    (T.Lambda(lambda picture: picture), "not a transform of torchvision itself|no such op"),
    (lambda picture: picture, "not a transform of torchvision itself"),
    (ResizeSubclass(8), "not a transform of torchvision itself"),
    (hooked(), "its own _forward_hooks"),
    (patched(), "its own forward"),
    (T.GaussianBlur(3), "no such op"),
    (with_odd_size(), "8.5 is not a whole number"),
    (T.RandomResizedCrop(8, scale=(0.1, 0.5, 1.0)), "parameters are unusual"),
    (T.RandomApply([T.Grayscale(3)]), "no such op"),
    (T.Resize(8, interpolation=InterpolationMode.BICUBIC), "bicubic on PIL"),
    (T.Resize(8, interpolation=InterpolationMode.LANCZOS), "'lanczos' is not available for PIL pictures"),
    (T.Resize((8, 8), max_size=9), "max_size needs a single number"),
    (T.Compose([T.PILToTensor(), T.Resize(8, interpolation=InterpolationMode.BICUBIC)]), "bicubic of v1"),
    (v2.Resize(None, max_size=9), "longer side"),
    (after_to_image(v2.Resize(8, antialias=False)), "antialias is off"),
    (after_to_image(v2.Resize(8, interpolation="nearest")), "'nearest' is not available for uint8 tensors"),
    (after_to_tensor(T.Resize(8)), "after the conversion to floats"),
    (after_to_tensor(T.RandomResizedCrop(8)), "after the conversion to floats"),
    (after_to_tensor(T.ColorJitter(0.4)), "after the conversion to floats"),
    (after_to_tensor(T.Grayscale()), "after the conversion to floats"),
    (after_to_tensor(T.ToTensor()), "takes a PIL picture"),
    (after_to_tensor(T.RandomCrop(8, padding=1, fill=1)), "fill is a value of a float tensor"),
    (T.Compose([*NORMALIZED, T.CenterCrop(8)]), "zeros after Normalize"),
    (T.Compose([*NORMALIZED, T.RandomCrop(8, padding=1)]), "zeros after Normalize"),
    (after_to_tensor(T.RandomErasing(), T.RandomHorizontalFlip()), "after RandomErasing"),
    (T.RandomCrop(8, padding=1, fill=(1, 2, 3)), "differs between channels"),
    (T.RandomCrop(8, padding=1, fill=300), "from 0 to 255"),
    (v2.RandomCrop(8, padding=1, fill={"others": 3}), "depends on the type"),
    (T.RandomCrop(8, padding=-1), "padding"),
    (T.RandomCrop(8, padding=1, pad_if_needed=True, padding_mode="reflect"), "mirror the picture twice"),
    (T.RandomHorizontalFlip(p=1.5), "a probability lies between 0 and 1"),
    (T.ColorJitter(hue=0.1), "hue on PIL"),
    (T.Compose([T.Grayscale(), T.ColorJitter(0.1)]), "picture is grey"),
    (T.Compose([T.Grayscale(), T.Grayscale(3)]), "grey already"),
    (v2.Compose([v2.Grayscale(), v2.RGB()]), "no op that makes it RGB"),
    (T.Normalize(MEAN, STD), "takes a float tensor"),
    (after_to_tensor(T.Normalize(MEAN, (0, 1, 1))), "std is"),
    (after_to_tensor(T.Normalize((0.5, 0.5), (0.5, 0.5))), "values for 2 channels"),
    (T.ConvertImageDtype(torch.float32), "takes a tensor"),
    (after_to_image(v2.ToDtype(torch.float32)), "does not scale"),
    (after_to_image(v2.ToDtype(torch.float16, scale=True)), "torch.float16"),
    (after_to_image(v2.ToDtype({"others": torch.float32})), "each type of tensor"),
    (after_to_tensor(T.ConvertImageDtype(torch.uint8)), "converts float32 to torch.uint8"),
    (T.RandomErasing(), "takes a tensor"),
    (after_to_tensor(T.RandomErasing(value=(1, 2))), "2 numbers"),
    (after_to_image(v2.RandomErasing(value="random")), "noise of a uint8"),
    (after_to_image(v2.RandomErasing(value=0.5)), "whole number from 0 to 255"),
]  # fmt: skip


@pytest.mark.parametrize(("transform", "reason"), REASONS, ids=[reason for _, reason in REASONS])
def test_a_transform_without_an_equal_op_is_a_function_and_the_report_says_why(transform: Any, reason: str) -> None:
    native = native_ops(transform)
    assert not native.is_native
    (row,) = [row for row in native.report if row.reason]
    assert row.op == "Python function"
    with pytest.raises(ValueError, match=reason):
        raise ValueError(row.reason)
    assert any(isinstance(op, ops.Map) for op in native.ops)


def test_another_default_dtype_is_not_native() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert not native_ops(T.ToTensor()).is_native
    finally:
        torch.set_default_dtype(torch.float32)


def invert(picture: Image.Image) -> Image.Image:
    return Image.fromarray(255 - np.asarray(picture))


@pytest.mark.parametrize(
    "transform",
    [
        T.Compose([T.Resize(48), T.Pad(3), T.CenterCrop(40), T.ToTensor()]),
        T.Compose([T.Grayscale(), T.Pad(3), T.ToTensor()]),
        T.Compose([T.Resize(48), T.Lambda(invert), T.CenterCrop(40), T.ToTensor()]),
        T.Compose([T.Lambda(invert), T.PILToTensor()]),
        T.Compose([T.ToTensor(), T.Lambda(lambda tensor: tensor * 2), T.Normalize(MEAN, STD)]),
        v2.Compose([v2.ToImage(), v2.Pad(3), v2.CenterCrop(40), TO_FLOAT]),
        v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32)]),
        T.Compose([T.Resize((20, 30), interpolation=InterpolationMode.BICUBIC), T.ToTensor()]),
    ],
)
def test_transforms_that_run_as_functions_give_the_result_of_torchvision(transform: Any) -> None:
    assert not native_ops(transform).is_native
    found, expected = by_feedline(transform, pictures()), by_torchvision(transform, pictures())
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    scale = 255 if expected.max() > 10 else 1
    assert (found - expected).abs().max() <= scale / 255 / min(STD) + 1e-6


def test_functions_can_be_pickled_if_the_transforms_can() -> None:
    native = native_ops(T.Compose([T.GaussianBlur(3, sigma=1.0), T.Lambda(invert), T.ToTensor()]))
    again = pickle.loads(pickle.dumps(native.ops))
    pixels = pictures()
    batches = [next(iter(fl.Loader(fl.array(pixels), chain, batch_size=4)))["image"] for chain in (native.ops, again)]
    assert np.array_equal(*batches)


def test_the_report_prints_as_a_table() -> None:
    native = native_ops(T.Compose([T.Resize(48), T.GaussianBlur(3), T.PILToTensor()]))
    lines = repr(native).splitlines()
    assert lines[0].split() == ["transform", "op", "why", "not", "native"]
    columns = {
        line.index(word) for line, word in zip(lines[2:], ("Resize(size=48)", "Python", "ToTensor(d"), strict=True)
    }
    assert len(columns) == 1
    assert lines[3].endswith("Feedline has no such op")
    assert "ToTensor(dtype='uint8')" in lines[4]
