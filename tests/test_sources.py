"""Sources: their samples, the numbering, and the content of the fields."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import DTYPES, labels_mask, natural, save

import feedline as fl
from feedline import ops

DECODE = [ops.DecodeImage()]


def everything(source: fl.Source, chain: list[ops.Op] | None = None, **options: Any) -> dict[str, Any]:
    """All samples of a source as one batch."""
    (batch,) = list(fl.Loader(source, chain or [], batch_size=len(source), **options))
    return batch


def check_array(source: fl.Source, expected: np.ndarray) -> None:
    found = everything(source)[source.fields[0]]
    assert found.dtype == expected.dtype.newbyteorder("=")
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).astype(found.dtype).tobytes()


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 100, shape)).astype(dtype)


def test_folder_classes_are_the_sorted_sub_folders(tmp_path: Path) -> None:
    for number, name in enumerate(["zebra", "Ant", "bee-2", "bee", "été"]):
        save(tmp_path / name / "x.png", natural(8, 8, number))
    source = fl.folder(tmp_path)
    assert source.classes == sorted(["zebra", "Ant", "bee-2", "bee", "été"], key=lambda name: name.encode())
    batch = everything(source, DECODE, fields=("label", "key", "index"))
    assert [source.classes[label] for label in batch[0]] == [key.split("/")[0] for key in batch[1]]
    assert batch[1] == sorted(batch[1], key=lambda name: name.encode())
    assert batch[2].tolist() == [0, 1, 2, 3, 4]


def test_folder_takes_pictures_at_any_depth_into_the_top_class(tmp_path: Path) -> None:
    save(tmp_path / "a" / "deep" / "deeper" / "1.png", natural(8, 8))
    save(tmp_path / "b" / "2.png", natural(8, 8))
    source = fl.folder(tmp_path)
    assert source.classes == ["a", "b"]
    assert everything(source, DECODE)["label"].tolist() == [0, 1]


def test_a_flat_folder_has_label_minus_one_and_no_classes(pictures: Callable[..., Path]) -> None:
    source = fl.folder(pictures(3, classes=()))
    assert source.classes == []
    batch = everything(source, DECODE)
    assert batch["label"].tolist() == [-1, -1, -1]
    assert batch["label"].dtype == np.int64


def test_a_mixed_folder_labels_loose_pictures_minus_one(tmp_path: Path) -> None:
    save(tmp_path / "cat" / "1.png", natural(8, 8))
    save(tmp_path / "loose.png", natural(8, 8))
    batch = everything(fl.folder(tmp_path), DECODE, fields=("key", "label"))
    assert dict(zip(batch[0], batch[1].tolist(), strict=True)) == {"cat/1.png": 0, "loose.png": -1}


def test_folder_takes_all_picture_endings_and_nothing_else(tmp_path: Path) -> None:
    pictures = ["a.jpg", "b.JPEG", "c.png", "d.webp", "e.BMP", "f.gif", "g.ppm", "h.PGM", "i.tif", "j.TIFF"]
    for name in (*pictures, "no.txt", "no.psd", "jpg", ".hidden"):
        (tmp_path / name).write_bytes(b"x")
    keys = [fl.folder(tmp_path).key(index) for index in range(len(fl.folder(tmp_path)))]
    assert keys == pictures


def test_a_class_keeps_its_label_where_its_folder_has_no_picture(tmp_path: Path) -> None:
    for part in ("train", "val"):
        save(tmp_path / part / "bee" / "1.png", natural(8, 8))
    save(tmp_path / "train" / "ant" / "1.png", natural(8, 8))
    train = fl.folder(tmp_path / "train")
    (tmp_path / "val" / "ant").mkdir()
    for other in (None, "1.psd"):
        if other:
            (tmp_path / "val" / "ant" / other).write_bytes(b"x")
        with pytest.raises(fl.SourceError, match=r"ant.*allow_empty"):
            fl.folder(tmp_path / "val")
        val = fl.folder(tmp_path / "val", allow_empty=True)
        assert val.classes == train.classes
        assert everything(val, DECODE)["label"].tolist() == [1]


def test_classes_of_another_source_fix_the_labels(tmp_path: Path) -> None:
    for name in ("train/ant", "train/bee", "val/bee", "other/cat"):
        save(tmp_path / name / "1.png", natural(8, 8))
    train = fl.folder(tmp_path / "train")
    val = fl.folder(tmp_path / "val", classes=train.classes)
    assert everything(val, DECODE)["label"].tolist() == [1]
    loader = fl.Loader(val, DECODE, batch_size=1)
    assert fl.Plan.from_toml(loader.plan.to_toml()).source.classes == ["ant", "bee"]
    with pytest.raises(fl.SourceError, match="cat"):
        fl.folder(tmp_path / "other", classes=train.classes)
    with pytest.raises(fl.SourceError, match="list of names"):
        fl.folder(tmp_path / "val", classes="bee")


def test_files_that_are_left_out_are_counted_and_named_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path / "a" / "1.png", natural(8, 8))
    assert fl.folder(tmp_path).skipped == 0
    for name in ("2.psd", "3.psd", "notes.txt"):
        (tmp_path / "a" / name).write_bytes(b"x")
    caplog.clear()
    source = fl.folder(tmp_path)
    assert source.skipped == 3
    assert "3 files left out" in repr(source)
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "2 .psd" in warning.getMessage()
    assert "extensions" in warning.getMessage()
    assert len(fl.folder(tmp_path, extensions=(".psd", "png"))) == 3


def test_paths_may_begin_with_a_tilde_and_have_names_that_are_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = os.fsencode(tmp_path) + b"/caf\xe9"
    os.makedirs(root + b"/class\xff")
    save(tmp_path / "plain" / "a" / "1.png", natural(8, 8))
    picture = (tmp_path / "plain" / "a" / "1.png").read_bytes()
    for name in (b"\xe8.png", b"\xe9.png"):
        with open(root + b"/class\xff/" + name, "wb") as file:
            file.write(picture)
    for given in (root, os.fsdecode(root), Path(os.fsdecode(root))):
        source = fl.folder(given)
        assert source.classes == ["class\\xff"]
        assert [source.key(index) for index in range(2)] == ["class\\xff/\\xe8.png", "class\\xff/\\xe9.png"]
        assert len(everything(source, DECODE)["image"]) == 2
    source = fl.files({"image": [root + b"/class\xff/\xe8.png"]})
    assert len(everything(source, DECODE)["image"]) == 1
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fl.folder("~/plain").classes == ["a"]
    np.save(tmp_path / "x.npy", np.zeros((2, 3)))
    assert len(fl.array("~/x.npy")) == 2
    assert fl._feedline.run_cli(["feedline", "pack", "~/plain", "~/shards"]) == 0
    assert len(fl.tar("~/shards")) == 1


def test_folder_takes_a_path_object_and_a_relative_path(
    pictures: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pictures(4)
    monkeypatch.chdir(root.parent)
    first, second = everything(fl.folder(root), DECODE), everything(fl.folder(root.name), DECODE)
    assert np.array_equal(first["image"], second["image"])


def test_folder_labels_belong_to_their_pictures(pictures: Callable[..., Path]) -> None:
    source = fl.folder(pictures(6, classes=("x", "y", "z")))
    batch = everything(source, DECODE)
    for index in range(6):
        number = int(Path(source.key(index)).stem)
        assert np.array_equal(batch["image"][index], natural(24, 32, number))
        assert batch["label"][index] == number % 3


def test_files_give_pictures_masks_and_labels_in_the_order_of_the_lists(tmp_path: Path) -> None:
    images = [save(tmp_path / f"{n}.png", natural(16, 24, n)) for n in (3, 1, 2)]
    masks = [save(tmp_path / f"m{n}.png", labels_mask(16, 24, (0, 1, 9), n)) for n in (3, 1, 2)]
    source = fl.files({"image": images, "mask": masks}, labels=[30, 10, 20])
    assert source.fields == ["image", "mask", "label"]
    batch = everything(source, [ops.DecodeImage(on=("image", "mask"))])
    for place, number in enumerate((3, 1, 2)):
        assert np.array_equal(batch["image"][place], natural(16, 24, number))
        assert np.array_equal(batch["mask"][place], labels_mask(16, 24, (0, 1, 9), number))
    assert batch["label"].tolist() == [30, 10, 20]
    assert source.key(1) == str(images[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (1,)])
def test_labels_keep_their_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    labels = values((5, *shape), dtype)
    found = everything(fl.array(np.zeros((5, 2), np.uint8), labels=labels))["label"]
    assert found.dtype == labels.dtype
    assert np.array_equal(found, labels)


@pytest.mark.parametrize("labels", [np.arange(5, dtype=">i4"), np.arange(10)[::2], [[0, 1]] * 5, [0.5] * 5])
def test_labels_may_be_big_endian_strided_or_lists(labels: Any) -> None:
    found = everything(fl.array(np.zeros((5, 2), np.uint8), labels=labels))["label"]
    assert np.array_equal(found, np.asarray(labels))


@pytest.mark.parametrize(
    ("labels", "shapes"),
    [
        ([[1], [1, 2], [], [3], [4, 5, 6]], [(1,), (2,), (0,), (1,), (3,)]),
        ([np.ones((n, 4), np.float32) * n for n in (2, 0, 1, 3, 1)], [(2, 4), (0, 4), (1, 4), (3, 4), (1, 4)]),
        ([[[0, 0, 2, 2]], [], [[1, 1, 2, 2]] * 2, [], []], [(1, 4), (0, 4), (2, 4), (0, 4), (0, 4)]),
        (np.array([[True], [True, False], [], [True], [False]], dtype=object), [(1,), (2,), (0,), (1,), (1,)]),
    ],
)
def test_labels_of_different_shapes_are_delivered_as_a_list_in_every_order(labels: Any, shapes: list[Any]) -> None:
    source = fl.array(np.zeros((5, 2), np.uint8), labels=labels)
    expected = [np.asarray(label).reshape(shape) for label, shape in zip(labels, shapes, strict=True)]
    dtype = np.result_type(*(label for label in expected if label.size))
    found = source.labels
    assert isinstance(found, list)
    assert [label.shape for label in found] == shapes
    loader = fl.Loader(source, batch_size=2, shuffle=True, ragged=("label",), num_workers=3)
    for batch in loader:
        for index, label in zip(batch["index"], batch["label"], strict=True):
            assert (label.dtype, label.shape) == (dtype, shapes[index])
            assert np.array_equal(label, expected[index])
    part = source.subset([1, 4])
    assert [label.shape for label in part.labels or []] == [shapes[1], shapes[4]]
    with pytest.raises(fl.RaggedError, match="label"):
        list(fl.Loader(source, batch_size=5))
    with pytest.raises(fl.SourceError, match="whole number or a class name"):
        source.split({"train": 0.5}, by="label")


@pytest.mark.parametrize("labels", [["cat", 1, 2, 3, 4], [1, [1, 2], 1, 1, 1], [None] * 5, [1 + 2j] * 5])
def test_labels_that_are_no_numbers_are_refused(labels: Any) -> None:
    with pytest.raises(fl.SourceError, match="labels"):
        fl.array(np.zeros((5, 2), np.uint8), labels=labels)


@pytest.mark.parametrize("count", [0, 4, 6])
def test_a_wrong_number_of_labels_is_refused_with_both_numbers(tmp_path: Path, count: int) -> None:
    path = save(tmp_path / "x.png", natural(8, 8))
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    for make in (
        lambda labels: fl.files({"image": [path] * 5}, labels=labels),
        lambda labels: fl.array(np.zeros((5, 2)), labels=labels),
        lambda labels: fl.array(tmp_path / "x.npy", labels=labels),
    ):
        with pytest.raises(fl.SourceError, match=f"^{count} labels for 5 samples$"):
            make(np.zeros(count, np.int64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 3, 5), (7,), (7, 1), (7, 4, 4, 3)])
def test_arrays_of_every_dtype_are_given_unchanged(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    data = values(shape, dtype)
    check_array(fl.array(data), data)
    np.save(tmp_path / "x.npy", data)
    check_array(fl.array(tmp_path / "x.npy"), data)
    check_array(fl.array(str(tmp_path / "x.npy")), data)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a[::2],
        lambda a: a[::-1],
        lambda a: a.T,
        np.asfortranarray,
        lambda a: a[:, 1:3],
        lambda a: a.astype(">f8"),
    ],
    ids=["strided", "reversed", "transposed", "fortran", "sliced", "big-endian"],
)
def test_arrays_in_any_memory_order_are_given_unchanged(change: Callable[[np.ndarray], np.ndarray]) -> None:
    data = change(values((8, 6, 4), "float64"))
    check_array(fl.array(data), data)


def test_an_array_lives_as_long_as_its_loader() -> None:
    data = values((100, 64, 64), "uint8")
    loader = fl.Loader(fl.array(data.copy()), batch_size=10)
    assert np.array_equal(np.concatenate([batch["data"] for batch in loader]), data)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: path.write_bytes(b"not an array"), "magic"),
        (lambda path: path.write_bytes(b""), "magic"),
        (lambda path: np.save(path, np.zeros((4, 4)).T[:2].copy(order="F").astype(">f4")), "Fortran|big-endian"),
        (lambda path: np.save(path, np.array(["a", "b"])), "not supported"),
        (lambda path: np.save(path, np.zeros(())), "first axis"),
        (lambda path: np.save(path, np.zeros((0, 3))), "first axis"),
    ],
)
def test_npy_files_that_cannot_be_read_are_refused_with_a_reason(tmp_path: Path, write: Any, words: str) -> None:
    write(tmp_path / "x.npy")
    with pytest.raises(fl.SourceError, match=words):
        fl.array(tmp_path / "x.npy")


def test_a_cut_npy_file_is_refused_with_both_sizes(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((10, 10)))
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data[:-1])
    with pytest.raises(fl.SourceError, match=f"file has {len(data) - 1} bytes"):
        fl.array(tmp_path / "x.npy")


def test_synthetic_samples_depend_on_their_id_alone() -> None:
    first = everything(fl.synthetic(20, (5, 7, 3)))
    assert first["data"].shape == (20, 5, 7, 3)
    assert first["data"].dtype == np.uint8
    assert len(np.unique(first["data"].reshape(20, -1), axis=0)) == 20
    again = everything(fl.synthetic(50, (5, 7, 3)).subset(range(20)), seed=9)
    assert np.array_equal(first["data"], again["data"])


@pytest.mark.parametrize(("n", "shape"), [(0, (3,)), (3, (0,)), (3, (2, 0)), (-3, (2,)), (3, (-2,)), (2.5, (2,))])
def test_synthetic_without_samples_or_bytes_is_refused(n: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(fl.SourceError, match="synthetic"):
        fl.synthetic(n, shape)


@pytest.mark.parametrize("n", [10, 101, 1000])
@pytest.mark.parametrize("seed", [0, 7])
def test_splits_are_disjoint_cover_all_and_keep_ids(n: int, seed: int) -> None:
    source = fl.synthetic(n, (2,))
    parts = source.split({"train": 0.7, "val": 0.2, "test": 0.1}, seed=seed)
    ids = [part.indices for part in parts.values()]
    assert sorted(sum(ids, [])) == list(range(n))
    assert [len(part) for part in parts.values()] == pytest.approx([0.7 * n, 0.2 * n, 0.1 * n], abs=1)
    again = source.split({"train": 0.7, "val": 0.2, "test": 0.1}, seed=seed)
    assert [part.indices for part in again.values()] == ids
    assert source.split({"train": 0.7, "val": 0.3}, seed=seed + 1)["train"].indices != ids[0]


def test_samples_of_a_part_are_those_of_the_whole_under_the_same_ids(pictures: Callable[..., Path]) -> None:
    source = fl.folder(pictures(12))
    chain = [ops.DecodeImage(), ops.RandomCrop(16), ops.ColorJitter(0.4, 0.4, 0.4, 0.1)]
    whole = everything(source, chain)
    part = source.subset([11, 2, 5])
    found = everything(part, chain)
    assert found["index"].tolist() == [2, 5, 11]
    assert np.array_equal(found["image"], whole["image"][[2, 5, 11]])
    assert np.array_equal(found["label"], whole["label"][[2, 5, 11]])
    assert part.key(11) == source.key(11)
    assert part.classes == source.classes
    with pytest.raises(IndexError, match="no sample 3"):
        part.key(3)
    assert part.subset([5]).indices == [5]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([], "is empty"),
        ([3, 3], "twice"),
        ([0, 99], "99"),
        ([-1], "-1"),
        ([0.5], "0.5"),
        (["a"], "subset"),
        (np.array([True, False]), "subset.*whole numbers"),
    ],
)
def test_invalid_subsets_are_refused(ids: Any, words: str) -> None:
    with pytest.raises(fl.SourceError, match=words):
        fl.synthetic(9, (1,)).subset(ids)


@pytest.mark.parametrize("parts", [{}, {"a": 0.0}, {"a": 0.7, "b": 0.7}, {"a": -0.1, "b": 0.5}, {"a": float("nan")}])
def test_invalid_splits_are_refused(parts: dict[str, float]) -> None:
    with pytest.raises(fl.SourceError, match=r"split\(\)|share"):
        fl.synthetic(9, (1,)).split(parts)


def test_parts_are_written_into_plans(tmp_path: Path, pictures: Callable[..., Path]) -> None:
    np.save(tmp_path / "x.npy", values((40, 3), "float32"))
    for source in (
        fl.folder(pictures(40)),
        fl.array(tmp_path / "x.npy", labels=range(40)),
        fl.synthetic(40, (2, 3)),
    ):
        chain = DECODE if "image" in source.fields else []
        for part in (source, source.split({"a": 0.5, "b": 0.5}, seed=3)["b"], source.subset([1, 7, 30])):
            plan = fl.Loader(part, chain, batch_size=5).plan
            read = fl.Plan.from_toml(plan.to_toml())
            assert read.source.indices == part.indices
            assert read.fingerprints == plan.fingerprints


def test_files_with_whole_labels_are_written_into_plans(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{n}.png", natural(8, 8, n)) for n in range(4)]
    source = fl.files({"image": paths, "mask": paths}, labels=np.array([4, 3, 2, 1], np.uint8))
    plan = fl.Loader(source, [ops.DecodeImage(on=("image", "mask"), mode="grey")], batch_size=2).plan
    read = fl.Plan.from_toml(plan.to_toml())
    assert read.fingerprints == plan.fingerprints
    first, second = (list(fl.Loader.from_plan(each)) for each in (plan, read))
    for one, other in zip(first, second, strict=True):
        assert {name: (a.dtype, a.tobytes()) for name, a in one.items()} == {
            name: (a.dtype, a.tobytes()) for name, a in other.items()
        }


def test_an_array_in_memory_or_labels_of_floats_cannot_be_written_and_say_so(tmp_path: Path) -> None:
    with pytest.raises(fl.FeedlineError, match="array in memory"):
        fl.Loader(fl.array(np.zeros((3, 2))), batch_size=1).plan.to_toml()
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(fl.FeedlineError, match="labels are a float64 tensor"):
        fl.Loader(fl.array(tmp_path / "x.npy", labels=[0.5, 1, 2]), batch_size=1).plan.to_toml()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "at least one field"),
        ({"image": []}, "empty"),
        ({"image": ["a"], "mask": []}, '"mask" has 0 files, but "image" has 1'),
        ({"label": ["a"]}, "label"),
        ({"image": "abc"}, "image.*list"),
    ],
)
def test_lists_of_files_that_do_not_fit_are_refused(fields: dict[str, list[str]], words: str) -> None:
    with pytest.raises(fl.SourceError, match=words):
        fl.files(fields)


def test_a_missing_folder_or_array_is_a_file_not_found_error(tmp_path: Path) -> None:
    for make in (lambda: fl.folder(tmp_path / "nowhere"), lambda: fl.array(tmp_path / "nowhere.npy")):
        with pytest.raises(FileNotFoundError, match="nowhere") as caught:
            make()
        assert isinstance(caught.value, fl.SourceNotFoundError)


def test_arrays_of_other_content_or_labels_are_other_data() -> None:
    def prints(source: fl.Source) -> dict[str, str]:
        return fl.Loader(source, batch_size=1).plan.fingerprints

    zeros, ones = np.zeros((4, 3), np.uint8), np.ones((4, 3), np.uint8)
    found = [prints(fl.array(zeros)), prints(fl.array(ones)), prints(fl.array(zeros, labels=[0, 1, 2, 3]))]
    assert len({entry["values"] for entry in found}) == 3
    assert prints(fl.array(zeros.copy())) == found[0]
