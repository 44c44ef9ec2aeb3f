"""``ops.Map``: a Python function in the chain, on the engine's threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mapped
import numpy as np
import pytest
import torch
from making import DTYPES, natural

import feedline as fl
from feedline import ops

PICTURES = np.stack([natural(10, 14, seed) for seed in range(8)])


def run(fn: Any, on: Any = "image", chain: tuple[ops.Op, ...] = (), **options: Any) -> dict[str, Any]:
    """All samples of a small array after ``fn``, as one batch."""
    source = fl.array(PICTURES, labels=np.arange(8))
    (batch,) = list(fl.Loader(source, [ops.Map(fn, on=on), *chain], **({"batch_size": 8} | options)))
    return batch


def check_raises(fn: Any, words: str, on: Any = "image", cause: type[BaseException] = ValueError) -> fl.SampleError:
    with pytest.raises(fl.SampleError, match=words) as caught:
        run(fn, on)
    assert caught.value.op == "Map"
    assert isinstance(caught.value.__cause__, cause)
    return caught.value


def test_a_lambda_gets_the_picture_as_an_array_of_its_own() -> None:
    seen = []

    def look(image: np.ndarray) -> np.ndarray:
        seen.append((type(image), image.shape, image.dtype, image.flags.writeable))
        image += 1
        return image

    assert np.array_equal(run(look)["image"], PICTURES + 1)
    assert set(seen) == {(np.ndarray, (10, 14, 3), np.dtype("uint8"), True)}
    assert np.array_equal(run(lambda image: 255 - image)["image"], 255 - PICTURES), "the source was not changed"


@pytest.mark.parametrize("fn", [mapped.invert, "mapped:invert", partial(np.subtract, 255)])
def test_functions_names_and_callables_are_taken(fn: Any) -> None:
    assert np.array_equal(run(fn)["image"], 255 - PICTURES)


def test_a_picture_from_a_function_goes_on_as_a_picture() -> None:
    batch = run(mapped.invert, chain=(ops.Resize((5, 7)), ops.Normalize()))
    assert batch["image"].shape == (8, 3, 5, 7)


@pytest.mark.parametrize("on", ["label", ("label",)])
def test_any_field_can_be_mapped(on: Any) -> None:
    batch = run(lambda label: label * 10, on)
    assert batch["label"].tolist() == [0, 10, 20, 30, 40, 50, 60, 70]
    assert batch["label"].dtype == np.int64


@pytest.mark.parametrize("kind", [tuple, list])
def test_several_fields_go_in_and_come_out_together(kind: type) -> None:
    batch = run(lambda image, label: kind((image + label.astype(np.uint8), label + image[0, 0, 0])), ("image", "label"))
    for number in range(8):
        assert np.array_equal(batch["image"][number], PICTURES[number] + np.uint8(number))
        assert batch["label"][number] == number + PICTURES[number, 0, 0, 0]


def test_encoded_bytes_can_be_decoded_by_a_function(pictures: Callable[..., Path]) -> None:
    source = fl.folder(pictures(6))
    chain = [ops.Map("mapped:decode"), ops.RandomCrop(8), ops.Normalize()]
    (found,) = list(fl.Loader(source, chain, batch_size=6))
    (expected,) = list(fl.Loader(source, [ops.DecodeImage(), *chain[1:]], batch_size=6))
    assert np.array_equal(found["image"], expected["image"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (2, 2, 2, 2), (4, 4, 3)])
def test_results_keep_their_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    found = run(lambda image: np.full(shape, image[0, 0, 0] % 2, dtype))["image"]
    assert found.dtype == np.dtype(dtype)
    assert found.shape == (8, *shape)
    assert [float(value.reshape(-1)[0]) for value in found] == [float(image[0, 0, 0] % 2) for image in PICTURES]


@pytest.mark.parametrize(
    "result",
    [
        lambda image: image[::-1, ::2],
        lambda image: np.asfortranarray(image.astype(np.float32)),
        lambda image: image.astype(">i4"),
        lambda image: torch.from_numpy(image).permute(2, 0, 1).float(),
        lambda image: torch.from_numpy(image.copy()),
        lambda image: [[1, 2], [3, 4]],
        lambda image: 7,
        lambda image: 0.5,
        lambda image: True,
        lambda image: np.float32(0.25),
    ],
    ids=["strided", "fortran", "big-endian", "permuted tensor", "tensor", "lists", "int", "float", "bool", "scalar"],
)
def test_results_may_be_anything_that_numpy_takes_as_numbers(result: Callable[[np.ndarray], Any]) -> None:
    found = run(result)["image"]
    expected = np.stack([np.asarray(result(image)) for image in PICTURES])
    assert found.dtype == expected.dtype.newbyteorder("=")
    assert np.array_equal(found, expected)


def test_a_text_is_delivered_as_a_list() -> None:
    assert run(lambda image: f"sum {image.sum()}")["image"] == [f"sum {image.sum()}" for image in PICTURES]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_results_and_their_order_do_not_depend_on_the_number_of_workers(workers: int) -> None:
    source = fl.synthetic(200, (6, 6, 3))
    chain = [ops.Map(lambda image: image.astype(np.int32) ** 2, on="data")]
    loader = fl.Loader(source, chain, batch_size=7, shuffle=True, num_workers=workers)
    plain = fl.Loader(source, [], batch_size=7, shuffle=True, num_workers=1)
    for found, expected in zip(loader, plain, strict=True):
        assert np.array_equal(found["index"], expected["index"])
        assert np.array_equal(found["data"], expected["data"].astype(np.int32) ** 2)


def test_functions_run_on_the_engines_threads() -> None:
    names = set()

    def note(image: np.ndarray) -> np.ndarray:
        names.add(threading.get_native_id())
        return image

    run(note, num_workers=2)
    assert threading.get_native_id() not in names


def test_a_plan_refuses_a_lambda_and_says_what_to_give() -> None:
    def local(image: np.ndarray) -> np.ndarray:
        return image

    for fn in (lambda image: image, local, partial(np.subtract, 255), mapped.Holder.halve):
        loader = fl.Loader(fl.synthetic(4, (4, 4, 3)), [ops.Map(fn, on="data")], batch_size=2)
        with pytest.raises(fl.PlanError, match=r'op Map cannot be written into a plan: .*fn="module:function"'):
            loader.plan.to_toml()


@pytest.mark.parametrize("fn", [mapped.invert, "mapped:invert"])
def test_a_plan_names_a_function_that_can_be_imported(fn: Any) -> None:
    loader = fl.Loader(
        fl.synthetic(4, (4, 4, 3)), [ops.Map(fn, on="data", deterministic=True, version=3)], batch_size=4
    )
    text = loader.plan.to_toml()
    assert 'fn = "mapped:' in text
    with pytest.raises(fl.PlanError, match="allow_functions=True"):
        fl.Plan.from_toml(text)
    read = fl.Loader.from_plan(fl.Plan.from_toml(text, allow_functions=True))
    assert read.plan.fingerprints == loader.plan.fingerprints
    assert np.array_equal(next(iter(read))["data"], next(iter(loader))["data"])


def test_the_version_of_a_function_is_part_of_the_values_fingerprint() -> None:
    def values(version: int) -> str:
        op = ops.Map("mapped:invert", on="data", version=version)
        return fl.Loader(fl.synthetic(4, (4, 4, 3)), [op], batch_size=4).plan.fingerprints["values"]

    assert values(1) == values(1) != values(2)


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        ("mapped.invert", "module:function"),
        ("mapped:nothing", "cannot import .*nothing"),
        ("nowhere:invert", "cannot import .*nowhere"),
        (5, "ops.Map takes a function"),
        (None, "ops.Map takes a function"),
        ("mapped:__name__", "callable|function"),
    ],
)
def test_values_that_are_not_functions_are_refused_at_once(fn: Any, words: str) -> None:
    with pytest.raises(fl.PlanError, match=words):
        fl.Loader(fl.synthetic(4, (4, 4, 3)), [ops.Map(fn, on="data")], batch_size=2)


def test_a_function_that_raises_is_a_bad_sample_with_the_exception_as_cause() -> None:
    def fail(image: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if label == 5:
            raise KeyError("no such thing")
        return image, label

    error = check_raises(fail, "the function raised KeyError: 'no such thing'", ("image", "label"), cause=KeyError)
    assert error.index == 5
    assert error.__cause__.__traceback__.tb_frame.f_code.co_name == "fail", "with the traceback of the function"


@pytest.mark.parametrize("exception", [SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit])
def test_no_exception_of_a_function_looks_like_the_end_of_the_epoch(exception: type[BaseException]) -> None:
    def fail(image: np.ndarray) -> np.ndarray:
        raise exception("from a function")

    check_raises(fail, exception.__name__, cause=exception)


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda image, label: image, "2 fields|2 values|returned"),
        (lambda image, label: (image,), "returned.*1 values for 2 fields"),
        (lambda image, label: (image, label, label), "returned.*3 values for 2 fields"),
        (lambda image, label: None, "2 fields|None|returned"),
    ],
)
def test_a_wrong_number_of_results_is_a_bad_sample(fn: Any, words: str) -> None:
    with pytest.raises(fl.SampleError, match=words) as caught:
        run(fn, ("image", "label"))
    assert caught.value.op == "Map"


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda image: None, "object|None"),
        (lambda image: {"a": 1}, "object|dict"),
        (lambda image: np.array([1 + 2j]), "complex128"),
        (lambda image: np.array(["2020-01-01"], "datetime64[D]"), "datetime64"),
        (lambda image, more: image, "missing 1 required positional argument"),
        (lambda: 1, "takes 0 positional arguments"),
    ],
)
def test_results_that_are_no_arrays_are_a_bad_sample(fn: Any, words: str) -> None:
    with pytest.raises(fl.SampleError, match=words) as caught:
        run(fn)
    assert caught.value.op == "Map"
    assert isinstance(caught.value.__cause__, (TypeError, ValueError))


def test_another_shape_in_one_sample_says_which_shapes_differ() -> None:
    with pytest.raises(fl.RaggedError, match=r'"image" has shape \[10, 14, 3\].*\[9, 14, 3\].*in sample 3'):
        run(lambda image, label: (image[int(label == 3) :], label), ("image", "label"))
    batch = run(lambda image, label: (image[int(label == 3) :], label), ("image", "label"), ragged=("image",))
    assert [image.shape[0] for image in batch["image"]] == [10, 10, 10, 9, 10, 10, 10, 10]


def test_another_shape_in_another_batch_is_no_error() -> None:
    source = fl.array(PICTURES, labels=np.arange(8))
    chain = [ops.Map(lambda image, label: (image[: 5 + label // 4], label), on=("image", "label"))]
    shapes = [batch["image"].shape for batch in fl.Loader(source, chain, batch_size=4)]
    assert shapes == [(4, 5, 14, 3), (4, 6, 14, 3)]


def test_an_empty_result_is_delivered() -> None:
    assert run(lambda image: np.zeros((0, 4), np.float32))["image"].shape == (8, 0, 4)


@pytest.mark.parametrize(
    "result", [np.zeros((4, 4), np.float32), np.zeros((4, 4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8)]
)
def test_a_result_that_is_not_a_picture_before_a_picture_op_is_a_bad_sample(result: np.ndarray) -> None:
    with pytest.raises(fl.SampleError, match="pixels") as caught:
        run(lambda image: result, chain=(ops.Resize((4, 4)),))
    assert caught.value.op == "Resize"


def test_a_grey_result_before_normalising_three_channels_is_a_bad_sample_not_a_wrong_one() -> None:
    with pytest.raises(fl.SampleError, match="channel") as caught:
        run(lambda image: image[..., :1], chain=(ops.Normalize(),))
    assert caught.value.op == "Normalize"


def test_a_grey_result_before_color_jitter_is_a_bad_sample_not_a_wrong_one() -> None:
    with pytest.raises(fl.SampleError, match=r"RGB|channel"):
        run(lambda image: image[..., :1], chain=(ops.ColorJitter(0.5),))


def test_substitutes_replace_samples_whose_function_raised() -> None:
    def fail(image: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if label == 5:
            raise RuntimeError("bad one")
        return image, label

    batch = run(fail, ("image", "label"), on_error=fl.substitute(0.2))
    assert batch["index"].tolist() == batch["label"].tolist()
    assert batch["index"][5] != 5
