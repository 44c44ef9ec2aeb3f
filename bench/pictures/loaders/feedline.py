"""Feedline on files, with the seek indexes of earlier epochs.

The EXIF orientation is not applied, because torchvision does not apply it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import feedline as fl
from bench.pictures.task import (
    BATCH,
    COLOUR,
    JITTER,
    MASK_SHORT_SIDE,
    MASK_SIDE,
    SEGMENTATION,
    SHORT_SIDE,
    SIDE,
    TRAINING,
    VALIDATION,
    Task,
)
from feedline import ops

BOTH = ("image", "mask")


class _Loader:
    def __init__(self, task: Task, fields: tuple[str, ...], **options: Any) -> None:
        self.fields, self.loader = fields, loader(task, **options)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.loader:
            yield tuple(batch[field] for field in (*self.fields, "index"))


def chain(task: Task) -> list[ops.Op]:
    """The ops of a pipeline."""
    if task.pipeline == SEGMENTATION:
        crop = ops.CenterCrop(MASK_SIDE, on=BOTH) if task.is_checked else ops.RandomCrop(MASK_SIDE, on=BOTH)
        flip = [] if task.is_checked else [ops.RandomHorizontalFlip(on=BOTH)]
        return [
            ops.DecodeImage(exif=False, on=BOTH),
            ops.Resize(MASK_SHORT_SIDE, on=BOTH),
            crop,
            *flip,
            ops.Normalize(),
        ]
    if task.pipeline == VALIDATION or task.is_checked:
        return [ops.DecodeImage(exif=False), ops.Resize(SHORT_SIDE), ops.CenterCrop(SIDE), ops.Normalize()]
    colour = {TRAINING: [], COLOUR: [ops.ColorJitter(**JITTER)]}[task.pipeline]
    return [
        ops.DecodeImage(exif=False),
        ops.RandomResizedCrop(SIDE),
        ops.RandomHorizontalFlip(),
        *colour,
        ops.Normalize(),
    ]


def source(task: Task) -> fl.Source:
    """The files of a task."""
    fields = {"image": task.paths}
    return fl.files({**fields, "mask": task.mask_paths} if task.pipeline == SEGMENTATION else fields)


def loader(task: Task, **options: Any) -> fl.Loader:
    """A loader of Feedline's own kind."""
    return fl.Loader(
        source(task), chain(task), batch_size=BATCH, shuffle=not task.is_checked, num_workers=task.threads, **options
    )


def build(task: Task) -> _Loader:
    """The loader of a task."""
    return _Loader(task, BOTH if task.pipeline == SEGMENTATION else ("image",))
