"""Damaged volumes and volumes that do not match: a named error, never a crash or a wrong sample."""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from volumes import case, nifti_bytes, write

import feedline as fl
from feedline import ops

SIDES = (6, 7, 8)
IMAGE, LABEL = case(0, SIDES)


def load(image: Path, label: Path, chain: list[ops.Op] | None = None) -> None:
    good = (write(image.parent / "good_x.npy", IMAGE), write(image.parent / "good_y.npy", LABEL))
    for _ in fl.Loader(fl.volumes([good, (image, label)]), chain or [], batch_size=1):
        pass


def patched(place: int, form: str, *values: float) -> bytes:
    content = bytearray(nifti_bytes(IMAGE))
    struct.pack_into(form, content, place, *values)
    return bytes(content)


DAMAGED: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "fewer than 4 bytes"),
    "not a volume": (lambda: b"hello, this is a text" * 50, "neither NIfTI"),
    "header cut short": (lambda: nifti_bytes(IMAGE)[:200], "cut short at byte 200"),
    "data cut short": (lambda: nifti_bytes(IMAGE)[:-1], r"too short.*float32 \[1, 6, 7, 8\], 1696 bytes.*1695"),
    "a pair's header": (lambda: nifti_bytes(IMAGE).replace(b"n+1\0", b"ni1\0"), "n\\+1"),
    "negative side": (lambda: patched(42, "<h", -6), "dimension 1 is -6"),
    "empty side": (lambda: patched(42, "<h", 0), r"\[1, 0, 7, 8\]"),
    "huge sides": (lambda: patched(40, "<8h", 7, 32767, 32767, 32767, 32767, 1, 1, 1), "too short|impossible shape"),
    "five real dimensions": (lambda: patched(40, "<8h", 5, 6, 7, 8, 1, 9, 1, 1), "dimensions"),
    "two dimensions": (lambda: patched(40, "<h", 2), "2 dimensions"),
    "complex numbers": (lambda: patched(70, "<h", 32), "type 32"),
    "data inside the header": (lambda: patched(108, "<f", 10), "byte 10"),
    "data nowhere": (lambda: patched(108, "<f", float("nan")), "byte NaN"),
    "NaN intercept": (lambda: patched(112, "<2f", 2.0, float("nan")), "scaled by 2 and NaN"),
    "gz cut short": (lambda: gzip.compress(nifti_bytes(IMAGE))[:-200], "cut short"),
    "gz of too little": (lambda: gzip.compress(nifti_bytes(IMAGE)[:-100]), "ends too early|cut short"),
    "gz of nothing": (lambda: gzip.compress(b""), "fewer than 4 bytes"),
    "gz checksum": (lambda: gzip.compress(nifti_bytes(IMAGE))[:-8] + b"\0" * 8, "damaged"),
    "gz noise": (lambda: b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + bytes(range(256)), "damaged"),
    "gz promises more than it can hold": (
        lambda: gzip.compress(patched(42, "<3h", 30000, 30000, 1000)), "too short",
    ),
    "npy of text": (lambda: b"\x93NUMPY\x01\x00\x10\x00" + b"{'descr': '<f4'}", "order"),
    "npy of two axes": (
        lambda: b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }".ljust(117) + b"\n" + b"\0" * 24,
        "2 axes",
    ),
    "npy of records": (
        lambda: b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': [('f4', '<f8')], 'fortran_order': False, 'shape': (6, 7, 8), }".ljust(117) + b"\n" + b"\0" * 2688,
        "one plain type",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED.keys())
@pytest.mark.parametrize("chain", [[], [ops.RandomBalancedCrop(SIDES, oversampling=1.0)]], ids=["whole", "crop"])
def test_a_damaged_volume_is_a_named_error(tmp_path: Path, damage: str, chain: list[ops.Op]) -> None:
    content, words = DAMAGED[damage]
    (tmp_path / "bad.nii").write_bytes(content())
    label = write(tmp_path / "label.nii", LABEL)
    with pytest.raises(fl.SampleError, match=r"bad\.nii") as caught:
        load(tmp_path / "bad.nii", label, chain)
    cause = str(caught.value) + str(caught.value.__cause__)
    assert re.search(words, cause), cause


def test_law_1_damage_outside_the_crop_is_no_reason_to_fail_with_a_cache_or_without(tmp_path: Path) -> None:
    content = gzip.compress(nifti_bytes(IMAGE))
    (tmp_path / "bad.nii.gz").write_bytes(content[:-8] + b"\0" * 8)
    pair = (tmp_path / "bad.nii.gz", write(tmp_path / "label.nii.gz", LABEL))
    streams = []
    for cache in (None, fl.cache(ram="1GB", form="encoded")):
        chain = [ops.RandomBalancedCrop((6, 7, 4))]
        loader = fl.Loader(fl.volumes([pair]), chain, batch_size=1, seed=1, cache=cache)
        streams.append([batch["image"].tobytes() for _ in range(4) for batch in loader])
    assert streams[0] == streams[1]


def test_a_label_of_another_shape_is_a_named_error(tmp_path: Path) -> None:
    image = write(tmp_path / "a_x.npy", IMAGE)
    label = write(tmp_path / "a_y.nii.gz", LABEL[1:])
    with pytest.raises(fl.SampleError, match=r"a_x\.npy.*\[6, 7, 8\].*a_y\.nii\.gz.*\[5, 7, 8\]"):
        load(image, label)


def test_invalid_labels_are_a_named_error(tmp_path: Path) -> None:
    image = write(tmp_path / "a_x.npy", IMAGE)
    for value in (1.5, -1.0, 256.0, float("nan")):
        label = write(tmp_path / "a_y.nii", np.where(IMAGE > 150, np.float32(value), np.float32(0)))
        with pytest.raises(fl.SampleError, match=r"a_y\.nii.*whole numbers from 0 to 255"):
            load(image, label)


@pytest.mark.parametrize("spacing", [float("nan"), 0.0, -1.0, float("inf")])
def test_an_invalid_spacing_is_a_named_error(tmp_path: Path, spacing: float) -> None:
    image = write(tmp_path / "a_x.nii", IMAGE, spacing=(1.0, spacing, 1.0))
    with pytest.raises(fl.SampleError, match=r"ResampleSpacing.*\"image\" is \[1\.0, .*above 0"):
        next(iter(fl.Loader(fl.volumes([image]), [ops.ResampleSpacing(on="image")], batch_size=1)))


def test_arrays_have_no_spacing(tmp_path: Path) -> None:
    image = write(tmp_path / "a_x.npy", IMAGE)
    with pytest.raises(fl.SampleError, match="no spacing"):
        next(iter(fl.Loader(fl.volumes([image]), [ops.ResampleSpacing(on="image")], batch_size=1)))


def test_a_spacing_that_would_need_all_memory_is_refused(tmp_path: Path) -> None:
    image = write(tmp_path / "a_x.nii", IMAGE, spacing=(1e9, 1e9, 1e9))
    with pytest.raises(fl.SampleError, match=r"does not fit into memory|the machine has"):
        next(iter(fl.Loader(fl.volumes([image]), [ops.ResampleSpacing(on="image")], batch_size=1)))


def test_law_5_the_places_of_a_long_thin_volume_are_booked(tmp_path: Path) -> None:
    image = write(tmp_path / "a_x.nii", IMAGE[:1, :1, :1], spacing=(1e5, 1.0, 1.0))
    chain = [ops.ResampleSpacing((1.0, 1.0, 1.0), on="image")]
    loader = fl.Loader(fl.volumes([image]), chain, batch_size=1, memory_budget="100kB", num_workers=1)
    assert next(iter(loader))["image"].shape == (1, 1, 100_000, 1, 1)
    assert loader.snapshot()["memory"]["peak_bytes"] >= 100_000 * (4 + 24)


def test_a_volume_with_other_channels_is_a_named_error(tmp_path: Path) -> None:
    two = write(tmp_path / "b.npy", np.stack([IMAGE, IMAGE]))
    source = fl.volumes([write(tmp_path / "a.npy", IMAGE), two])
    with pytest.raises(fl.SampleError, match=r"b\.npy.*2 channels.*first.*1"):
        for _ in fl.Loader(source, [], batch_size=1):
            pass


def test_a_crop_larger_than_the_volume_names_the_remedy(tmp_path: Path) -> None:
    image, label = write(tmp_path / "a_x.npy", IMAGE), write(tmp_path / "a_y.npy", LABEL)
    with pytest.raises(fl.SampleError, match=r"\[7, 7, 7\].*\[6, 7, 8\].*PadTo"):
        load(image, label, [ops.RandomBalancedCrop(7)])


def test_a_bad_volume_can_be_replaced(tmp_path: Path) -> None:
    bad = tmp_path / "bad_x.npy"
    bad.write_bytes(b"")
    images = [write(tmp_path / f"{number}.npy", IMAGE) for number in range(3)]
    loader = fl.Loader(fl.volumes([bad, *images]), [], batch_size=4, on_error=fl.substitute(max_fraction=0.5))
    (batch,) = loader
    assert batch["image"].shape == (4, 1, *SIDES)


def test_files_cut_short_while_the_loader_is_open_are_an_error(tmp_path: Path) -> None:
    images = [write(tmp_path / f"{number}.npy", IMAGE) for number in range(2)]
    source = fl.volumes(images)
    images[1].write_bytes(images[1].read_bytes()[:300])
    with pytest.raises(fl.SampleError, match=r"1\.npy.*too short"):
        for _ in fl.Loader(source, [], batch_size=1):
            pass


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (ops.ResampleSpacing((1.0, 0.0, 1.0)), "spacing is 0"),
        (ops.ClipNormalize(std=0.0), "std is 0"),
        (ops.ClipNormalize(low=3.0, high=1.0), "low <= high"),
        (ops.PadTo(0), "side"),
        (ops.RandomBalancedCrop(4, oversampling=1.5), "oversampling is 1.5"),
        (ops.RandomBalancedCrop(4, on="image"), "needs a label"),
        (ops.RandomFlip3d(p=2.0), "probability"),
        (ops.RandomBrightness(factor=-1.0), "factor"),
        (ops.GaussianNoise(std=-0.1), "std"),
        (ops.GaussianNoise(on="label"), "float32"),
        (ops.DecodeImage(), "encoded bytes"),
        (ops.Normalize(), "pixels"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_parameters_that_make_no_sense_are_refused_at_once(tmp_path: Path, op: ops.Op, words: str) -> None:
    pair = (write(tmp_path / "a_x.npy", IMAGE), write(tmp_path / "a_y.npy", LABEL))
    with pytest.raises(fl.PlanError, match=words):
        fl.Loader(fl.volumes([pair]), [op], batch_size=1)


def test_padding_says_at_once_what_it_has_no_value_for(tmp_path: Path) -> None:
    source = fl.volumes([write(tmp_path / "a_x.npy", IMAGE)])
    with pytest.raises(fl.PlanError, match="float32, or a label"):
        fl.Loader(source, [ops.Cast("float16", on="image"), ops.PadTo(30, on="image")], batch_size=1)
    chain = [ops.Cast("float16", on="image"), ops.PadTo(30, mode="edge", on="image")]
    assert next(iter(fl.Loader(source, chain, batch_size=1)))["image"].shape == (1, 1, 30, 30, 30)


def test_ops_of_volumes_on_pictures_say_what_they_need(tmp_path: Path) -> None:
    with pytest.raises(fl.PlanError, match="needs a volume"):
        fl.Loader(fl.files({"image": ["x.jpg"]}), [ops.RandomFlip3d(on="image")], batch_size=1)
