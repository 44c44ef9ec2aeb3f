"""A DataLoader whose dataset and transforms run natively, by :class:`feedline.Loader`.

In: a DataLoader. Out: a native loader with the same samples in the same order, or the reason why there is none.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler, default_collate
from torch.utils.data._utils import collate as torch_collate

from feedline.loader import Loader
from feedline.torch.iterator import EpochIterator
from feedline.torch.native.promote import Promotion, Refusal, promote
from feedline.torch.sampling import SeededSampling
from feedline.types import Snapshot

if TYPE_CHECKING:
    from feedline.torch.loader import DataLoader

_DEFAULT_COLLATE = dict(torch_collate.default_collate_fn_map)


class NativeLoader:
    """A native loader, and how its batches become those of torch."""

    def __init__(self, loader: DataLoader[Any], promotion: Promotion) -> None:
        """Make the native loader. It starts no thread yet."""
        self._promotion = promotion
        self._iterator: weakref.ref[NativeIterator] | None = None
        sampler, seed = loader.sampler, loader._resolved_seed()

        def indices(epoch: int) -> list[int]:
            return promotion.source_indices(list(SeededSampling(sampler, seed, epoch)))

        self.loader = Loader(
            promotion.source,
            promotion.ops,
            batch_size=loader.batch_size or 1,
            sampler=indices,
            seed=seed,
            num_workers=loader.num_workers,
            drop_last=loader.drop_last,
            order=loader.order,
            rank=0,
            world_size=1,
            memory_budget=loader.memory_budget,
            on_error="raise" if loader.on_error == "restart" else loader.on_error,
            framework="torch",
            fields=promotion.fields,
            cache=loader.cache,
            share=loader.share,
            metrics=loader.metrics,
        )

    @staticmethod
    def of(loader: DataLoader[Any]) -> NativeLoader | None:
        """Return the native loader of a DataLoader, if there is one."""
        if _refusal(loader) is not None:
            return None
        promotion = promote(loader.dataset)
        return None if isinstance(promotion, Refusal) else NativeLoader(loader, promotion)

    @staticmethod
    def explain(loader: DataLoader[Any]) -> str:
        """Say whether a DataLoader runs natively, and if not, why."""
        reason = _refusal(loader)
        if reason is None:
            promotion = promote(loader.dataset)
            if not isinstance(promotion, Refusal):
                return f"native: {promotion.source!r}, {len(promotion.ops)} ops"
            reason = promotion.reason
        return f"not native: {reason}"

    def is_current(self, loader: DataLoader[Any]) -> bool:
        """Return whether the dataset was not changed since."""
        return self._promotion.is_current(loader.dataset)

    @property
    def is_in_use(self) -> bool:
        """Whether an iterator has not ended yet. Another one needs a native loader of its own."""
        iterator = None if self._iterator is None else self._iterator()
        return iterator is not None and not iterator.has_ended

    def begin(self, iterator: NativeIterator, epoch: int, received: int) -> Iterator[Any]:
        """Give an iterator the batches of an epoch, except those that were received before."""
        self._iterator = weakref.ref(iterator)
        self.loader.set_epoch(epoch)
        if received:
            self.loader.load_state_dict(self.loader.state_dict() | {"epoch": epoch, "batches": received})
        return map(self._promotion.collate, iter(self.loader))

    def step(self, step: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
        """Return a step that takes batches of the native loader."""
        return None if step is None else lambda batch: step(self._promotion.collate(batch))

    def snapshot(self) -> Snapshot:
        """Return all counters."""
        return self.loader.snapshot()

    def close(self) -> None:
        """End the threads."""
        self.loader.close()


class NativeIterator(EpochIterator):
    """The batches of one epoch of a native loader."""

    def __init__(self, loader: DataLoader[Any], native: NativeLoader) -> None:
        """Begin an epoch."""
        super().__init__(loader)
        self.has_ended = False
        # Kept alive: the loader may have replaced it meanwhile.
        self._native = native
        self._workers: list[BaseProcess] = []
        self._batches = native.begin(self, self._epoch, self._num_yielded)

    def _make_next(self) -> Any:
        try:
            return next(self._batches)
        except StopIteration:
            self.has_ended = True
            raise

    def _shutdown_workers(self) -> None:
        """Free the prepared batches. Trainers call this method of torch's iterator."""
        self.has_ended, self._batches = True, iter(())


def _refusal(loader: DataLoader[Any]) -> str | None:
    """Return what stands in the way of a native loader, apart from the dataset."""
    reasons = [
        (loader.native is False, "native=False"),
        (loader.num_workers == 0, "num_workers is 0, so the dataset is called in this thread"),
        (loader.seeding == "torch", 'seeding="torch" needs torch\'s own random numbers'),
        (loader.seeding is None, "seeding=None: native samples are always seeded"),
        (not loader._auto_collation, "batch_size=None"),
        (type(loader.batch_sampler) is not BatchSampler, "it has a batch_sampler"),
        (loader.collate_fn is not default_collate, "it has a collate_fn"),
        (loader.worker_init_fn is not None, "it has a worker_init_fn"),
        (
            torch_collate.default_collate_fn_map != _DEFAULT_COLLATE,
            "default_collate was extended by default_collate_fn_map",
        ),
    ]
    return next((reason for stands, reason in reasons if stands), None)
