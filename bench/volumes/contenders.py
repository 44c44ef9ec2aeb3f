"""Who takes part, each in a process of its own.

Online: prepared `.npy` volumes, the five random ops, batches of 2, two workers, after an epoch to warm up. Whole:
raw `.nii.gz` volumes, all eight ops, five epochs from the first byte.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness
from bench.volumes import mlperf

BATCH, WORKERS, EPOCHS = 2, 2, 5


def _images(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*_x.npy"))


def _label(image: Path) -> Path:
    return image.with_name(image.name.replace("_x.npy", "_y.npy"))


def _check(image: Any, label: Any) -> None:
    for volume in (image, label):
        assert tuple(volume.shape[-3:]) == mlperf.SIZE, "a batch has another shape"


def _chain() -> list[Any]:
    from feedline import ops

    return [ops.RandomBalancedCrop(128), ops.RandomFlip3d(), ops.Cast(), ops.RandomBrightness(), ops.GaussianNoise()]


def _measure(loader: Any, cases: int, epochs: int) -> harness.Window:
    """A warm-up epoch, then those that count."""

    def endless() -> Iterator[Any]:
        while True:
            yield from loader

    def check(batch: Any) -> None:
        _check(batch["image"], batch["label"])

    return harness.measure(endless, lambda batch: len(batch["image"]), cases, epochs * cases, check)


def _feedline_online(_: str, prepared: str, epochs: str) -> None:
    import os

    import feedline as fl

    with tempfile.TemporaryDirectory(prefix="feedline-bench-") as cache:
        os.environ["FEEDLINE_CACHE"] = cache
        source = fl.volumes(prepared)
        loader = fl.Loader(source, _chain(), batch_size=BATCH, shuffle=True, num_workers=WORKERS)

        window = _measure(loader, len(source), int(epochs))
        # The warm-up is the epoch in which foregrounds are searched. The separate measurement of the whole includes it.
        harness.report(window)


def _torch_loader(folder: str, in_order: bool) -> Any:
    from torch.utils.data import DataLoader, Dataset

    images = _images(folder)

    class Cases(Dataset[Any]):
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index: int) -> Any:
            image, label = mlperf.online(np.load(images[index]), np.load(_label(images[index])))
            return np.ascontiguousarray(image), np.ascontiguousarray(label)

    return DataLoader(
        Cases(), BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True, in_order=in_order
    )  # fmt: skip


def _torch_online(prepared: str, epochs: str, in_order: bool) -> None:
    loader = _torch_loader(prepared, in_order)
    count = len(_images(prepared))

    def build() -> Iterator[Any]:
        while True:
            yield from loader

    window = harness.measure(
        build, lambda batch: len(batch[0]), count, int(epochs) * count, lambda batch: _check(*batch)
    )  # fmt: skip
    harness.report(window)


def _monai_online(_: str, prepared: str, epochs: str) -> None:
    from monai import transforms as t
    from monai.data import DataLoader, Dataset

    both = ("image", "label")
    cases = [{"image": str(path), "label": str(_label(path))} for path in _images(prepared)]
    foreground = mlperf.OVERSAMPLING
    crop = t.RandCropByPosNegLabeld(
        both, label_key="label", spatial_size=mlperf.SIZE, pos=foreground, neg=1 - foreground, num_samples=1
    )  # fmt: skip
    flips = [t.RandFlipd(both, prob=mlperf.FLIP, spatial_axis=axis) for axis in range(3)]
    chain = t.Compose(
        [
            t.LoadImaged(both, reader="NumpyReader", ensure_channel_first=False, image_only=True),
            crop,
            *flips,
            t.CastToTyped(both, dtype=(np.float32, np.uint8)),
            t.RandScaleIntensityd("image", factors=mlperf.BRIGHTNESS, prob=mlperf.PROBABILITY),
            t.RandGaussianNoised("image", prob=mlperf.PROBABILITY, mean=0.0, std=mlperf.NOISE),
        ]
    )
    loader = DataLoader(
        Dataset(cases, chain), batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True
    )  # fmt: skip

    window = _measure(loader, len(cases), int(epochs))
    harness.report(window)


def _feedline_whole(raw: str, *_: str) -> None:
    import os

    import feedline as fl
    from feedline import ops

    with tempfile.TemporaryDirectory(prefix="feedline-bench-") as cache:
        os.environ["FEEDLINE_CACHE"] = cache

        def build() -> Iterator[Any]:
            chain = [ops.ResampleSpacing(), ops.ClipNormalize(), ops.PadTo(128), *_chain()]
            loader = fl.Loader(
                fl.volumes(raw), chain, batch_size=BATCH, shuffle=True, num_workers=WORKERS,
                memory_budget="4GB", cache=fl.cache(disk="40GB", form="resized"),
            )  # fmt: skip
            for _ in range(EPOCHS):
                yield from loader

        count = EPOCHS * len(list(Path(raw).iterdir()))
        window = harness.measure(
            build, lambda batch: len(batch["index"]), 0, count, lambda batch: _check(batch["image"], batch["label"])
        )  # fmt: skip
        harness.report(window)


def _torch_whole(raw: str, *_: str) -> None:
    cases = sorted(path for path in Path(raw).iterdir())
    target = Path(tempfile.mkdtemp(prefix="feedline-bench-"))

    def build() -> Iterator[Any]:
        with ProcessPoolExecutor(WORKERS) as pool:
            list(pool.map(mlperf.prepare_case, cases, [target] * len(cases)))
        loader = _torch_loader(str(target), in_order=True)
        for _ in range(EPOCHS):
            yield from loader

    try:
        window = harness.measure(
            build, lambda batch: len(batch[0]), 0, EPOCHS * len(cases), lambda batch: _check(*batch)
        )  # fmt: skip
        harness.report(window)
    finally:
        shutil.rmtree(target, ignore_errors=True)


CONTENDERS = {
    "volumes-feedline": _feedline_online,
    "volumes-torch": lambda _, prepared, epochs: _torch_online(prepared, epochs, in_order=True),
    "volumes-torch-unordered": lambda _, prepared, epochs: _torch_online(prepared, epochs, in_order=False),
    "volumes-monai": _monai_online,
    "volumes-whole-feedline": _feedline_whole,
    "volumes-whole-torch": _torch_whole,
}
ONLINE = [name for name in CONTENDERS if "whole" not in name]
WHOLE = [name for name in CONTENDERS if "whole" in name]
