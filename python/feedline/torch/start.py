"""Starts the workers of a :class:`feedline.torch.DataLoader`: their configuration, and the seeds that they get.

In: the loader, and the epoch that begins. Out: an engine with running workers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterDataPipe, MapDataPipe, default_collate, default_convert
from torch.utils.data.dataloader import _get_distributed_settings, _sharding_worker_init_fn

from feedline import _feedline
from feedline.policy import Substitute
from feedline.torch import collation
from feedline.torch.engine import EngineOptions, WorkerEngine
from feedline.torch.length import UNKNOWN_LENGTH, length_of
from feedline.torch.processes import choose_context
from feedline.torch.progress import EpochProgress
from feedline.torch.worker.main import WorkerConfig

if TYPE_CHECKING:
    from feedline.torch.loader import DataLoader

_TORCH_PREFETCH = 2
"""torch's default of ``prefetch_factor``. With it the engine decides how many batches it prepares ahead."""


def batches_ahead(loader: DataLoader[Any]) -> tuple[int, bool]:
    """Return how many batches are requested ahead of the trainer at least, and whether that is a limit, too."""
    factor = loader.prefetch_factor if loader.prefetch_factor is not None else _TORCH_PREFETCH
    return max(factor * loader.num_workers, 1), factor != _TORCH_PREFETCH


def start_engine(loader: DataLoader[Any], batch_size: int, base_seed: int, shared_seed: int | None) -> WorkerEngine:
    """Start workers for batches of this size. ``base_seed`` gives their seeds, ``shared_seed`` that of a data pipe."""
    seed = loader._resolved_seed() if loader.seeding != "torch" else 0
    worker_init_fn = loader.worker_init_fn
    if isinstance(loader.dataset, (IterDataPipe, MapDataPipe)):
        worker_init_fn = partial(_sharding_worker_init_fn, worker_init_fn, *_get_distributed_settings())
    config = WorkerConfig(
        worker_id=0,
        num_workers=loader.num_workers,
        mode=loader._mode,
        dataset=loader.dataset,
        collate_fn=None if loader.collate_fn in (default_collate, default_convert) else loader.collate_fn,
        is_iterable=loader._is_iterable,
        drop_last=loader.drop_last,
        seeding=loader.seeding,
        base_seed=base_seed,
        worker_init_fn=worker_init_fn,
        auto_collation=loader._auto_collation,
        shared_seed=shared_seed,
        seed=seed,
        failures_are_values=not isinstance(loader.on_error, Substitute),
        collate_functions=collation.extension(),
    )
    ahead, is_fixed = batches_ahead(loader)
    options = EngineOptions(
        context=choose_context(loader.multiprocessing_context),
        seed=seed,
        batch_size=batch_size,
        samples=length_of(loader.dataset) if loader._mode == "sample" else UNKNOWN_LENGTH,
        prefetch_batches=ahead if is_fixed else None,
        memory_budget=loader.memory_budget,
        on_error=loader.on_error,
        timeout=loader.timeout,
        metrics=loader.metrics,
    )
    loader._shared.last_engine = WorkerEngine(config, options)
    return loader._shared.last_engine


def worker_seeds(loader: DataLoader[Any], progress: EpochProgress) -> tuple[int, int | None]:
    """Return the seed from which those of the workers follow, and that of a data pipe."""
    shared = shared_seed(loader, progress) if isinstance(loader.dataset, IterDataPipe) else None
    if progress.draws is not None:
        # The draws of torch's iterator, in its order. It creates the iterator of the sampler twice.
        progress.draws.sampling(loader._index_sampler)
        base = progress.draws.seed(loader.generator)
        if shared is not None:
            progress.draws.seed(loader.generator)
        return base, shared
    return _seed_of(loader, progress.epoch, UNKNOWN_LENGTH), shared


def shared_seed(loader: DataLoader[Any], progress: EpochProgress) -> int:
    """Return the seed of a data pipe, which is the same in all workers and ranks."""
    if progress.draws is not None:
        return progress.draws.seed(loader.generator)
    return _seed_of(loader, progress.epoch, UNKNOWN_LENGTH + 1)


def _seed_of(loader: DataLoader[Any], epoch: int, sample: int) -> int:
    seeds = _feedline.SampleSeeds(loader._resolved_seed())
    seeds.begin(epoch)
    return seeds.next([sample])[0] >> 1
