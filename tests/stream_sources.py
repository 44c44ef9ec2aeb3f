"""Cases of ``streams.py`` for every kind of source, each with the simplest chain that delivers all of its fields."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from making import DTYPES
from stream_case import case
from stream_inputs import JPEGS, Inputs, numbers

import feedline as fl
from feedline import ops

BOTH = ("image", "mask")
CROPS = [ops.DecodeImage(), ops.RandomResizedCrop(16)]
PICTURES = [ops.DecodeImage(), ops.Resize((16, 20)), ops.RandomHorizontalFlip()]


@case()
def folder(inputs: Inputs, **options: Any) -> fl.Loader:
    """Read JPEGs with classes, in the order of their names."""
    return fl.Loader(fl.folder(inputs.jpegs), PICTURES, batch_size=5, **options)


@case()
def folder_of_all_formats(inputs: Inputs, **options: Any) -> fl.Loader:
    """Decode whole pictures of every format, each with its own shape."""
    options |= {"ragged": ("image",), "fields": ("key", "image", "label", "index")}
    return fl.Loader(fl.folder(inputs.formats), [ops.DecodeImage()], batch_size=4, **options)


@case()
def folder_with_classes(inputs: Inputs, **options: Any) -> fl.Loader:
    """Use the class numbers of the user. One class has no pictures."""
    classes = ["class-02", "class-empty", "class-00", "class-01"]
    source = fl.folder(inputs.jpegs, classes=classes, extensions=(".jpg",), allow_empty=True)
    return fl.Loader(source, PICTURES, batch_size=5, shuffle=True, **options)


@case()
def files(inputs: Inputs, **options: Any) -> fl.Loader:
    """Take files with masks and labels of two numbers."""
    labels = np.arange(20, dtype=np.float32).reshape(10, 2) / 8
    chain = [ops.DecodeImage(on=BOTH), ops.Resize((16, 20), on=BOTH)]
    return fl.Loader(fl.files(inputs.masked, labels=labels), chain, batch_size=3, shuffle=True, **options)


@case()
def files_as_they_are(inputs: Inputs, **options: Any) -> fl.Loader:
    """Deliver stored bytes without any op."""
    options |= {"ragged": ("blob",), "fields": ("index", "blob")}
    return fl.Loader(fl.files({"blob": inputs.two_sizes}), batch_size=6, shuffle=True, **options)


@case()
def array_of_a_file(inputs: Inputs, **options: Any) -> fl.Loader:
    """Read a ``.npy`` file."""
    chain = [ops.RandomCrop(8, on="data")]
    return fl.Loader(
        fl.array(inputs.array, labels=range(20), field="data"), chain, batch_size=6, shuffle=True, **options
    )


@case()
def array_of_pictures(inputs: Inputs, **options: Any) -> fl.Loader:
    """Read pictures from a ``.npy`` file, whose classes have names."""
    labels = ["cat", "dog", "ant", "dog"] * 5
    return fl.Loader(fl.array(inputs.array, labels=labels), [ops.RandomCrop(8)], batch_size=6, shuffle=True, **options)


@case()
def split_by_label(inputs: Inputs, **options: Any) -> fl.Loader:
    """Take a part with the same share of each class."""
    source = fl.folder(inputs.jpegs).split({"train": 0.7}, seed=3, by="label")["train"]
    return fl.Loader(source, PICTURES, batch_size=5, shuffle=True, **options)


@case()
def fold(inputs: Inputs, **options: Any) -> fl.Loader:
    """Train on all folds but one."""
    return fl.Loader(fl.folder(inputs.jpegs).kfold(3, seed=1)[1][0], PICTURES, batch_size=5, **options)


@case({dtype: {"dtype": dtype} for dtype in DTYPES})
def array_in_memory(inputs: Inputs, dtype: str, **options: Any) -> fl.Loader:
    """Take an array of each element type, with labels of the same type."""
    data = numbers(11, 3, 2, dtype=dtype)
    return fl.Loader(fl.array(data, labels=data[:, 0]), batch_size=4, shuffle=True, **options)


@case()
def synthetic(inputs: Inputs, **options: Any) -> fl.Loader:
    """Make samples from their ids."""
    return fl.Loader(fl.synthetic(21, (5, 4, 3)), batch_size=5, shuffle=True, **options)


@case()
def tar_with_index(inputs: Inputs, **options: Any) -> fl.Loader:
    """Read packed shards, whose indexes hold classes and seek indexes."""
    return fl.Loader(fl.tar(inputs.shards / "*.tar"), CROPS, batch_size=5, shuffle=True, **options)


@case()
def tar_without_index(inputs: Inputs, **options: Any) -> fl.Loader:
    """List shards that others wrote, with pictures, masks, classes, texts and bytes."""
    chain = [ops.DecodeImage(on=BOTH), ops.Resize((16, 20), on=BOTH)]
    return fl.Loader(fl.tar(inputs.bare_shards), chain, batch_size=5, shuffle=True, ragged=("bin",), **options)


@case({ending.lstrip("."): {"ending": ending} for ending in (".nii", ".nii.gz", ".npy")})
def volumes(inputs: Inputs, ending: str, **options: Any) -> fl.Loader:
    """Read whole volumes of each format, brought to one size."""
    chain = [ops.PadTo((20, 18, 20))]
    return fl.Loader(fl.volumes(inputs.volumes[ending]), chain, batch_size=2, shuffle=True, **options)


@case()
def volumes_without_labels(inputs: Inputs, **options: Any) -> fl.Loader:
    """Take a list of images."""
    images = sorted(inputs.volumes[".nii"].glob("*/imaging.nii"))
    chain = [ops.PadTo((20, 18, 20), on="image")]
    return fl.Loader(fl.volumes(images), chain, batch_size=2, **options)


@case()
def subset(inputs: Inputs, **options: Any) -> fl.Loader:
    """Take some samples; they keep their ids."""
    source = fl.folder(inputs.jpegs).subset([1, 2, 3, 5, 8, 13, 21])
    return fl.Loader(source, PICTURES, batch_size=3, shuffle=True, **options)


@case({"train": {"part": "train"}, "val": {"part": "val"}})
def split(inputs: Inputs, part: str, **options: Any) -> fl.Loader:
    """Divide a source at random."""
    source = fl.folder(inputs.jpegs).split({"train": 0.7, "val": 0.3}, seed=4)[part]
    return fl.Loader(source, PICTURES, batch_size=3, shuffle=True, **options)


@case()
def plan_of_a_document(inputs: Inputs, num_workers: int, **options: Any) -> fl.Loader:
    """Read the plan from TOML; the number of workers is part of it."""
    chain = [ops.DecodeImage(), ops.RandomResizedCrop(16), ops.Normalize()]
    loader = fl.Loader(fl.folder(inputs.jpegs), chain, batch_size=5, shuffle=True, num_workers=num_workers, **options)
    assert len(loader.source) == JPEGS
    return fl.Loader.from_plan(fl.Plan.from_toml(loader.plan.to_toml()))


@case()
def later_epoch(inputs: Inputs, **options: Any) -> fl.Loader:
    """Start with an epoch number of more than 32 bits."""
    loader = fl.Loader(fl.folder(inputs.jpegs), CROPS, batch_size=5, shuffle=True, **options)
    loader.set_epoch(2**33 + 5)
    return loader


@case(like="tar_with_index")
def pickled(inputs: Inputs, **options: Any) -> fl.Loader:
    """Send a loader to another process, which opens the source itself."""
    loader = fl.Loader(fl.tar(inputs.shards / "*.tar"), CROPS, batch_size=5, shuffle=True, **options)
    copy: fl.Loader = pickle.loads(pickle.dumps(loader))
    return copy
