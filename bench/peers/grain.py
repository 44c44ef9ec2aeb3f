"""Grain, with torchvision's ops: it brings no picture ops of its own.

`grain` prepares whole batches in two worker processes, `grain-threads` single samples in two threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.harness import Window
from bench.peers.peer import Peer
from bench.peers.venvs import Environment
from bench.pipeline import BATCH, WORKERS, Task

ENVIRONMENT = Environment("grain", ("grain",))


def _prepare(path: str) -> Any:
    from bench.peers import torchvision_sample

    return torchvision_sample.from_path(path).numpy()


def _contend(task: Task, processes: bool) -> Window:
    import grain
    from absl import flags

    flags.FLAGS(["grain"])
    samples = grain.MapDataset.source(task.paths).seed(0).shuffle().repeat(task.all_epochs).map(_prepare)
    if processes:
        inside = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        workers = grain.MultiprocessingOptions(num_workers=WORKERS, per_worker_buffer_size=2)
        batches = samples.to_iter_dataset(inside).batch(BATCH).mp_prefetch(workers)
    else:
        inside = grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=2 * BATCH)
        batches = samples.to_iter_dataset(inside).batch(BATCH)
    return task.measure(lambda: batches)


PROCESSES = Peer("grain", "Grain, processes", "", partial(_contend, processes=True), ENVIRONMENT)
THREADS = Peer("grain-threads", "Grain, threads", "", partial(_contend, processes=False), ENVIRONMENT)
