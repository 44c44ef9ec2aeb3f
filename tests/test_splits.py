"""Labels and names of a source's samples, and parts of it: stratified splits and folds."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import natural, save

import feedline as fl
from feedline import ops

CLASSES = ("ant", "bee", "cat")


def unbalanced(count: int = 120) -> fl.Source:
    """Give samples: 90 % of class 0, 8 % of class 1 and the rest of class 2."""
    labels = np.repeat([0, 1, 2], [count * 9 // 10, count * 8 // 100, count - count * 9 // 10 - count * 8 // 100])
    return fl.array(np.arange(count), labels=np.random.default_rng(0).permutation(labels))


def counts(source: fl.Source) -> Counter[int]:
    assert isinstance(source.labels, np.ndarray), "one array, because all labels have the same shape"
    return Counter(source.labels.tolist())


def test_labels_and_keys_are_those_of_the_batches(pictures: Callable[..., Path], tmp_path: Path) -> None:
    save(tmp_path / "a.png", natural(8, 8))
    sources = [
        fl.folder(pictures(9, classes=CLASSES)),
        fl.folder(pictures(9, classes=CLASSES, name="again")).subset([7, 2, 5]),
        fl.files({"image": [tmp_path / "a.png"] * 3}, labels=[[0.5, 1], [2, 3], [4, 5]]),
    ]
    for source in sources:
        chain = [ops.DecodeImage(), ops.Resize((8, 8))]
        (batch,) = list(fl.Loader(source, chain, batch_size=len(source), fields=("key", "label", "index")))
        assert source.keys == batch[0] == [source.key(index) for index in source.indices]
        assert np.array_equal(source.labels, batch[1])
        assert source.indices == batch[2].tolist()


def test_labels_of_shards_are_those_of_the_folder(pictures: Callable[..., Path], tmp_path: Path) -> None:
    root = pictures(9, classes=CLASSES)
    assert fl._feedline.run_cli(["feedline", "pack", str(root), str(tmp_path / "shards")]) == 0
    packed, plain = fl.tar(tmp_path / "shards"), fl.folder(root)
    assert sorted(packed.labels.tolist()) == sorted(plain.labels.tolist())  # type: ignore[union-attr]
    assert packed.classes == plain.classes


def test_a_source_without_labels_says_so() -> None:
    assert fl.synthetic(3, (2,)).labels is None
    assert fl.array(np.zeros((3, 2))).labels is None


def test_names_are_labels_whose_classes_are_sorted(tmp_path: Path) -> None:
    names = ["dog", "cat", "ant", "dog"]
    np.save(tmp_path / "x.npy", np.arange(4))
    for labels in (names, np.array(names), tuple(names)):
        source = fl.array(tmp_path / "x.npy", labels=labels)
        assert source.classes == ["ant", "cat", "dog"]
        (batch,) = list(fl.Loader(source, batch_size=4))
        assert [source.classes[label] for label in batch["label"]] == names
        again = fl.Plan.from_toml(fl.Loader(source, batch_size=4).plan.to_toml()).source
        assert (again.classes, again.labels.tolist()) == (source.classes, [2, 1, 0, 2])  # type: ignore[union-attr]
        assert pickle.loads(pickle.dumps(source)).classes == source.classes
    drawn = fl.Loader(fl.array(np.arange(4), labels=names), batch_size=900, sampler=fl.class_balanced(900))
    (batch,) = list(drawn)
    assert all(200 < count < 400 for count in Counter(batch["label"].tolist()).values())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_stratified_split_gives_each_part_its_share_of_every_class(seed: int) -> None:
    source = unbalanced()
    parts = source.split({"train": 0.7, "val": 0.2, "test": 0.1}, seed=seed, by="label")
    assert sorted(index for part in parts.values() for index in part.indices) == source.indices
    for part, fraction in zip(parts.values(), (0.7, 0.2, 0.1), strict=True):
        for label, count in counts(source).items():
            assert abs(counts(part)[label] - fraction * count) < 1, (seed, label)
    again = source.split({"train": 0.7, "val": 0.2, "test": 0.1}, seed=seed, by="label")
    assert [part.indices for part in again.values()] == [part.indices for part in parts.values()]
    assert source.split({"train": 0.7}, seed=seed + 1, by="label")["train"].indices != parts["train"].indices


@pytest.mark.parametrize("by", [None, "label"])
@pytest.mark.parametrize("k", [2, 3, 7])
def test_each_sample_validates_in_one_fold_and_trains_in_all_others(k: int, by: Any) -> None:
    source = unbalanced()
    folds = source.kfold(k, seed=4, by=by)
    assert len(folds) == k
    assert sorted(index for _, val in folds for index in val.indices) == source.indices
    for train, val in folds:
        assert sorted(train.indices + val.indices) == source.indices
        if by == "label":
            assert all(abs(counts(val)[label] - count / k) < 1 for label, count in counts(source).items())
    assert [val.indices for _, val in source.kfold(k, seed=4, by=by)] == [val.indices for _, val in folds]


@pytest.mark.parametrize("by", [None, "label"])
def test_folds_are_written_into_plans(pictures: Callable[..., Path], by: Any) -> None:
    for source in fl.folder(pictures(20)).kfold(3, by=by)[1]:
        plan = fl.Loader(source, [ops.DecodeImage(), ops.Resize((8, 8))], batch_size=4).plan
        assert fl.Plan.from_toml(plan.to_toml()).source.indices == source.indices


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: unbalanced().split({"a": 0.5}, by="class"), r"split\(\): by is 'class'; it must be \"label\""),  # type: ignore[arg-type]
        (lambda: unbalanced().split({"a": 0.5}, seed=-1), "seed is -1"),
        (lambda: unbalanced().kfold(1), "k is 1; it must be a whole number from 2 to 120, the number of samples"),
        (lambda: unbalanced().kfold(121), "k is 121"),
        (lambda: unbalanced().kfold(2.5), "k is 2.5"),  # type: ignore[arg-type]
        (lambda: fl.synthetic(9, (2,)).kfold(3, by="label"), "sample 0 has neither"),
        (lambda: fl.array(np.zeros((4, 2)), labels=np.zeros((4, 2))).split({"a": 0.5}, by="label"), "has neither"),
    ],
)
def test_invalid_divisions_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(fl.SourceError, match=words):
        make()


def test_arrays_of_pictures_have_the_field_that_image_ops_take() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (4, 9, 9, 3), dtype=np.uint8)
    (batch,) = list(fl.Loader(fl.array(pictures), [ops.CenterCrop(5)], batch_size=4))
    assert np.array_equal(batch["image"], pictures[:, 2:7, 2:7])
    named = fl.array(pictures, field="scan")
    (batch,) = list(fl.Loader(named, [ops.CenterCrop(5, on="scan")], batch_size=4))
    assert np.array_equal(batch["scan"], pictures[:, 2:7, 2:7])
    for data in (pictures.astype(np.float32), pictures[..., :2], pictures[..., 0]):
        assert fl.array(data).fields == ["data"]
    with pytest.raises(fl.SourceError, match='a field cannot be called "index"'):
        fl.array(pictures, field="index")


def test_a_named_field_is_written_into_plans(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 6, 6, 3), np.uint8))
    for field, expected in ((None, "image"), ("scan", "scan")):
        source = fl.array(tmp_path / "x.npy", field=field)
        text = fl.Loader(source, batch_size=2).plan.to_toml()
        assert ("field = " in text) == (field is not None)
        assert fl.Plan.from_toml(text).source.fields == [expected]
