"""The pipeline with torchvision, for torch itself and for the peers that bring no picture ops of their own.

In: a JPEG as a path or as bytes. Out: a float32 tensor (3, 224, 224). This imports torch, so it is imported by
contenders only.
"""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

from bench.pipeline import AREA, ASPECT, MEAN, SIDE, STD

torch.set_num_threads(1)

_CROP = [v2.RandomResizedCrop(SIDE, scale=AREA, ratio=ASPECT, antialias=True), v2.RandomHorizontalFlip()]
_NUMBERS = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
_OF_TENSOR = v2.Compose([*_CROP, *_NUMBERS])
_OF_PILLOW = v2.Compose([*_CROP, v2.PILToTensor(), *_NUMBERS])


def from_path(path: str) -> Any:
    """Decoded by torchvision."""
    return _OF_TENSOR(decode_jpeg(read_file(path), mode=ImageReadMode.RGB))


def from_bytes(data: bytes) -> Any:
    """Decoded by torchvision."""
    return _OF_TENSOR(decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB))


def from_path_with_pillow(path: str) -> Any:
    """Decoded, cropped and resized by Pillow."""
    with open(path, "rb") as file:
        return _OF_PILLOW(Image.open(file).convert("RGB"))
