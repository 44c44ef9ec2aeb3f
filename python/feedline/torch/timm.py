"""timm's loaders on Feedline's engine.

In: the arguments of ``timm.data.create_loader``. Out: a loader with the same batches, from Feedline's workers.
Transforms, samplers, mixup, normalisation and random erasing are timm's own objects.

timm collates uint8 pictures in the worker (``fast_collate``), and normalises and erases on the device. Feedline's
workers write the pictures straight into the batch instead. The rest stays where it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from timm.data.dataset import AugMixDataset
from timm.data.loader import PrefetchLoader, fast_collate
from timm.data.loader import create_loader as create_timm_loader
from timm.data.mixup import FastCollateMixup
from torch.utils.data import BatchSampler, default_collate

from feedline import _feedline
from feedline.torch.device import DevicePrefetcher, prefetch
from feedline.torch.loader import DataLoader
from feedline.torch.trainers import OWN_ARGUMENTS, WORKER_ARGUMENTS, rebuilt
from feedline.torch.worker.seeding import preserved_generators
from feedline.types import Snapshot
from feedline.worker.seeding import sample_seeder

_ERASING = 1 << 44
"""The seeds of random erasing are those of samples from here on, which no dataset has: one for each batch."""


def create_loader(*arguments: Any, **options: Any) -> Any:
    """Make a loader as ``timm.data.create_loader`` does, with Feedline's workers.

    All arguments of timm's function mean the same. The arguments of :class:`feedline.torch.DataLoader` that torch's
    class does not have may be added, such as ``seed``. With ``use_prefetcher=True``, timm's default, the result is
    timm's ``PrefetchLoader`` with the methods ``state_dict``, ``load_state_dict``, ``set_epoch`` and ``snapshot``.
    Otherwise it is a :class:`feedline.torch.DataLoader`.

    >>> import timm.data
    >>> dataset = timm.data.create_dataset("", root="data/train")
    >>> from feedline.torch.timm import create_loader
    >>> loader = create_loader(dataset, 32, batch_size=8, is_training=True, device=torch.device("cpu"), seed=0)
    >>> images, labels = next(iter(loader))
    >>> images.shape
    torch.Size([8, 3, 32, 32])
    """
    own = {name: options.pop(name) for name in OWN_ARGUMENTS if name in options}
    given = inspect.signature(create_timm_loader).bind(*arguments, **options)
    # Its purpose is that workers stay between epochs, for which the engine has `persistent_workers`.
    stays = given.arguments.pop("use_multi_epochs_loader", False)
    made = create_timm_loader(*given.args, **given.kwargs)
    base = made.loader if isinstance(made, PrefetchLoader) else made
    settings = {name: getattr(base, name) for name in WORKER_ARGUMENTS} | own
    if stays and base.num_workers > 0:
        settings["persistent_workers"] = True
    if settings["collate_fn"] is fast_collate and not _has_several_views(base.dataset):
        settings["collate_fn"] = default_collate
    if settings.get("seed") is not None:
        # With repeated augmentation several ranks get the same sample, which they are to augment differently.
        settings["seed"] += _rank_of(base)
    loader = rebuilt(base, settings)
    return _Prefetching(made, loader) if isinstance(made, PrefetchLoader) else loader


class _Prefetching(PrefetchLoader):
    """timm's loader for a device, over Feedline's. Batches are normalised and erased there, as by timm."""

    loader: DataLoader[Any]

    def __init__(self, made: PrefetchLoader, loader: DataLoader[Any]) -> None:
        """Take the place of timm's loader."""
        self.__dict__ |= vars(made)
        self.loader = loader
        self._ahead: DevicePrefetcher = prefetch(loader, self.device, transform=self._prepared)
        self._seed_generators = sample_seeder()

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Begin an epoch."""
        return iter(self._ahead)

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the batches that were delivered, not after those that were read ahead."""
        state: dict[str, Any] = self._ahead.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self._ahead.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one."""
        self._ahead.set_epoch(epoch)

    def snapshot(self) -> Snapshot:
        """Return the counters of Feedline's workers."""
        return self.loader.snapshot()

    @property
    def mixup_enabled(self) -> bool:
        """Whether batches are mixed. Workers learn of a change when the next epoch begins."""
        return bool(getattr(self.loader.collate_fn, "mixup_enabled", False))

    @mixup_enabled.setter
    def mixup_enabled(self, is_enabled: bool) -> None:
        if isinstance(self.loader.collate_fn, FastCollateMixup) and is_enabled != self.mixup_enabled:
            self.loader.collate_fn.mixup_enabled = is_enabled
            # Persistent workers have a copy from before.
            self.loader._iterator = None

    def _prepared(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        images, targets = batch
        images = images.to(self.img_dtype).sub_(self.mean).div_(self.std)
        if self.random_erasing is not None:
            images = self._erased(images)
        return images, targets.long() if targets.ndim == 1 else targets

    def _erased(self, images: torch.Tensor) -> torch.Tensor:
        """Erase with random numbers that depend on seed, epoch and batch, as those of samples do."""
        erase: Callable[[torch.Tensor], torch.Tensor] = self.random_erasing
        if self.loader.seeding != "sample":
            return erase(images)
        place = self.loader._shared.place
        seeds = _feedline.SampleSeeds(self.loader._resolved_seed())
        seeds.begin(place.epoch)
        with preserved_generators():
            self._seed_generators(seeds.next([_ERASING + place.batches])[0])
            return erase(images)


def _has_several_views(dataset: Any) -> bool:
    """Whether a sample is a tuple of pictures, which only ``fast_collate`` puts together."""
    return isinstance(dataset, AugMixDataset)


def _rank_of(loader: Any) -> int:
    sampler = loader.sampler if type(loader.batch_sampler) is BatchSampler else loader.batch_sampler
    return int(getattr(getattr(sampler, "sampler", sampler), "rank", 0))
