"""NVIDIA DALI on the CPU: its decoder that knows the crop, and everything after it inside one pipeline.

The same pipeline in full, antialias included; DALI decodes only the rows and columns around the crop. Its iterator for
torch copies each batch, which costs nothing that can be measured against looking at DALI's own memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.harness import Window
from bench.peers.peer import Peer
from bench.peers.venvs import Environment
from bench.pipeline import AREA, ASPECT, BATCH, MEAN_255, SIDE, STD_255, WORKERS, Task

ENVIRONMENT = Environment("dali", ("nvidia-dali-cuda120",))


def _pipeline(task: Task) -> Any:
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None, seed=1, prefetch_queue_depth=2)  # type: ignore[untyped-decorator]
    def training() -> Any:
        encoded, label = fn.readers.file(
            files=task.paths, labels=list(range(len(task.paths))), random_shuffle=True, initial_fill=1000
        )
        pixels = fn.decoders.image_random_crop(
            encoded, device="cpu", output_type=types.RGB, random_area=AREA, random_aspect_ratio=ASPECT, num_attempts=10
        )
        pixels = fn.resize(pixels, resize_x=SIDE, resize_y=SIDE, interp_type=types.INTERP_LINEAR, antialias=True)
        pixels = fn.crop_mirror_normalize(
            pixels,
            dtype=types.FLOAT,
            output_layout="CHW",
            mirror=fn.random.coin_flip(probability=0.5),
            mean=MEAN_255,
            std=STD_255,
        )
        return pixels, label

    pipeline = training()
    pipeline.build()
    return pipeline


def _contend(task: Task) -> Window:
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    def batches() -> Iterator[Any]:
        for (outputs,) in DALIGenericIterator([_pipeline(task)], ["pixels", "label"], size=-1):
            yield outputs["pixels"]

    return task.measure(batches)


DALI = Peer("dali", "DALI, CPU", "", _contend, ENVIRONMENT)
