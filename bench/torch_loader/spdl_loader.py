"""SPDL over a map-style dataset, in the way of its `PyTorchDataLoader`, but with workers that stay between epochs.

SPDL's own class starts a process pool in each epoch and refuses `persistent_workers`. Here the same pipeline keeps its
pool. With threads, SPDL calls the dataset in the training process. Both collate whole batches where they fetch them,
and deliver in the order of the sampler. Runs in the environment of SPDL.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, default_collate

from bench.torch_loader.loaders import Order

PREFETCH_PER_WORKER = 2
TIMEOUT_SECONDS = 120

_worker: tuple[Any, Callable[[Any], Any]]
"""The dataset and the collate function of a worker process."""


class SpdlLoader:
    """Batches of a dataset from `spdl.pipeline`."""

    def __init__(self, dataset: Any, order: Order, has_processes: bool) -> None:
        self._order = order
        sampler = RandomSampler(dataset) if order.is_shuffled else SequentialSampler(dataset)
        self._batches = BatchSampler(sampler, order.batch_size, drop_last=False)
        collate = order.collate or default_collate
        self._executor, self._fetch = None, partial(_fetch, dataset, collate)
        if has_processes:
            context = multiprocessing.get_context(order.start_method or "fork")
            self._executor = ProcessPoolExecutor(order.workers, context, _begin_worker, (dataset, collate))
            self._fetch = _fetch_in_worker

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder

        workers = self._order.workers
        options: dict[str, Any] = {"executor": self._executor} if self._executor is not None else {}
        builder = PipelineBuilder().add_source(self._batches)
        builder.pipe(self._fetch, concurrency=workers, output_order="input", **options)
        pipeline = builder.add_sink(PREFETCH_PER_WORKER * workers).build(
            num_threads=1 if self._executor is not None else workers
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=TIMEOUT_SECONDS)

    def close(self) -> None:
        """End the worker processes."""
        if self._executor is not None:
            self._executor.shutdown()


def _fetch(dataset: Any, collate: Callable[[Any], Any], indices: list[int]) -> Any:
    return collate([dataset[index] for index in indices])


def _begin_worker(dataset: Any, collate: Callable[[Any], Any]) -> None:
    import torch

    # As in the workers of torch and Feedline.
    torch.set_num_threads(1)
    global _worker
    _worker = dataset, collate


def _fetch_in_worker(indices: list[int]) -> Any:
    return _fetch(*_worker, indices)
