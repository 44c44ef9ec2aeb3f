"""MosaicML Streaming: shards of its own format (MDS), two worker processes, torchvision's ops.

The pictures are copied into shards unchanged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.harness import Window
from bench.peers.peer import Peer
from bench.peers.venvs import Environment
from bench.pipeline import BATCH, WORKERS, Task

ENVIRONMENT = Environment("mosaic-streaming", ("mosaicml-streaming",))
SHARD_BYTES = 1 << 25


def _convert(task: Task) -> None:
    from streaming import MDSWriter

    columns = {"jpeg": "bytes", "label": "int"}
    with MDSWriter(out=str(task.work), columns=columns, size_limit=SHARD_BYTES) as writer:
        for index, path in enumerate(task.paths):
            writer.write({"jpeg": Path(path).read_bytes(), "label": index})


def _contend(task: Task) -> Window:
    from streaming import StreamingDataLoader, StreamingDataset

    from bench.peers import torchvision_sample

    class Pictures(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            sample = super().__getitem__(index)
            return torchvision_sample.from_bytes(sample["jpeg"]), sample["label"]

    pictures = Pictures(local=str(task.work), shuffle=True, batch_size=BATCH, epoch_size=len(task.order()))
    loader = StreamingDataLoader(pictures, batch_size=BATCH, num_workers=WORKERS)
    return task.measure(lambda: (pixels for pixels, _ in loader))


MOSAIC = Peer("mosaic-streaming", "MosaicML Streaming", "MDS shards", _contend, ENVIRONMENT, _convert)
