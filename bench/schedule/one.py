"""One loader on one workload, in its own process: `python -m bench.schedule.one LOADER WORKLOAD [--seed N]`.

Three epochs: costs are learnt in the first, the seam between two is clean from the third on, which counts. The step
of the simulated accelerator is the mean cost, as measured inside the ops, times batch over workers over the load. Use
is the accelerator's busy time over the time of the epoch. `cores` is the processor time of the run over that of the
epoch, `machine_cores` that of all that ran: as long as it is well below the cores of the machine, runs beside each
other do not disturb each other. `--trace` adds the busy workers and accelerators over time.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness
from bench.schedule import loaders, trace
from bench.schedule.loaders import Ids, Span
from bench.schedule.workload import workloads

EPOCHS = 3


def _epoch(consumers: list[Iterator[Ids]], step: float, samples: int) -> list[Span]:
    """Run an epoch: give when accelerators were busy; the samples must be all, each once."""
    seen: list[Ids] = []
    steps: list[Span] = []

    def consume(ids_of_batches: Iterator[Ids]) -> None:
        for ids in ids_of_batches:
            seen.append(ids)
            began = time.perf_counter()
            time.sleep(step)
            steps.append((began, time.perf_counter(), 1))

    threads = [threading.Thread(target=consume, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not np.array_equal(np.sort(np.concatenate(seen)), np.arange(samples)):
        raise SystemExit("the samples of an epoch are not all samples, each once")
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loader", choices=(*loaders.LOADERS, loaders.IN_ORDER_LONGER))
    parser.add_argument("workload")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--shapes", type=Path, help="shapes.json of KiTS19")
    parser.add_argument("--trace", action="store_true")
    asked = parser.parse_args()
    workload = workloads(asked.seed, asked.shapes)[asked.workload]
    loader = loaders.make(asked.loader, workload, asked.seed, asked.slots or workload.slots)
    cost = workload.mean_ms / 1e3
    for epoch in range(EPOCHS):
        step = asked.consumers * cost * workload.batch / workload.workers / asked.load
        is_counted = epoch == EPOCHS - 1
        with loader.watched() if asked.trace and is_counted else nullcontext([]) as work:
            own, machine, began = harness.tree_cpu_seconds(), harness.machine_cpu_seconds(), time.perf_counter()
            steps = _epoch(loader.consumers(asked.consumers), step, workload.samples)
            elapsed = time.perf_counter() - began
            own, machine = harness.tree_cpu_seconds() - own, harness.machine_cpu_seconds() - machine
        cost = loader.mean_seconds()
    busy = sum(ended - began for began, ended, _ in steps) / asked.consumers
    least = cost * workload.samples / workload.workers
    result: dict[str, Any] = {
        "use": busy / elapsed,
        "bound": min(1.0, busy / max(busy, least)),
        "seconds": elapsed,
        "step": step,
        "cores": own / elapsed,
        "machine_cores": machine / elapsed,
    }
    if loader.slots is not None:
        result["slots"] = loader.slots
    if asked.trace:
        shares = {"workers": (work, workload.workers), "accelerators": (steps, asked.consumers)}
        result["trace"] = {name: trace.shares(spans, began, elapsed, of) for name, (spans, of) in shares.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
