"""Drawn parameters have torchvision's distributions: mean, spread and shape over thousands of samples agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision import transforms as T

import feedline as fl
from feedline import ops

COUNT = 4000
WIDTH, HEIGHT = 500, 375


def drawn(
    op: ops.Op, width: int = WIDTH, height: int = HEIGHT, epoch: int = 0, seed: int = 0
) -> list[dict[str, float]]:
    """The resolved parameters of the op for each of ``COUNT`` samples."""
    source = fl.array(np.zeros((COUNT, 2, 2, 3), np.uint8))
    plan = fl.Loader(source, [op], batch_size=1, seed=seed).plan
    return [dict(plan.resolve(0, index=n, width=width, height=height, epoch=epoch)) for n in range(COUNT)]


def check(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Compare mean, spread and distribution. At five standard errors, a correct engine fails once in a million."""
    error = np.sqrt(found.var() / len(found) + expected.var() / len(expected)) + 1e-12
    assert abs(found.mean() - expected.mean()) < 5 * error, f"mean of {what}: {found.mean()} and {expected.mean()}"

    def spread(values: np.ndarray) -> tuple[float, float]:
        squares = (values - values.mean()) ** 2
        return squares.mean(), squares.var() / len(values)

    (one, one_error), (other, other_error) = spread(found), spread(expected)
    assert abs(one - other) < 5 * np.sqrt(one_error + other_error) + 1e-12, f"spread of {what}: {one} and {other}"
    # The Kolmogorov-Smirnov distance between the two samples.
    places = np.sort(np.concatenate([found, expected]))
    below = [np.searchsorted(np.sort(values), places, side="right") / len(values) for values in (found, expected)]
    distance = np.abs(below[0] - below[1]).max()
    assert distance < 2.7 * np.sqrt(1 / len(found) + 1 / len(expected)), f"distribution of {what}: {distance}"


def columns(rows: list[dict[str, float]], names: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows]) for name in names}


BOX = ("top", "left", "height", "width")


@pytest.mark.parametrize(
    ("width", "height", "scale"), [(WIDTH, HEIGHT, (0.08, 1.0)), (60, 400, (0.08, 1.0)), (64, 64, (0.5, 0.9))]
)
def test_random_resized_crop_draws_as_torchvision(width: int, height: int, scale: tuple[float, float]) -> None:
    torch.manual_seed(0)
    picture = torch.zeros(3, height, width)
    expected = np.array([T.RandomResizedCrop.get_params(picture, scale, (3 / 4, 4 / 3)) for _ in range(COUNT)], float)
    found = columns(drawn(ops.RandomResizedCrop(8, scale=scale), width, height), BOX)
    for number, name in enumerate(BOX):
        check(found[name], expected[:, number], name)
    check(found["height"] * found["width"], expected[:, 2] * expected[:, 3], "area")
    check(np.log(found["width"] / found["height"]), np.log(expected[:, 3] / expected[:, 2]), "aspect")


def test_random_crop_draws_as_torchvision() -> None:
    torch.manual_seed(0)
    picture = torch.zeros(3, HEIGHT, WIDTH)
    expected = np.array([T.RandomCrop.get_params(picture, (100, 200)) for _ in range(COUNT)], float)
    found = columns(drawn(ops.RandomCrop((100, 200))), ("top", "left"))
    check(found["top"], expected[:, 0], "top")
    check(found["left"], expected[:, 1], "left")


def test_random_crop_reaches_the_first_and_the_last_place() -> None:
    found = columns(drawn(ops.RandomCrop(10), width=13, height=12), ("top", "left"))
    assert set(found["top"]) == {0, 1, 2}
    assert set(found["left"]) == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", [ops.RandomHorizontalFlip, ops.RandomVerticalFlip])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_flips_happen_with_probability_p(kind: type, p: float) -> None:
    flips = columns(drawn(kind(p=p)), ("flip",))["flip"]
    assert abs(flips.mean() - p) <= 5 * np.sqrt(p * (1 - p) / COUNT)


def test_color_jitter_draws_as_torchvision() -> None:
    torch.manual_seed(0)
    spans = {"brightness": (0.6, 1.4), "contrast": (0.5, 1.5), "saturation": (0.2, 1.8), "hue": (-0.1, 0.3)}
    expected = [T.ColorJitter.get_params(*spans.values()) for _ in range(COUNT)]
    rows = drawn(ops.ColorJitter(**spans))
    for number, name in enumerate(spans):
        found = np.array([row[name] for row in rows])
        check(found, np.array([float(row[number + 1]) for row in expected]), name)
        place = np.array([float(list(row).index(name)) for row in rows])
        check(place, np.array([float(row[0].tolist().index(number)) for row in expected]), f"place of {name}")
    assert len({tuple(row) for row in rows}) == 24, "all orders come up"


def test_color_jitter_strengths_mean_what_torchvision_means() -> None:
    reference = T.ColorJitter(0.4, 1.5, 0.2, 0.25)
    rows = drawn(ops.ColorJitter(0.4, 1.5, 0.2, 0.25))
    for name in ("brightness", "contrast", "saturation", "hue"):
        low, high = getattr(reference, name)
        found = np.array([row[name] for row in rows])
        check(found, np.random.default_rng(1).uniform(low, high, COUNT), name)
        assert low - 1e-6 <= found.min() <= found.max() <= high + 1e-6


def test_random_erasing_draws_as_torchvision() -> None:
    torch.manual_seed(0)
    picture = torch.zeros(3, HEIGHT, WIDTH)
    tried = [T.RandomErasing.get_params(picture, (0.02, 0.33), (0.3, 3.3), [0.0]) for _ in range(COUNT)]
    expected = np.array([row[:4] for row in tried], float)
    rows = drawn(ops.RandomErasing(p=1.0))
    found = columns([row for row in rows if row], BOX)
    assert len(found["top"]) > 0.999 * COUNT
    for number, name in enumerate(BOX):
        check(found[name], expected[expected[:, 3] < WIDTH][:, number], name)


def test_random_erasing_happens_with_probability_p() -> None:
    happened = np.array([bool(row) for row in drawn(ops.RandomErasing(p=0.3))])
    assert abs(happened.mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / COUNT)


def test_draws_differ_between_epochs_seeds_and_ops_and_are_not_correlated() -> None:
    flip = ops.RandomHorizontalFlip()
    first = columns(drawn(flip), ("flip",))["flip"]
    for other in (drawn(flip, epoch=1), drawn(flip, seed=1)):
        correlation = np.corrcoef(first, columns(other, ("flip",))["flip"])[0, 1]
        assert abs(correlation) < 5 / np.sqrt(COUNT)
    source = fl.array(np.zeros((COUNT, 2, 2, 3), np.uint8))
    plan = fl.Loader(source, [flip, ops.RandomHorizontalFlip()], batch_size=1).plan
    second = [dict(plan.resolve(1, index=n, width=2, height=2))["flip"] for n in range(COUNT)]
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(COUNT)
    neighbours = np.corrcoef(first[:-1], first[1:])[0, 1]
    assert abs(neighbours) < 5 / np.sqrt(COUNT)
