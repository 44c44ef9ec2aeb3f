"""FFCV: a file of its own, threads in code compiled at the first batch.

`ffcv-jpeg` holds JPEGs of quality 90 that FFCV encodes anew from the pixels: they are not the given files, chroma is
halved in both directions, and they are decoded whole with the fast, less exact inverse DCT. `ffcv-raw` holds pixels, so
nothing is decoded at all. Crops are resized by area averaging, which is antialiased but not bilinear. Batches keep the
channels last.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.harness import Window
from bench.peers.peer import Peer
from bench.peers.venvs import Environment
from bench.pipeline import AREA, ASPECT, BATCH, MEAN_255, SIDE, STD_255, WORKERS, Task

ENVIRONMENT = Environment(
    "ffcv", ("ffcv",), system_packages=("libopencv-dev", "libturbojpeg0-dev", "pkg-config", "g++")
)
FILE = "pictures.beton"
SMALLEST_PAGE_BITS = 23


def _convert(task: Task, mode: str) -> None:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from PIL import Image

    class Pictures:
        def __len__(self) -> int:
            return len(task.paths)

        def __getitem__(self, index: int) -> Any:
            return Image.open(task.paths[index]).convert("RGB"), index

    sizes = [Image.open(path).size for path in task.paths]
    page_bytes = 1 << max(SMALLEST_PAGE_BITS, max(3 * width * height for width, height in sizes).bit_length())
    fields = {"image": RGBImageField(write_mode=mode, jpeg_quality=90), "label": IntField()}
    writer = DatasetWriter(str(task.work / FILE), fields, num_workers=WORKERS, page_size=page_bytes)
    writer.from_indexed_dataset(Pictures(), chunksize=50)


def _contend(task: Task) -> Window:
    import torch
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

    torch.set_num_threads(1)
    image = [
        RandomResizedCropRGBImageDecoder((SIDE, SIDE), scale=AREA, ratio=ASPECT),
        RandomHorizontalFlip(),
        NormalizeImage(np.array(MEAN_255), np.array(STD_255), np.float32),
        ToTensor(),
        ToTorchImage(channels_last=True, convert_back_int16=False),
    ]
    loader = Loader(
        str(task.work / FILE),
        batch_size=BATCH,
        num_workers=WORKERS,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        indices=np.tile(np.arange(len(task.paths)), task.all_epochs),
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
        batches_ahead=2,
    )
    return task.measure(lambda: (pixels for pixels, _ in loader))


def _peer(name: str, title: str, differs: str, mode: str) -> Peer:
    return Peer(name, title, f"{differs}; area averaging", _contend, ENVIRONMENT, partial(_convert, mode=mode))


JPEG = _peer("ffcv-jpeg", "FFCV, JPEG", "files encoded anew at quality 90 with chroma halved, fast inverse DCT", "jpg")
RAW = _peer("ffcv-raw", "FFCV, pixels", "reads pixels, decodes nothing", "raw")
