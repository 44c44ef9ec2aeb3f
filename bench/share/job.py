"""One training job: `python -m bench.share.job FOLDER KIND SOCKET BATCH STEP_MS EPOCHS`.

Says that it is ready, waits for a line, reads whole epochs with a simulated step, looks at one value of each page of
every batch, says what it got as one line of JSON, and waits for another line. KIND is `shared` (a node at SOCKET),
`own` (a loader of its own) or `torch` (a torch DataLoader of its own).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import feedline as fl
from bench.pipeline import MEAN, SIDE, STD, WORKERS
from feedline import ops

PAGE_VALUES = 4096 // 4


def chain() -> list[ops.Op]:
    """Give the ops of ImageNet training."""
    return [ops.DecodeImage(), ops.RandomResizedCrop(SIDE), ops.RandomHorizontalFlip(), ops.Normalize(MEAN, STD)]


def batches(folder: Path, kind: str, socket: str, batch: int) -> tuple[int, Iterable[Any]]:
    """Give the number of samples, and something that gives one epoch each time it is iterated."""
    if kind == "torch":
        from bench.share.torch_loader import loader

        return loader(folder, batch)
    options: dict[str, Any] = {"share": socket} if kind == "shared" else {"num_workers": WORKERS}
    source = fl.folder(str(folder))
    return len(source), fl.Loader(source, chain(), batch_size=batch, shuffle=True, **options)


def main() -> None:
    folder, kind, socket, batch, step_ms, epochs = sys.argv[1:7]
    samples, loader = batches(Path(folder), kind, socket, int(batch))
    print("ready", flush=True)
    sys.stdin.readline()
    began, stamps, looked = time.perf_counter(), [], 0.0
    stall = 0.0
    for _ in range(int(epochs)):
        ids: list[int] = []
        before = time.perf_counter()
        for one in loader:
            stall += time.perf_counter() - before
            image, index = (one["image"], one["index"]) if isinstance(one, dict) else one
            looked += float(np.asarray(image).reshape(-1)[::PAGE_VALUES].sum())
            ids.extend(np.asarray(index).tolist())
            fl.step(float(step_ms))
            before = time.perf_counter()
        if sorted(ids) != list(range(samples)):
            raise SystemExit(f"{len(ids)} samples, {len(set(ids))} different ones, of {samples}")
        stamps.append(time.perf_counter() - began)
    print(json.dumps({"samples": samples, "epoch_ends": stamps, "stall_seconds": stall, "looked": looked}), flush=True)
    # Attached until all are counted.
    sys.stdin.readline()


if __name__ == "__main__":
    main()
