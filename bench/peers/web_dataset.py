"""WebDataset: tar shards read in sequence by two worker processes, with torchvision's ops.

The pictures are copied into shards unchanged. The order is shards shuffled, then a buffer: not a full shuffle.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.harness import Window
from bench.peers.peer import Peer
from bench.peers.venvs import Environment
from bench.pipeline import BATCH, WORKERS, Task

ENVIRONMENT = Environment("webdataset", ("webdataset",))
SHARDS = 4 * WORKERS


def _convert(task: Task) -> None:
    import webdataset

    pattern = str(task.work / "%04d.tar")
    with webdataset.ShardWriter(pattern, maxcount=-(-len(task.paths) // SHARDS), verbose=0) as writer:
        for index, path in enumerate(task.paths):
            writer.write({"__key__": f"{index:08}", "jpg": Path(path).read_bytes(), "cls": index})


def _contend(task: Task) -> Window:
    import torch
    import webdataset

    from bench.peers import torchvision_sample

    def collate(samples: list[Any]) -> Any:
        return torch.stack([pixels for (pixels,) in samples])

    shards = sorted(str(path) for path in task.work.glob("*.tar"))
    samples = webdataset.WebDataset(shards, shardshuffle=SHARDS).shuffle(200).to_tuple("jpg")
    prepared = samples.map_tuple(torchvision_sample.from_bytes).repeat().batched(BATCH, collation_fn=collate)
    loader = webdataset.WebLoader(prepared, batch_size=None, num_workers=WORKERS)
    return task.measure(lambda: loader)


WEBDATASET = Peer(
    "webdataset", "WebDataset", "tar shards; shuffled by shards and a buffer", _contend, ENVIRONMENT, _convert
)
