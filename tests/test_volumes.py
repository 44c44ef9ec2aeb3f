"""Volumes and their ops, against NumPy, SciPy and nibabel."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from volumes import CODES, Array, boxes, case, padded, resampled, resampled_label, starts, write

import feedline as fl
from feedline import ops

SIDES = (23, 31, 70)
SIZE = (9, 12, 16)
ENDINGS = [".npy", ".nii", ".nii.gz"]
ONLINE = [
    ops.RandomBalancedCrop(SIZE), ops.RandomFlip3d(), ops.Cast(), ops.RandomBrightness(p=0.5), ops.GaussianNoise(p=0.5),
]  # fmt: skip


def make_cases(root: Path, count: int = 4, ending: str = ".npy", **header: Any) -> list[tuple[Array, Array]]:
    cases = [case(number, (SIDES[0] + number, *SIDES[1:])) for number in range(count)]
    for number, (image, label) in enumerate(cases):
        write(root / f"case_{number}/imaging{ending}", image, **header)
        write(root / f"case_{number}/segmentation{ending}", label, **header)
    return cases


def batches(source: fl.Source, chain: list[ops.Op], epochs: int = 1, **options: Any) -> list[Any]:
    options = {"batch_size": 1, "seed": 3} | options
    loader = fl.Loader(source, chain, **options)
    return [batch for _ in range(epochs) for batch in loader]


def stream(source: fl.Source, chain: list[ops.Op], **options: Any) -> list[bytes]:
    return [batch["image"].tobytes() + batch["label"].tobytes() for batch in batches(source, chain, **options)]


def applied(tmp_path: Path, op: ops.Op, image: Array, label: Array, **header: Any) -> tuple[Array, Array]:
    pair = (write(tmp_path / "op_x.nii", image, **header), write(tmp_path / "op_y.nii", label, **header))
    (batch,) = batches(fl.volumes([pair]), [op])
    return batch["image"][0, 0], batch["label"][0, 0]


# NIfTI has no float16 and no bool.
@pytest.mark.parametrize(
    ("ending", "dtype"),
    [(ending, dtype) for ending in ENDINGS for dtype in [*CODES, *(("float16", "bool") if ending == ".npy" else ())]],
)
def test_images_are_float32_and_labels_uint8_whatever_the_file_has(tmp_path: Path, ending: str, dtype: str) -> None:
    values = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 120, (5, 6, 7)).astype(dtype)
    pair = (write(tmp_path / f"a_x{ending}", values), write(tmp_path / f"a_y{ending}", values))
    (batch,) = batches(fl.volumes([pair]), [])
    assert (batch["image"].dtype, batch["label"].dtype) == (np.float32, np.uint8)
    np.testing.assert_array_equal(batch["image"][0, 0], values.astype(np.float32))
    np.testing.assert_array_equal(batch["label"][0, 0], values.astype(np.uint8))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("scale", [(0.0, 0.0), (1.0, 0.0), (0.5, -1000.0), (float("nan"), 0.0)])
@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_nifti_is_what_nibabel_reads(tmp_path: Path, ending: str, scale: tuple[float, float], order: str) -> None:
    nibabel = pytest.importorskip("nibabel")
    values = np.random.default_rng(2).integers(-1000, 2000, (11, 7, 80)).astype(np.int16)
    path = write(tmp_path / f"a{ending}", values, scale=scale, order=order)
    (batch,) = batches(fl.volumes([path]), [])
    np.testing.assert_array_equal(batch["image"][0, 0], nibabel.load(path).get_fdata().astype(np.float32))


def test_files_that_nibabel_writes_are_read_also_nifti_2(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    values = np.random.default_rng(2).normal(size=(4, 5, 6, 2)).astype(np.float32)
    for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image):
        nibabel.save(kind(values, np.diag([2.0, 3.0, 4.0, 1.0])), tmp_path / "a.nii.gz")
        (batch,) = batches(fl.volumes(tmp_path), [])
        np.testing.assert_array_equal(batch["image"][0], np.moveaxis(values, -1, 0))
        (batch,) = batches(fl.volumes(tmp_path), [ops.ResampleSpacing((1.0, 1.5, 2.0), on="image")])
        assert batch["image"].shape == (1, 2, 8, 10, 12)


@pytest.mark.parametrize(
    "values", [np.zeros((2, 4, 5, 6)), np.asfortranarray(np.ones((4, 5, 6))), np.ones((1, 4, 5, 6))]
)
def test_arrays_have_channels_first_in_either_order(tmp_path: Path, values: Array) -> None:
    np.save(tmp_path / "a.npy", values)
    (batch,) = batches(fl.volumes(tmp_path), [])
    assert batch["image"].shape == (1, *values.shape[:-3], 4, 5, 6) or batch["image"].shape == (1, 1, 4, 5, 6)
    np.testing.assert_array_equal(batch["image"][0], values.astype(np.float32).reshape(batch["image"].shape[1:]))


def test_folders_pair_by_name_and_lists_as_they_are(tmp_path: Path) -> None:
    image, label = case(0, (4, 5, 6))
    for number in (1, 2):
        write(tmp_path / f"flat/{number}_x.npy", image + number)
        write(tmp_path / f"flat/{number}_y.npy", label)
    write(tmp_path / "alone/scan.npy", image)
    flat = fl.volumes(tmp_path / "flat")
    assert (len(flat), flat.fields, flat.key(1)) == (2, ["image", "label"], "2_x.npy")
    assert fl.volumes(tmp_path / "alone").fields == ["image"]
    listed = fl.volumes([(tmp_path / "flat/2_x.npy", tmp_path / "flat/1_y.npy")])
    np.testing.assert_array_equal(batches(listed, [])[0]["image"][0, 0], image + 2)
    os.remove(tmp_path / "flat/2_y.npy")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(fl.SourceError, match=r"2_x\.npy.*2_y"):
        fl.volumes(tmp_path / "flat")
    with pytest.raises(fl.SourceError, match="no volumes"):
        fl.volumes(empty)


def test_resampling_is_that_of_scipy(tmp_path: Path) -> None:
    image, label = case(1, SIDES)
    for spacing in [(3.0, 0.7, 0.8), (1.6, 1.2, 1.2), (0.4, 2.0, 0.02)]:
        target = (1.6, 1.2, 1.2)
        ours = applied(tmp_path, ops.ResampleSpacing(target), image, label, spacing=spacing)
        np.testing.assert_allclose(ours[0], resampled(image, spacing, target), rtol=1e-5, atol=1e-3)
        np.testing.assert_array_equal(ours[1], resampled_label(label, spacing, target))


def test_resampling_is_that_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    image, label = case(1, SIDES)
    ours = applied(tmp_path, ops.ResampleSpacing(), image, label, spacing=(3.0, 0.7, 0.8))
    sizes = ours[0].shape
    resize = torch.nn.functional.interpolate
    smooth = resize(torch.from_numpy(image)[None, None], size=sizes, mode="trilinear", align_corners=True)
    np.testing.assert_allclose(ours[0], smooth[0, 0].numpy(), rtol=1e-4, atol=1e-2)
    nearest = resize(torch.from_numpy(label)[None, None], size=sizes, mode="nearest")
    np.testing.assert_array_equal(ours[1], nearest[0, 0].numpy())


def test_clipping_and_normalising_are_those_of_numpy(tmp_path: Path) -> None:
    image, label = case(2, SIDES)
    image[0, 0, :3] = np.nan, np.inf, -np.inf
    ours, same = applied(tmp_path, ops.ClipNormalize(), image, label)
    expected = (np.clip(image, np.float32(-79), np.float32(304)) - np.float32(101)) / np.float32(76.9)
    np.testing.assert_array_equal(ours, expected)
    np.testing.assert_array_equal(same, label)


@pytest.mark.parametrize("size", [(30, 40, 5), (23, 31, 77), (8, 8, 8)])
def test_padding_is_that_of_numpy(tmp_path: Path, size: tuple[int, int, int]) -> None:
    image, label = case(3, SIDES)
    ours = applied(tmp_path, ops.PadTo(size), image, label)
    np.testing.assert_array_equal(ours[0], padded(image, size, constant_values=np.float32(-2.2)))
    np.testing.assert_array_equal(ours[1], padded(label, size))
    ours = applied(tmp_path, ops.PadTo(size, mode="edge"), image, label)
    np.testing.assert_array_equal(ours[0], padded(image, size, mode="edge"))
    np.testing.assert_array_equal(ours[1], padded(label, size, mode="edge"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_crops_lie_around_the_foreground_as_often_as_requested_and_match_in_image_and_label(
    tmp_path: Path, ending: str
) -> None:
    _, label = case(4, SIDES)
    label[2:14, 3:20, 5:60] = 3
    image = np.arange(label.size, dtype=np.float32).reshape(SIDES)
    pair = (write(tmp_path / f"a_x{ending}", image), write(tmp_path / f"a_y{ending}", label))
    places = {
        (value, number): starts(box, SIZE, SIDES)
        for value, found in boxes(label).items() for number, box in enumerate(found)
    }  # fmt: skip
    hits: Counter[tuple[int, int]] = Counter()
    for oversampling in (0.0, 1.0):
        chain = [ops.RandomBalancedCrop(SIZE, oversampling=oversampling)]
        seen = []
        for batch in batches(fl.volumes([pair]), chain, epochs=300):
            start = np.unravel_index(int(batch["image"][0, 0, 0, 0, 0]), SIDES)
            region = tuple(slice(first, first + side) for first, side in zip(start, SIZE, strict=True))
            np.testing.assert_array_equal(batch["image"][0, 0], image[region])
            np.testing.assert_array_equal(batch["label"][0, 0], label[region])
            seen.append(start)
            if oversampling:
                fits = [
                    key for key, ranges in places.items() if all(s in r for s, r in zip(start, ranges, strict=True))
                ]
                assert fits, f"a crop at {start} holds no box"
                hits.update(fits)
        if not oversampling:
            for axis, (side, length) in enumerate(zip(SIDES, SIZE, strict=True)):
                counts = np.bincount([start[axis] for start in seen], minlength=side - length + 1)
                assert len(counts) == side - length + 1
                assert stats.chisquare(counts).pvalue > 1e-4
    assert set(hits) == set(places), "each class and each of its boxes comes"


def test_oversampling_is_a_share_of_the_draws(tmp_path: Path) -> None:
    label = np.zeros((60, 60, 60), np.uint8)
    label[30, 30, 30] = 1
    pair = (write(tmp_path / "a_x.npy", label.astype(np.float32)), write(tmp_path / "a_y.npy", label))
    chain = [ops.RandomBalancedCrop(4, oversampling=0.4)]
    hit = sum(bool(batch["label"].any()) for batch in batches(fl.volumes([pair]), chain, epochs=1000))
    assert abs(hit / 1000 - 0.4) < 0.06


def test_a_label_without_foreground_is_cropped_anywhere(tmp_path: Path) -> None:
    image, label = case(0, SIDES)
    pair = (write(tmp_path / "a_x.npy", image), write(tmp_path / "a_y.npy", label * 0))
    assert len(batches(fl.volumes([pair]), [ops.RandomBalancedCrop(SIZE, oversampling=1.0)], epochs=3)) == 3


@pytest.mark.parametrize("ending", ENDINGS)
def test_law_8_reading_only_the_crop_gives_the_crop_of_the_whole(tmp_path: Path, ending: str) -> None:
    make_cases(tmp_path, ending=ending)
    source = fl.volumes(tmp_path)
    keeps_places = ops.ClipNormalize(low=-1e30, high=1e30, mean=0.0, std=1.0)
    whole_first = ops.PadTo(1)
    options: dict[str, Any] = {"epochs": 5, "shuffle": True}
    assert stream(source, [keeps_places, *ONLINE], **options) == stream(source, [whole_first, *ONLINE], **options)


@pytest.mark.parametrize("form", [None, "encoded", "resized"])
def test_law_8_a_crop_uses_the_foreground_of_the_label_as_the_op_receives_it(tmp_path: Path, form: Any) -> None:
    make_cases(tmp_path)
    one_class = [
        ops.Cast(label_dtype="float32"), ops.ClipNormalize(low=0, high=1, mean=0, std=1, on="label"),
        ops.Cast(label_dtype="uint8"),
    ]  # fmt: skip
    crop, source = ops.RandomBalancedCrop(SIZE, oversampling=1.0), fl.volumes(tmp_path)
    cache = fl.cache(ram="1GB", form=form) if form else None
    keeps_places, whole_first = ops.Cast(), ops.PadTo(1)
    expected = stream(source, [whole_first, *one_class, crop], epochs=5)
    assert stream(source, [keeps_places, *one_class, crop], epochs=5, cache=cache) == expected


def test_law_1_threads_formats_and_caches_do_not_change_a_byte(tmp_path: Path) -> None:
    chain = [ops.ResampleSpacing((1.5, 0.8, 1.1)), ops.ClipNormalize(), ops.PadTo(20), *ONLINE]
    for ending in (".nii", ".nii.gz"):
        make_cases(tmp_path / ending, ending=ending, spacing=(1.0, 1.0, 1.0))
    sources = [fl.volumes(tmp_path / ending) for ending in (".nii", ".nii.gz")]
    plain = stream(sources[0], chain, epochs=3, num_workers=1)
    assert stream(sources[1], chain, epochs=3, num_workers=4) == plain
    for limits in ({"ram": "1GB"}, {"disk": "1GB"}, {"disk": "1GB"}, {"ram": "500kB"}):
        for form in (None, "encoded", "resized"):
            kept = fl.Loader(sources[1], chain, batch_size=1, seed=3, cache=fl.cache(**limits, form=form))
            found = [batch["image"].tobytes() + batch["label"].tobytes() for _ in range(3) for batch in kept]
            assert found == plain
            assert kept.snapshot()["cache"]["hits"] > 0, (limits, form)


def test_crops_of_kept_arrays_are_the_same(tmp_path: Path) -> None:
    make_cases(tmp_path)
    source = fl.volumes(tmp_path)
    assert stream(source, ONLINE, epochs=3, cache=fl.cache(ram="1GB", form="encoded")) == stream(
        source, ONLINE, epochs=3
    )


def test_flips_are_those_of_numpy_and_each_axis_turns_with_its_probability(tmp_path: Path) -> None:
    image, label = case(5, (4, 5, 6))
    pair = (write(tmp_path / "a_x.npy", image), write(tmp_path / "a_y.npy", label))
    turns = [[axis for axis in range(3) if number >> axis & 1] for number in range(8)]
    counts: Counter[int] = Counter()
    for batch in batches(fl.volumes([pair]), [ops.RandomFlip3d()], epochs=600):
        same = [n for n, axes in enumerate(turns) if np.array_equal(np.flip(image, axes), batch["image"][0, 0])]
        assert len(same) == 1
        np.testing.assert_array_equal(np.flip(label, turns[same[0]]), batch["label"][0, 0])
        counts[same[0]] += 1
    expected = [600 * (1 / 3) ** len(axes) * (2 / 3) ** (3 - len(axes)) for axes in turns]
    assert stats.chisquare([counts[n] for n in range(8)], expected).pvalue > 1e-4


@pytest.mark.parametrize("dtype", ["float16", "float64", "int16", "uint8", "int64"])
def test_casting_is_that_of_numpy_where_numpy_defines_it(tmp_path: Path, dtype: str) -> None:
    image, label = case(6, (6, 7, 8))
    image = np.clip(image, 0, 250)
    ours = applied(tmp_path, ops.Cast(dtype, label_dtype="int64"), image, label)
    assert (ours[0].dtype, ours[1].dtype) == (np.dtype(dtype), np.int64)
    np.testing.assert_array_equal(ours[0], image.astype(dtype))
    np.testing.assert_array_equal(ours[1], label.astype(np.int64))


def test_bfloat16_without_torch_is_refused_at_once(tmp_path: Path) -> None:
    make_cases(tmp_path)
    with pytest.raises(fl.PlanError, match="bfloat16"):
        fl.Loader(fl.volumes(tmp_path), [ops.Cast("bfloat16")], batch_size=1)


def test_brightness_is_one_factor_for_all_and_as_often_as_requested(tmp_path: Path) -> None:
    image, label = case(7, (4, 5, 6))
    pair = (write(tmp_path / "a_x.npy", image), write(tmp_path / "a_y.npy", label))
    factors = []
    for batch in batches(fl.volumes([pair]), [ops.RandomBrightness(p=0.25)], epochs=800):
        factor = np.float32(np.median(batch["image"][0, 0] / image))
        np.testing.assert_allclose(batch["image"][0, 0], image * factor, rtol=1e-5)
        factors.append(float(factor))
    changed = [factor for factor in factors if factor != 1.0]
    assert abs(len(changed) / 800 - 0.25) < 0.06
    assert stats.kstest(changed, stats.uniform(0.7, 0.6).cdf).pvalue > 1e-4


def test_noise_is_normal_of_uniform_strength_and_as_often_as_requested(tmp_path: Path) -> None:
    image, label = np.zeros((32, 32, 32), np.float32), np.zeros((32, 32, 32), np.uint8)
    pair = (write(tmp_path / "a_x.npy", image), write(tmp_path / "a_y.npy", label))
    strengths = []
    for batch in batches(fl.volumes([pair]), [ops.GaussianNoise(std=0.1, p=0.5)], epochs=200):
        noise = batch["image"][0, 0].ravel()
        if noise.any():
            strengths.append(noise.std())
            assert stats.kstest(noise[::3] / noise.std(), "norm").pvalue > 1e-5
            assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.03
    assert 60 < len(strengths) < 140
    assert stats.kstest(strengths, stats.uniform(0, 0.1).cdf).pvalue > 1e-4


def test_foregrounds_are_kept_and_then_only_crops_are_read(tmp_path: Path, own_cache: Path) -> None:
    sides = (64, 128, 128)
    for number in range(3):
        image, label = case(number, sides)
        write(tmp_path / f"{number}_x.npy", image)
        write(tmp_path / f"{number}_y.npy", label)
    chain = [ops.RandomBalancedCrop(16, oversampling=1.0)]

    def store() -> dict[str, Any]:
        loader = fl.Loader(fl.volumes(tmp_path), chain, batch_size=1, seed=3)
        for _ in loader:
            pass
        return dict(loader.snapshot()["store"])

    rows = 16 * 16 * 128
    assert store()["bytes"] > 3 * np.prod(sides), "labels are read whole to find the foreground"
    assert (own_cache / "foreground").is_dir()
    later = store()
    assert later["bytes"] / later["reads"] <= rows * (4 + 1) / 2, "of image and label, the rows of the crop"
    label = np.zeros(sides, np.uint8)
    label[3, 3, 3] = 1
    write(tmp_path / "1_y.npy", label)
    os.utime(tmp_path / "1_y.npy", ns=(0, 1))
    (changed,) = [batch for batch in batches(fl.volumes(tmp_path), chain) if batch["index"][0] == 1]
    assert changed["label"].sum() == 1, "a label that was changed is looked through again"


def test_functions_see_volumes_as_arrays_and_give_volumes_back(tmp_path: Path) -> None:
    make_cases(tmp_path)
    chain = [ops.Map(lambda image: image * 2 + 1), *ONLINE]
    for batch in batches(fl.volumes(tmp_path), chain):
        assert batch["image"].shape == (1, 1, *SIZE)


def test_a_plan_with_volumes_is_written_and_read_again(tmp_path: Path) -> None:
    make_cases(tmp_path)
    loader = fl.Loader(fl.volumes(tmp_path), [ops.PadTo(20), *ONLINE], batch_size=2, seed=1)
    again = fl.Plan.from_toml(loader.plan.to_toml())
    assert again.fingerprints == loader.plan.fingerprints


def test_a_packed_volume_in_several_parts_and_filled_up_with_zeros_is_read_whole(tmp_path: Path) -> None:
    image, label = case(3, (20, 18, 16))
    names = [write(tmp_path / f"{name}.nii.gz", data) for name, data in (("image", image), ("label", label))]
    expected = next(iter(fl.Loader(fl.volumes([(names[0], names[1])]), batch_size=1)))
    for name in names:
        whole = gzip.decompress(name.read_bytes())
        name.write_bytes(gzip.compress(whole[:700]) + gzip.compress(whole[700:]) + bytes(300_000))
    found = next(iter(fl.Loader(fl.volumes([(names[0], names[1])]), batch_size=1)))
    assert np.array_equal(found["image"], expected["image"])
    assert np.array_equal(found["label"], expected["label"])
