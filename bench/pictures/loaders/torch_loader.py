"""torch's DataLoader with transforms v2: decoded by torchvision into tensors, or by Pillow into its pictures.

Two threads are two worker processes. With one, the main process prepares the samples, which takes the least CPU time.
torchvision does not read TIFF: there, Pillow decodes in both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

from bench.pictures.task import (
    BATCH,
    COLOUR,
    JITTER,
    MASK_SHORT_SIDE,
    MASK_SIDE,
    SEGMENTATION,
    SHORT_SIDE,
    SIDE,
    VALIDATION,
    Task,
)
from bench.pipeline import MEAN, STD

torch.set_num_threads(1)


def _decoded(path: str) -> Any:
    """The pixels of a file as a tensor."""
    if path.endswith((".tif", ".tiff")):
        return v2.functional.pil_to_tensor(_opened(path))
    return decode_image(read_file(path), mode=ImageReadMode.RGB)


def _opened(path: str) -> Any:
    """The picture of a file."""
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def _transforms(task: Task, has_pillow: bool) -> Any:
    numbers = [v2.PILToTensor()] if has_pillow else []
    scaled = v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)
    numbers += [v2.ToImage(), scaled, v2.Normalize(MEAN, STD)]
    if task.pipeline == SEGMENTATION:
        crop = v2.CenterCrop(MASK_SIDE) if task.is_checked else v2.RandomCrop(MASK_SIDE)
        flip = [] if task.is_checked else [v2.RandomHorizontalFlip()]
        return v2.Compose([v2.Resize(MASK_SHORT_SIDE, antialias=True), crop, *flip, *numbers])
    if task.pipeline == VALIDATION or task.is_checked:
        return v2.Compose([v2.Resize(SHORT_SIDE, antialias=True), v2.CenterCrop(SIDE), *numbers])
    colour = [v2.ColorJitter(**JITTER)] if task.pipeline == COLOUR else []
    return v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip(), *colour, *numbers])


class _Pictures(Dataset[Any]):
    def __init__(self, task: Task, has_pillow: bool) -> None:
        self.task, self.transforms = task, _transforms(task, has_pillow)
        self.read = _opened if has_pillow else _decoded

    def __len__(self) -> int:
        return len(self.task.paths)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        picture = self.read(self.task.paths[index])
        if self.task.pipeline != SEGMENTATION:
            return self.transforms(picture), index
        with open(self.task.mask_paths[index], "rb") as file:
            mask = tv_tensors.Mask(v2.functional.pil_to_tensor(Image.open(file)))
        image = tv_tensors.Image(picture) if isinstance(picture, torch.Tensor) else picture
        pixels, labels = self.transforms(image, mask)
        return pixels, labels[0], index


def build(task: Task, has_pillow: bool) -> Any:
    """The loader of a task."""
    dataset = _Pictures(task, has_pillow)
    is_kept = task.workers > 0
    return DataLoader(dataset, BATCH, shuffle=not task.is_checked, num_workers=task.workers, persistent_workers=is_kept)


build_torchvision = partial(build, has_pillow=False)
build_pillow = partial(build, has_pillow=True)
