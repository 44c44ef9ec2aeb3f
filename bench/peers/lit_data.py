"""LitData: chunks of its own format, two worker processes, torchvision's ops.

The pictures are copied into chunks unchanged. LitData starts its workers' work anew in every epoch, so the pictures are
written as often as they are read in a run: an epoch here is as long as the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.harness import Window
from bench.peers.peer import Peer
from bench.peers.venvs import Environment
from bench.pipeline import BATCH, WORKERS, Task

ENVIRONMENT = Environment("litdata", ("litdata",))
CHUNK = "32MB"


def _row(path: str) -> dict[str, Any]:
    return {"jpeg": Path(path).read_bytes()}


def _convert(task: Task) -> None:
    import litdata

    paths = [task.paths[index] for index in task.order()]
    litdata.optimize(fn=_row, inputs=paths, output_dir=str(task.work), chunk_bytes=CHUNK, num_workers=WORKERS)


def _prepare(row: dict[str, Any]) -> Any:
    from bench.peers import torchvision_sample

    return torchvision_sample.from_bytes(row["jpeg"])


def _contend(task: Task) -> Window:
    from litdata import StreamingDataLoader, StreamingDataset

    pictures = StreamingDataset(str(task.work), shuffle=True, drop_last=False, transform=_prepare)
    return task.measure(lambda: StreamingDataLoader(pictures, batch_size=BATCH, num_workers=WORKERS))


LITDATA = Peer(
    "litdata",
    "LitData",
    "chunks; shuffled by chunks and within them",
    _contend,
    ENVIRONMENT,
    _convert,
    writes_every_epoch=True,
)
