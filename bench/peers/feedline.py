"""Feedline itself, in each of the ways in which it can meet the same pictures.

Without a seek index; with an index that is built while the first epoch runs; with an index built before; with the
pictures packed as they are; with pixels packed. The pipeline and its results are the same in all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.harness import ContenderFailed, Window, reason
from bench.peers.peer import Peer
from bench.pipeline import BATCH, SIDE, WORKERS, Task

CACHE = "FEEDLINE_CACHE"


def loader_of(source: Any, **options: Any) -> Any:
    import feedline as fl
    from feedline import ops

    chain = [ops.DecodeImage(), ops.RandomResizedCrop(SIDE), ops.RandomHorizontalFlip(), ops.Normalize()]
    return fl.Loader(source, chain, shuffle=True, **{"batch_size": BATCH, "num_workers": WORKERS, **options})


def endless(loader: Any) -> Iterator[Any]:
    while True:
        for batch in loader:
            yield batch["image"]


def _contend_without_index(task: Task) -> Window:
    import feedline as fl

    return task.measure(lambda: endless(loader_of(fl.folder(str(task.folder)), tuning=fl.tuning(seek_index="never"))))


def _contend_building(task: Task) -> Window:
    import feedline as fl

    def first_epochs() -> Iterator[Any]:
        for _ in range(task.epochs):
            with tempfile.TemporaryDirectory(prefix="feedline-bench-") as cache:
                os.environ[CACHE] = cache
                with loader_of(fl.folder(str(task.folder)), tuning=fl.tuning(seek_index="auto")) as loader:
                    for batch in loader:
                        yield batch["image"]

    return task.measure_from_the_start(first_epochs)


def _contend_with_index(task: Task) -> Window:
    import feedline as fl

    os.environ[CACHE] = str(task.work)
    return task.measure(lambda: endless(loader_of(fl.folder(str(task.folder)), tuning=fl.tuning(seek_index="auto"))))


def _contend_packed(task: Task) -> Window:
    import feedline as fl

    return task.measure(lambda: endless(loader_of(fl.tar(str(task.work / "*.tar")))))


def _command(*arguments: str, cache: Path | None = None) -> None:
    environment = {**os.environ, CACHE: str(cache)} if cache else None
    command = [sys.executable, "-m", "feedline", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ended.returncode:
        raise ContenderFailed(reason(ended.stderr))


def _index(task: Task) -> None:
    _command("index", str(task.folder), cache=task.work)


def _pack(task: Task) -> None:
    _command("pack", str(task.folder), str(task.work))


def _pack_pixels(task: Task) -> None:
    _command("pack", str(task.folder), str(task.work), "--pixels")


WITHOUT_INDEX = Peer("feedline-region", "Feedline, no index (region decode)", "", _contend_without_index)
BUILDING = Peer(
    "feedline-building",
    "Feedline, building the index",
    "the first epoch and nothing else, start and end of the loader included",
    _contend_building,
)
WITH_INDEX = Peer("feedline-index", "Feedline, with index", "", _contend_with_index, convert=_index)
PACKED = Peer("feedline-packed", "Feedline, packed as they are", "tar shards", _contend_packed, convert=_pack)
PIXELS = Peer(
    "feedline-pixels", "Feedline, packed pixels", "reads pixels, decodes nothing", _contend_packed, convert=_pack_pixels
)
