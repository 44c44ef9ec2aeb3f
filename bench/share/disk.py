"""Readers of one simulated hard disk: in sequence through a reservoir, or at random with some workers.

In: a folder of shards. Out: samples per second of each contender. Nothing is decoded, so that the disk is the bound.
"""

from __future__ import annotations

import functools
import itertools
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from bench import harness

SEEK_MS, MB_PER_SECOND, BATCH = 8.0, 150.0, 64
SAMPLES, PER_SHARD, CLASSES = 6000, 1500, 100
RESERVOIR, RANDOM_WORKERS = 0.1, (1, 2, 4)


def write_shards(pictures: Path, folder: Path) -> int:
    """Write shards of pictures, each as often as need be; gives their bytes."""
    files = sorted(path for path in pictures.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        raise SystemExit(f"no JPEG files in {pictures}")
    folder.mkdir()
    numbered = zip(range(SAMPLES), itertools.cycle(files), strict=False)
    for shard in range(SAMPLES // PER_SHARD):
        with tarfile.open(folder / f"{shard:03}.tar", "w") as tar:
            for number, path in itertools.islice(numbered, PER_SHARD):
                for ending, data in ("jpg", path.read_bytes()), ("cls", str(number % CLASSES).encode()):
                    member = tarfile.TarInfo(f"{number:06}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, BytesIO(data))
    return sum(path.stat().st_size for path in folder.glob("*.tar"))


def _run(readers: int, workers: int, warm: int, count: int, folder: str) -> None:
    import feedline as fl
    from feedline import testing

    disk = testing.slow_disk(folder, seek_ms=SEEK_MS, mb_per_second=MB_PER_SECOND)
    shuffle: Any = fl.reservoir(RESERVOIR, readers=readers) if readers else True
    loader = fl.Loader(fl.tar(disk), batch_size=BATCH, shuffle=shuffle, num_workers=workers, ragged=("image",))

    def build() -> Iterator[Any]:
        while True:
            yield from loader

    window = harness.measure(build, lambda batch: len(batch["index"]), warm, count)
    harness.report(window, reservoir=loader.snapshot()["reservoir"])


CONTENDERS = {
    "sequential-1": functools.partial(_run, 1, 1, SAMPLES // 2, SAMPLES),
    "sequential-4": functools.partial(_run, 4, 1, SAMPLES // 2, SAMPLES),
    **{f"random-{workers}": functools.partial(_run, 0, workers, 128, 1024) for workers in RANDOM_WORKERS},
}
