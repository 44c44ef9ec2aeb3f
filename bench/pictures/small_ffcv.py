"""FFCV on pictures of 32 x 32: pixels in a file of its own, with its operations for CIFAR."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.pictures.small import BATCH, MEAN, PADDING, SIDE, STD, _measure, pixels

FILE = "small.beton"


def convert(argument: str) -> None:
    """Write the file of FFCV."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    given = json.loads(argument)
    pictures = pixels(given["samples"])

    class Pictures:
        def __len__(self) -> int:
            return len(pictures)

        def __getitem__(self, index: int) -> Any:
            return pictures[index], index

    fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
    DatasetWriter(str(Path(given["work"]) / FILE), fields, num_workers=2).from_indexed_dataset(Pictures())
    print("RESULT {}", flush=True)


def contend(argument: str) -> None:
    """Measure FFCV."""
    import torch
    from ffcv.fields.decoders import IntDecoder, SimpleRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import (
        NormalizeImage,
        RandomHorizontalFlip,
        RandomTranslate,
        Squeeze,
        ToTensor,
        ToTorchImage,
    )

    torch.set_num_threads(1)
    given = json.loads(argument)
    image = [
        SimpleRGBImageDecoder(),
        RandomHorizontalFlip(),
        RandomTranslate(padding=PADDING),
        NormalizeImage(255 * np.array(MEAN), 255 * np.array(STD), np.float32),
        ToTensor(),
        ToTorchImage(channels_last=False, convert_back_int16=False),
    ]
    loader = Loader(
        str(Path(given["work"]) / FILE),
        batch_size=BATCH,
        num_workers=given["threads"],
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )

    def batches() -> Iterator[Any]:
        while True:
            for images, _ in loader:
                yield images

    _measure(batches(), given["samples"], (3, SIDE, SIDE))
