"""SPDL: Python threads around FFmpeg, which decodes, crops, resizes and flips outside the interpreter's lock.

FFmpeg's bilinear scaler widens its filter when it shrinks, so the result is antialiased; the crop is that of the others
but without their ten attempts. `spdl-torchvision` runs torchvision's ops on SPDL's threads instead.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from bench.harness import Window
from bench.peers.peer import Peer
from bench.peers.venvs import Environment
from bench.pipeline import AREA, ASPECT, BATCH, MEAN_255, SIDE, STD_255, WORKERS, Task

ENVIRONMENT = Environment("spdl", ("spdl", "spdl-io"), system_packages=("ffmpeg",))


def _filter() -> str:
    """A random crop, resized and perhaps flipped, in FFmpeg's words."""
    area = random.uniform(*AREA)
    aspect = math.exp(random.uniform(*map(math.log, ASPECT)))
    crop = (
        f"crop=w='min(iw,sqrt(iw*ih*{area * aspect:.5f}))':h='min(ih,sqrt(iw*ih*{area / aspect:.5f}))'"
        f":x='(iw-ow)*{random.random():.4f}':y='(ih-oh)*{random.random():.4f}':exact=1"
    )
    flip = ",hflip" if random.random() < 0.5 else ""
    return f"{crop},scale={SIDE}:{SIDE}:flags=bilinear{flip},format=pix_fmts=rgb24"


def _pipeline(task: Task, prepare: Callable[[list[str]], Any]) -> Iterator[Any]:
    from spdl.pipeline import PipelineBuilder

    paths = [task.paths[index] for index in task.order()]
    builder = PipelineBuilder().add_source(paths).aggregate(BATCH).pipe(prepare, concurrency=WORKERS).add_sink(2)
    pipeline = builder.build(num_threads=WORKERS)
    with pipeline.auto_stop():
        yield from pipeline.get_iterator(timeout=60)


def _contend(task: Task) -> Window:
    import spdl.io
    import torch

    torch.set_num_threads(1)
    mean, factor = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN_255, [1 / value for value in STD_255]))

    def prepare(paths: list[str]) -> Any:
        frames = [spdl.io.decode_packets(spdl.io.demux_image(path), filter_desc=_filter()) for path in paths]
        pixels = spdl.io.to_torch(spdl.io.convert_frames(frames)).permute(0, 3, 1, 2)
        return pixels.to(torch.float32, memory_format=torch.contiguous_format).sub_(mean).mul_(factor)

    return task.measure(lambda: _pipeline(task, prepare))


def _contend_with_torchvision(task: Task) -> Window:
    import torch

    from bench.peers import torchvision_sample

    def prepare(paths: list[str]) -> Any:
        return torch.stack([torchvision_sample.from_path(path) for path in paths])

    return task.measure(lambda: _pipeline(task, prepare))


FFMPEG = Peer("spdl", "SPDL", "FFmpeg's decoder and scaler, crop drawn once", _contend, ENVIRONMENT)
TORCHVISION = Peer("spdl-torchvision", "SPDL, torchvision", "", _contend_with_torchvision, ENVIRONMENT)
