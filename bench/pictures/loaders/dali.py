"""NVIDIA DALI on the CPU. Where it can, its decoder decodes the rows and columns around the crop only.

Its colour op works with factors on bytes, like those of the others, but turns the hue by a matrix. Masks are decoded as
pictures and resized to the nearest pixel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

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
from bench.pipeline import AREA, ASPECT, MEAN_255, STD_255

RGB = {"device": "cpu", "output_type": types.RGB, "adjust_orientation": False}
BILINEAR = {"interp_type": types.INTERP_LINEAR, "antialias": True}


def _normalised(pixels: Any, side: int, **options: Any) -> Any:
    return fn.crop_mirror_normalize(
        pixels, dtype=types.FLOAT, output_layout="CHW", crop=(side, side), mean=MEAN_255, std=STD_255, **options
    )


def _colours(pixels: Any) -> Any:
    factors = {
        name: fn.random.uniform(range=(1 - JITTER[name], 1 + JITTER[name]))
        for name in ("brightness", "contrast", "saturation")
    }
    turn = fn.random.uniform(range=(-360 * JITTER["hue"], 360 * JITTER["hue"]))
    return fn.color_twist(pixels, hue=turn, **factors)


@pipeline_def  # type: ignore[untyped-decorator]
def _pipeline(task: Task) -> Any:
    encoded, number = fn.readers.file(
        files=task.paths, labels=list(range(len(task.paths))), random_shuffle=not task.is_checked, name="files"
    )
    flip = fn.random.coin_flip(probability=0.5)
    if task.pipeline == VALIDATION or (task.is_checked and task.pipeline != SEGMENTATION):
        pixels = fn.decoders.image(encoded, **RGB)
        return _normalised(fn.resize(pixels, resize_shorter=SHORT_SIDE, **BILINEAR), SIDE), number
    pixels = fn.decoders.image_random_crop(
        encoded, **RGB, random_area=AREA, random_aspect_ratio=ASPECT, num_attempts=10
    )
    pixels = fn.resize(pixels, resize_x=SIDE, resize_y=SIDE, **BILINEAR)
    return _normalised(_colours(pixels) if task.pipeline == COLOUR else pixels, SIDE, mirror=flip), number


@pipeline_def  # type: ignore[untyped-decorator]
def _with_masks(task: Task) -> Any:
    options = {"labels": list(range(len(task.paths))), "random_shuffle": not task.is_checked, "seed": 7}
    encoded, number = fn.readers.file(files=task.paths, name="files", **options)
    # The same seed gives the same order.
    encoded_mask, _ = fn.readers.file(files=task.mask_paths, **options)
    pixels = fn.decoders.image(encoded, **RGB)
    mask = fn.decoders.image(encoded_mask, **{**RGB, "output_type": types.GRAY})
    pixels = fn.resize(pixels, resize_shorter=MASK_SHORT_SIDE, **BILINEAR)
    mask = fn.resize(mask, resize_shorter=MASK_SHORT_SIDE, interp_type=types.INTERP_NN)
    place: dict[str, Any] = {}
    if not task.is_checked:
        place = {"crop_pos_x": fn.random.uniform(range=(0, 1)), "crop_pos_y": fn.random.uniform(range=(0, 1))}
        place["mirror"] = fn.random.coin_flip(probability=0.5)
    labels = fn.crop_mirror_normalize(
        mask, dtype=types.UINT8, output_layout="CHW", crop=(MASK_SIDE, MASK_SIDE), mean=[0.0], std=[1.0], **place
    )
    return _normalised(pixels, MASK_SIDE, **place), labels, number


class _Loader:
    def __init__(self, task: Task) -> None:
        self.names = ["pixels", "labels", "number"] if task.pipeline == SEGMENTATION else ["pixels", "number"]
        make = _with_masks if task.pipeline == SEGMENTATION else _pipeline
        options = {"batch_size": BATCH, "num_threads": task.threads, "device_id": None, "seed": 1}
        pipeline = make(task, prefetch_queue_depth=2, **options)
        pipeline.build()
        self.batches = DALIGenericIterator(
            [pipeline], self.names, reader_name="files", auto_reset=True, last_batch_policy=LastBatchPolicy.PARTIAL
        )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for (outputs,) in self.batches:
            *fields, number = (outputs[name] for name in self.names)
            # A mask has one channel.
            yield fields[0], *(field[:, 0] for field in fields[1:]), number


def build(task: Task) -> _Loader:
    """The loader of a task."""
    return _Loader(task)
