"""datago: a Rust loader that decodes, crops and resizes in threads, and hands over single pictures.

It has no random crop: it crops the middle to the nearest shape it knows, here a square, and resizes that. So it does
less than the others: no draw, and always the largest part. Flip, normalisation and batching are done in torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from bench.harness import Window
from bench.peers.peer import Peer
from bench.peers.venvs import Environment
from bench.pipeline import BATCH, MEAN_255, SIDE, STD_255, WORKERS, Task

ENVIRONMENT = Environment("datago", ("datago",))


def _samples(task: Task) -> Iterator[Any]:
    from datago import DatagoClient

    config = {
        "source_type": "file",
        "source_config": {"root_path": str(task.folder), "random_sampling": True, "rank": 0, "world_size": 1},
        "image_config": {
            "crop_and_resize": True,
            "default_image_size": SIDE,
            "downsampling_ratio": 32,
            "min_aspect_ratio": 1.0,
            "max_aspect_ratio": 1.0,
            "pre_encode_images": False,
            "image_to_rgb8": True,
        },
        "limit": len(task.paths),
        "prefetch_buffer_size": 2 * BATCH,
        "samples_buffer_size": 2 * BATCH,
    }
    while True:
        client = DatagoClient(json.dumps(config))
        client.start()
        while (sample := client.get_sample()) is not None:
            yield sample.image.to_numpy_array()


def _contend(task: Task) -> Window:
    os.environ["DATAGO_MAX_TASKS"] = str(WORKERS)
    import torch

    torch.set_num_threads(1)
    mean, factor = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN_255, [1 / value for value in STD_255]))

    def batches() -> Iterator[Any]:
        pending: list[Any] = []
        for pixels in _samples(task):
            pending.append(torch.from_numpy(pixels))
            if len(pending) == BATCH:
                batch = torch.stack(pending).permute(0, 3, 1, 2)
                flipped = torch.rand(BATCH) < 0.5
                numbers = batch.to(torch.float32, memory_format=torch.contiguous_format).sub_(mean).mul_(factor)
                numbers[flipped] = numbers[flipped].flip(3)
                yield numbers
                pending = []

    return task.measure(batches)


DATAGO = Peer("datago", "datago", "no random crop: the middle square of each picture", _contend, ENVIRONMENT)
