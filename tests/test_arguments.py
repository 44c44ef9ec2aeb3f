"""A wrong value raises when the loader is made. The error names the argument and the allowed values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feedline as fl
from feedline import ops

SOURCE = fl.array(np.zeros((6, 8, 8, 3), np.uint8), labels=[0, 1, 2, 0, 1, 2])

PLAN = 'batch_size = 2\n[source]\nkind = "synthetic"\nn = 4\nshape = [2]\n'


def check(words: str, chain: Any = (), source: Any = SOURCE, **options: Any) -> None:
    with pytest.raises(fl.PlanError, match=words):
        fl.Loader(source, chain, **({"batch_size": 2} | options))


@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("batch_size", 0, "batch_size is 0; it has to be at least 1"),
        ("batch_size", -3, "batch_size is -3"),
        ("batch_size", 2.5, "batch_size is 2.5"),
        ("batch_size", "3", "batch_size is '3'"),
        ("batch_size", True, "batch_size is True"),
        ("batch_size", None, "batch_size is None"),
        ("shuffle", "no", "shuffle is 'no'.*True, False or fl.reservoir"),
        ("shuffle", 3, "shuffle is 3.*True, False or fl.reservoir"),
        ("drop_last", "no", "drop_last is 'no'; it must be a boolean"),
        ("seed", -1, "seed is -1; it must be a whole number from 0"),
        ("seed", 1.5, "seed is 1.5"),
        ("seed", "7", "seed is '7'"),
        ("seed", 2**64, "seed is 18446744073709551616"),
        ("num_workers", 0, "num_workers is 0; .*auto"),
        ("num_workers", -1, "num_workers is -1"),
        ("num_workers", "many", "num_workers is 'many'; .*auto"),
        ("num_workers", 1.0, "num_workers is 1.0"),
        ("num_workers", 10**6, "num_workers is 1000000; .*at most 4096"),
        ("order", "planned", r"order is 'planned'; it must be \"strict\", fl.planned\(...\) or fl.arrival"),
        ("order", None, "order is None"),
        ("order", fl.planned(max_displacement=-1), "max_displacement is -1; it must be a whole number from 0"),
        ("tuning", {"prefetch_batches": 1}, r"tuning is .*create it with fl.tuning"),
        ("tuning", fl.tuning(prefetch_batches=0), "prefetch_batches is 0"),
        ("tuning", fl.tuning(prefetch_batches=1.5), "prefetch_batches is 1.5; it must be a whole number"),  # type: ignore[arg-type]
        ("tuning", fl.tuning(seek_index="often"), "seek_index is 'often'; it must be .*auto.*never"),  # type: ignore[arg-type]
        ("tuning", fl.tuning(start="late"), "start is 'late'; it must be .*first-come"),  # type: ignore[arg-type]
        ("tuning", fl.tuning(offload="some"), "offload is 'some'; it must be one of .*sophon"),  # type: ignore[arg-type]
        ("memory_budget", 0, "memory_budget is 0; .*512MB"),
        ("memory_budget", -5, "memory_budget"),
        ("memory_budget", 1.5, "memory_budget"),
        ("memory_budget", "lots", "memory_budget|512MB"),
        ("memory_budget", "12 parsecs", "512MB"),
        ("on_error", "skip", r"on_error is 'skip'; it must be \"raise\" or fl.substitute"),
        ("on_error", None, "on_error is None"),
        ("framework", "jax", "framework is 'jax'; it must be one of 'numpy', 'torch'"),
        ("framework", None, "framework is None"),
        ("fields", "data", "fields is 'data'; it must be a sequence"),
        ("fields", ("nope",), 'fields names field "nope", but batches have "image", "label", "index", "key"'),
        ("fields", (1,), "fields is"),
        ("fields", 5, "fields is 5"),
        ("ragged", "data", "ragged is 'data'; it must be a sequence"),
        ("ragged", ("nope",), 'ragged names field "nope"'),
        ("sampler", [], "sampler is empty"),
        ("sampler", [0, 6], "sampler names sample 6, which the source of 6 samples does not have"),
        ("sampler", [-1], "sampler"),
        ("sampler", [0.5], "sampler"),
        ("sampler", 5, "sampler"),
        ("sampler", "012", "sampler"),
        ("sampler", fl.weighted([1.0, 2.0]), "2 weights, but the source has 6 samples"),
        ("sampler", fl.weighted([1, 2, 3, 4, 5, float("nan")]), "weight 5 of the sampler is NaN"),
        ("sampler", fl.weighted([1, 2, 3, 4, 5, -1.0]), "weight 5"),
        ("sampler", fl.weighted([0.0] * 6), "not all zero"),
        ("sampler", fl.weighted([1.0] * 6, num_samples=0), "num_samples|empty"),
        ("sampler", fl.weighted([1.0] * 6, num_samples=-1), "num_samples"),
        ("sampler", fl.class_balanced(num_samples=0), "num_samples|empty"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_allowed(argument: str, value: Any, words: str) -> None:
    check(words, **{argument: value})


@pytest.mark.parametrize(
    ("rank", "world_size", "words"),
    [
        (0, None, "give both rank and world_size, or neither"),
        (None, 2, "give both rank and world_size, or neither"),
        (2, 2, "rank is 2 of world_size 2; it has to lie below"),
        (-1, 2, "rank is -1"),
        (0, 0, "world_size is 0"),
        (0.0, 2, "rank is 0.0"),
        (0, 2**40, "world_size"),
    ],
)
def test_wrong_ranks_are_refused(rank: Any, world_size: Any, words: str) -> None:
    check(words, rank=rank, world_size=world_size)


def test_a_wrong_rank_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "2")
    check("rank is 5 of world_size 2")


@pytest.mark.parametrize("sampler", [[0, 1], fl.weighted([1.0] * 6), fl.class_balanced()])
def test_a_sampler_beside_shuffle_is_refused(sampler: Any) -> None:
    check("shuffle is true beside a sampler; the sampler decides the order", shuffle=True, sampler=sampler)


def test_class_balanced_without_classes_is_refused() -> None:
    check("class_balanced needs a source with classes", source=fl.synthetic(4, (2,)), sampler=fl.class_balanced())


@pytest.mark.parametrize(
    ("source", "chain", "words"),
    [
        ("data/train", [], "source is str; create it with fl.folder"),
        (None, [], "source is NoneType"),
        (np.zeros((3, 3)), [], "source is ndarray"),
        (SOURCE, [print], r"ops has .*print.*ops\.Map\(fn\)"),
        (SOURCE, [ops.DecodeImage], "ops has .*DecodeImage"),
        (SOURCE, ["Resize"], "ops has 'Resize'"),
        (SOURCE, ops.Grayscale(), "ops is .*Grayscale"),
        (SOURCE, None, "ops is None"),
    ],
)
def test_sources_and_ops_of_other_kinds_are_refused(source: Any, chain: Any, words: str) -> None:
    check(words, chain, source)


def test_arguments_after_ops_are_keyword_only() -> None:
    with pytest.raises(TypeError, match="positional"):
        fl.Loader(SOURCE, [], 4)  # type: ignore[misc]
    with pytest.raises(TypeError, match="batch_siz"):
        fl.Loader(SOURCE, [], batch_siz=4)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (ops.Resize(0), "Resize: size is 0x0; sides are from 1"),
        (ops.Resize(-1), "Resize"),
        (ops.Resize("big"), "Resize"),
        (ops.Resize((1, 2, 3)), "Resize"),  # type: ignore[arg-type]
        (ops.Resize(10**9), "Resize: size is"),
        (ops.Resize(8, interpolation="lanczos"), "Resize.*(bilinear|lanczos)"),  # type: ignore[arg-type]
        (ops.Resize(8, max_size=8), "Resize: max_size is 8, but has to exceed size"),
        (ops.Resize((8, 9), max_size=20), "Resize: max_size"),
        (ops.CenterCrop(0), "CenterCrop: size"),
        (ops.RandomCrop(0), "RandomCrop: size"),
        (ops.RandomCrop(4, padding=(1, 2, 3)), "RandomCrop"),
        (ops.RandomCrop(4, padding=-1), "RandomCrop"),
        (ops.RandomCrop(4, padding=10**9), "RandomCrop: padding"),
        (ops.RandomCrop(4, padding_mode="wrap"), "RandomCrop.*(wrap|reflect)"),  # type: ignore[arg-type]
        (ops.RandomCrop(4, fill=300), "RandomCrop"),
        (ops.RandomResizedCrop(4, scale=(1.0, 0.5)), "RandomResizedCrop: scale is .*low <= high"),
        (ops.RandomResizedCrop(4, ratio=(0.0, 1.0)), "RandomResizedCrop: ratio"),
        (ops.RandomResizedCrop(4, scale=(0.5,)), "RandomResizedCrop"),  # type: ignore[arg-type]
        (
            ops.RandomHorizontalFlip(1.5),
            "RandomHorizontalFlip: p is 1.5; a probability lies between 0 and 1",
        ),
        (ops.RandomVerticalFlip(-0.5), "RandomVerticalFlip: p is -0.5"),
        (ops.RandomVerticalFlip("often"), "RandomVerticalFlip"),  # type: ignore[arg-type]
        (ops.ColorJitter(brightness=-1), "ColorJitter: brightness"),
        (ops.ColorJitter(contrast=(1.5, 0.5)), "ColorJitter: contrast"),
        (ops.ColorJitter(hue=0.6), "ColorJitter: hue .*0.5"),
        (ops.ColorJitter(saturation=float("nan")), "ColorJitter: saturation"),
        (ops.Grayscale(2), "Grayscale"),
        (ops.RandomErasing(p=2), "RandomErasing: p is 2"),
        (ops.RandomErasing(value="red"), "RandomErasing: value is .*random"),  # type: ignore[arg-type]
        (ops.RandomErasing(value=(1, 2)), "RandomErasing: value has 2 numbers"),
        (ops.RandomErasing(scale=(0, 1)), "RandomErasing: scale"),
        (ops.ToTensor(dtype="int32"), "ToTensor: dtype is int32; it must be one of uint8"),  # type: ignore[arg-type]
        (ops.ToTensor(dtype="float"), "ToTensor"),  # type: ignore[arg-type]
        (ops.ToTensor(layout="WHC"), "ToTensor.*(CHW|WHC)"),  # type: ignore[arg-type]
        (ops.Normalize(mean=(0.5,), std=(0.5, 0.5)), "Normalize: mean has 1 values and std 2"),
        (ops.Normalize(mean=(), std=()), "Normalize: mean has 0"),
        (ops.Normalize(std=(1, 1, 0)), "Normalize: std .*above 0"),
        (ops.Normalize(mean=(0.5, 0.5), std=(1, 1)), "Normalize: mean and std have 2 channels"),
        (ops.Normalize(dtype="uint8"), "Normalize: dtype is uint8; it must be one of float16"),  # type: ignore[arg-type]
        (ops.Grayscale(on="nope"), 'Grayscale works on field "nope", but samples have "image", "label"'),
        (ops.Grayscale(on="other"), r'Grayscale works on field "other".*on=\.\.\.'),
        (ops.Grayscale(on=()), r"Grayscale works on no field: on=\(\) is empty"),
        (ops.Grayscale(on=("image", "image")), "Grayscale"),
        (ops.Resize(4, on="label"), 'Resize needs pixels, but field "label" is'),
        (ops.DecodeImage(), 'DecodeImage needs encoded bytes, but field "image" is pixels'),
        (ops.DecodeImage(mode="cmyk"), "DecodeImage"),  # type: ignore[arg-type]
        (ops.DecodeImage(max_pixels=-1), "DecodeImage"),
    ],
)
def test_wrong_parameters_of_ops_are_refused_by_the_name_of_the_op(op: ops.Op, words: str) -> None:
    check(words, [op])


def test_memory_budgets_are_numbers_or_texts_with_units() -> None:
    sizes = {"512MB": 512_000_000, "1 GiB": 2**30, "1.5kb": 1500, 4096: 4096, np.int64(77): 77}
    for value, expected in sizes.items():
        loader = fl.Loader(SOURCE, batch_size=2, memory_budget=value)
        assert loader.snapshot()["memory"]["budget_bytes"] == expected


def test_numpy_numbers_are_whole_numbers_too() -> None:
    loader = fl.Loader(SOURCE, batch_size=np.int64(4), seed=np.uint8(3), rank=np.int32(0), world_size=np.int16(1))
    assert len(loader) == 2


@pytest.mark.parametrize("epoch", [-1, 0.5, "1", None])
def test_a_wrong_epoch_is_refused(epoch: Any) -> None:
    with pytest.raises(fl.PlanError, match="epoch is"):
        fl.Loader(SOURCE, batch_size=2).set_epoch(epoch)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "source"),
        ("not toml [", "not valid TOML"),
        ("feedline = 99\n" + PLAN, "format 99, but this version reads format 1"),
        (PLAN.replace("synthetic", "nowhere"), 'source "nowhere" is unknown; there are .*"?synthetic'),
        (PLAN.replace("batch_size = 2", ""), "batch_size"),
        (PLAN.replace("batch_size = 2", "batch_size = 0"), "batch_size is 0"),
        (PLAN + "extra = 1", "extra"),
        ("surprise = 1\n" + PLAN, "surprise"),
        (PLAN + '[[ops]]\nop = "Blur"', 'op "Blur" is unknown; there are .*DecodeImage'),
        (PLAN + "[[ops]]\nsize = 4", "op"),
        (PLAN + '[[ops]]\nop = "Resize"\non = "data"\nsize = 4\nspeed = 9', "Resize.*speed"),
        (PLAN + '[run]\nnum_workers = "few"', "num_workers|auto"),
    ],
)
def test_plans_that_cannot_be_read_are_refused_with_a_reason(text: str, words: str) -> None:
    with pytest.raises(fl.PlanError, match=f"(?s){words}"):
        fl.Plan.from_toml(text)


@pytest.mark.parametrize("fraction", [2.0, -0.1, float("nan"), "all"])
def test_an_invalid_fraction_is_refused(fraction: Any) -> None:
    check("max_fraction", on_error=fl.substitute(fraction))


@pytest.mark.parametrize(
    "arguments",
    [
        {"sampler": [0.5] * 100_000},
        {"ragged": ["x"] * 100_000},
        {"fields": ["no_such_field" * 10_000]},
        {"ops": "x" * 1_000_000},
        {"batch_size": "9" * 1_000_000},
        {"cache": {"ram": "1" * 1_000_000}},
        {"shuffle": ["full"] * 100_000},
        {"share": b"x" * 1_000_000},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_no_message_is_longer_than_a_screen(arguments: dict[str, Any]) -> None:
    with pytest.raises(fl.FeedlineError) as caught:
        fl.Loader(SOURCE, **{"batch_size": 1, **arguments})
    assert 20 < len(str(caught.value)) <= 2500
    assert next(iter(arguments)) in str(caught.value)


def test_messages_of_the_engine_fit_on_a_screen_too() -> None:
    with pytest.raises(fl.PlanError) as caught:
        fl.Plan.from_toml(f'batch_size = 1\n{"x" * 200_000} = 1\n[source]\nkind = "synthetic"\nn = 1\nshape = [1]\n')
    assert 20 < len(str(caught.value)) <= 2500
    assert "characters left out" in str(caught.value)
