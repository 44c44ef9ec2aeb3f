"""One training job: `python -m bench.share.job JSON`, the fields of a `Job` with its folder, socket and log.

Says that it is ready, waits for a line, reads whole epochs with a simulated step, looks at one value of each page of
every batch, says what it got as one line of JSON, and waits for another line. With a log it waits for nothing and
reads epoch after epoch until it is ended, and writes down when it got how many samples. KIND is `shared` (a node at the
socket), `own` (a loader of its own), `torch` (a torch DataLoader of its own) or `tensorsocket-WAY` (a consumer of
TensorSocket, whose ports are the socket).
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
from bench.share import work
from feedline import testing

PAGE_VALUES = 4096 // 4


def batches(given: dict[str, Any]) -> tuple[int, Iterable[Any]]:
    """Give the number of samples, and something that gives one epoch each time it is iterated."""
    kind, batch = given["kind"], given["batch"]
    if kind == "torch":
        from bench.share.torch_loader import loader

        return loader(Path(given["folder"]), batch)
    if kind.startswith("tensorsocket-"):
        from bench.share.tensor_socket_ends import consumer

        return 0, consumer(given["socket"], kind.removeprefix("tensorsocket-"), batch)
    over = work.source(given["work"], given["folder"])
    return len(over), work.loader(given["work"], over, kind, given["socket"], batch, given["weight"])


def look(batch: Any) -> tuple[Any, float]:
    """Give the ids of a batch, and the sum of one value of each of its pages."""
    values, index = (batch["image"], batch["index"]) if isinstance(batch, dict) else batch
    return np.asarray(index), float(np.asarray(values).reshape(-1)[::PAGE_VALUES].sum())


def read_epochs(loader: Iterable[Any], samples: int, given: dict[str, Any]) -> dict[str, Any]:
    """Read a number of epochs. Give the end of each, and the time spent waiting for batches."""
    began, stamps, looked, stall = time.perf_counter(), [], 0.0, 0.0
    for _ in range(given["epochs"]):
        ids: list[int] = []
        before = time.perf_counter()
        for one in loader:
            stall += time.perf_counter() - before
            index, seen = look(one)
            ids.extend(index.tolist())
            looked += seen
            testing.step(given["step_ms"])
            before = time.perf_counter()
        if sorted(ids) != list(range(samples)):
            raise SystemExit(f"{len(ids)} samples, {len(set(ids))} different ones, of {samples}")
        stamps.append(time.perf_counter() - began)
    return {"samples": samples, "epoch_ends": stamps, "stall_seconds": stall, "looked": looked}


def read_until_ended(loader: Iterable[Any], log: Path, step_ms: float) -> None:
    """Read for ever; write a line for each batch: when it came, by the clock of the machine, and its samples."""
    with log.open("w", buffering=1) as lines:
        while True:
            for one in loader:
                index, _ = look(one)
                testing.step(step_ms)
                lines.write(f"{time.monotonic()} {len(index)}\n")


def main() -> None:
    given = json.loads(sys.argv[1])
    samples, loader = batches(given)
    if given["log"]:
        read_until_ended(loader, Path(given["log"]), given["step_ms"])
    print("ready", flush=True)
    sys.stdin.readline()
    before = time.process_time()
    found = {**read_epochs(loader, samples, given), "cpu_seconds": time.process_time() - before}
    if isinstance(loader, fl.Loader):
        found["engine"] = loader.snapshot()
    print(json.dumps(found), flush=True)
    # Attached until all are counted.
    sys.stdin.readline()


if __name__ == "__main__":
    main()
