"""Loader overhead alone: 224x224x3 bytes per sample, no ops, batch 256, two workers.

`python -m bench.arrays [--samples 4096] [--runs 3]` races `fl.array` in memory against a plain two-thread memcpy
gather, `fl.array` of a file against a plain two-thread pread gather, and both against torch DataLoader over a memmap.
Before the measurement, all samples of an epoch are compared with the source.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness

SHAPE, BATCH, WORKERS = (224, 224, 3), 256, 2
SAMPLE_BYTES = int(np.prod(SHAPE))
EPOCHS_COUNTED = 6


def _check(batches: Any, source: np.ndarray[Any, Any]) -> None:
    seen = np.zeros(len(source), dtype=bool)
    for data, index in batches:
        assert np.array_equal(data, source[index]), "a sample differs from its source"
        seen[index] = True
    assert seen.all(), "a sample is missing"


def _feedline(path: str, kind: str) -> None:
    import feedline as fl

    source = np.load(path) if kind == "memory" else np.load(path, mmap_mode="r")
    loader = fl.Loader(
        fl.array(source if kind == "memory" else path), batch_size=BATCH, shuffle=True, num_workers=WORKERS
    )
    _check(((batch["data"], batch["index"]) for batch in loader), source)

    def build() -> Iterator[Any]:
        while True:
            yield from loader

    count = EPOCHS_COUNTED * len(source)
    harness.report(harness.measure(build, lambda batch: len(batch["index"]), len(source), count))


def _gather(path: str, kind: str) -> None:
    """The baseline: two threads fill a ring of buffers in random order."""
    source = np.load(path) if kind == "memory" else np.load(path, mmap_mode="r")
    offset = Path(path).stat().st_size - source.nbytes
    file = os.open(path, os.O_RDONLY)
    ring = [np.empty((BATCH, *SHAPE), np.uint8) for _ in range(4)]
    generator = np.random.default_rng(0)

    def fill(number: int, ids: Any) -> Any:
        buffer = ring[number % len(ring)]
        if kind == "memory":
            np.take(source, ids, axis=0, out=buffer, mode="clip")
        else:
            for slot, index in enumerate(ids):
                os.preadv(file, [buffer[slot].data], offset + int(index) * SAMPLE_BYTES)
        return buffer

    def build() -> Iterator[Any]:
        number = 0
        with ThreadPoolExecutor(WORKERS) as pool:
            pending: list[Any] = []
            while True:
                order = generator.permutation(len(source))
                for first in range(0, len(source) - BATCH + 1, BATCH):
                    pending.append(pool.submit(fill, number, order[first : first + BATCH]))
                    number += 1
                    if len(pending) == len(ring) - 1:
                        yield pending.pop(0).result()

    harness.report(harness.measure(build, len, len(source), EPOCHS_COUNTED * len(source)))


def _torch(path: str) -> None:
    import torch
    from torch.utils.data import DataLoader, Dataset

    source = np.load(path, mmap_mode="r")

    class Rows(Dataset[Any]):
        def __len__(self) -> int:
            return len(source)

        def __getitem__(self, index: int) -> Any:
            return torch.from_numpy(np.array(source[index])), index

    def build() -> Iterator[Any]:
        loader = DataLoader(Rows(), BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)
        while True:
            yield from loader

    harness.report(harness.measure(build, lambda batch: len(batch[1]), len(source), 2 * len(source)))


CONTENDERS = {
    "array-memory": lambda path: _feedline(path, "memory"),
    "memcpy-gather": lambda path: _gather(path, "memory"),
    "array-file": lambda path: _feedline(path, "file"),
    "pread-gather": lambda path: _gather(path, "file"),
    "torch-memmap": _torch,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="feedline-bench-") as folder:
        path = f"{folder}/rows.npy"
        rows = np.random.default_rng(0).integers(0, 256, (arguments.samples, *SHAPE), dtype=np.uint8)
        np.save(path, rows)
        del rows
        results = harness.race(list(CONTENDERS), [path], arguments.runs)
    rate = {name: result["samples_per_second"] for name, result in results.items()}
    ratios = {
        "array in memory / memcpy gather (at least 0.8)": rate["array-memory"] / rate["memcpy-gather"],
        "array of a file / pread gather (at least 0.8)": rate["array-file"] / rate["pread-gather"],
        "array of a file / torch over a memmap (at least 5)": rate["array-file"] / rate["torch-memmap"],
        "array in memory / torch over a memmap (at least 5)": rate["array-memory"] / rate["torch-memmap"],
    }
    title = f"{'x'.join(map(str, SHAPE))} uint8, no ops, batch {BATCH}, {WORKERS} workers"
    harness.finish("arrays", title, results, ratios, samples=arguments.samples)


if __name__ == "__main__":
    main()
