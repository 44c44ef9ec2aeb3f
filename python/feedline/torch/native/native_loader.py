"""A DataLoader that runs as a plan, by :class:`feedline.Loader`.

In: a DataLoader. Out: a loader of a plan with the same samples in the same order, or the reason why there is none. The
plan has native ops if there are any for the dataset. Otherwise, if the DataLoader has options that only plans have, an
op calls the dataset (:mod:`feedline.torch.native.dataset_plan`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from torch._utils import ExceptionWrapper
from torch.utils.data import BatchSampler, RandomSampler, default_collate

from feedline.errors import PlanError, RaggedError, SampleError, StateError
from feedline.loader import Loader
from feedline.torch import collation
from feedline.torch.iterator import EpochIterator
from feedline.torch.length import UNKNOWN_LENGTH, length_of
from feedline.torch.native.dataset_plan import DatasetPlan, plan_of, plan_options
from feedline.torch.native.promote import Promotion, Refusal, promote
from feedline.torch.progress import EpochProgress
from feedline.torch.rank_sampler import RankSampler
from feedline.torch.sampling import SeededSampling
from feedline.types import Snapshot

if TYPE_CHECKING:
    from feedline.torch.loader import DataLoader


class NativeLoader:
    """A loader of a plan, and how its batches become those of torch."""

    def __init__(self, loader: DataLoader[Any], promotion: Promotion | DatasetPlan) -> None:
        """Make the loader of the plan. It starts no thread yet."""
        self._promotion = promotion
        self.is_native = isinstance(promotion, Promotion)
        self.is_shared = loader.share is not False
        self._start = _start_of(loader)
        self._iterator: weakref.ref[NativeIterator] | None = None
        seed, batches = loader._resolved_seed(), _batches_of(loader)
        self.loader = Loader(
            promotion.source,
            promotion.ops,
            batch_size=batches.batch_size,
            seed=seed,
            num_workers=loader.num_workers,
            drop_last=batches.drop_last,
            order=loader.order,
            ragged=() if isinstance(promotion, Promotion) else promotion.ragged,
            **_order_of(loader, promotion, seed),
            memory_budget=loader.memory_budget,
            on_error="raise" if loader.on_error == "restart" else loader.on_error,
            framework="torch" if self.is_native else "numpy",
            fields=promotion.fields,
            cache=loader.cache if self.is_native or loader.cache is None else replace(loader.cache, form="resized"),
            share=loader.share,
            metrics=loader.metrics,
        )

    @staticmethod
    def of(loader: DataLoader[Any]) -> NativeLoader | None:
        """Return the loader of a plan for a DataLoader, if there is one."""
        if _refusal(loader) is None:
            promotion = promote(loader.dataset)
            if not isinstance(promotion, Refusal):
                return NativeLoader(loader, promotion)
        return NativeLoader(loader, plan_of(loader)) if plan_options(loader) else None

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
        """Return whether the dataset and the part of the epoch that ranks divide were not changed since."""
        return self._start == _start_of(loader) and self._promotion.is_current(loader.dataset)

    @property
    def is_in_use(self) -> bool:
        """Whether an iterator has not ended yet. Another one needs a native loader of its own."""
        iterator = None if self._iterator is None else self._iterator()
        return iterator is not None and not iterator.has_ended

    def begin(self, iterator: NativeIterator, epoch: int, progress: EpochProgress) -> Iterator[Any]:
        """Give an iterator the batches of an epoch, except those that were received before."""
        received = progress.received
        if self.is_shared and progress.start:
            raise StateError("share: continue with the old number of ranks until the end of the epoch")
        self._iterator = weakref.ref(iterator)
        if self.is_shared and progress.shared is not None:
            self.loader.load_state_dict(progress.shared)
            return map(self._promotion.collate, iter(self.loader))
        self.loader.set_epoch(epoch)
        if received:
            self.loader.load_state_dict(self.loader.state_dict() | {"epoch": epoch, "batches": received})
        return map(self._promotion.collate, iter(self.loader))

    def shared_state(self) -> dict[str, Any]:
        """Return the part of a state that says which shared samples were received."""
        return {"shared": self.loader.state_dict()} if self.is_shared else {}

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
    """The batches of one epoch of a plan."""

    def __init__(self, loader: DataLoader[Any], native: NativeLoader) -> None:
        """Begin an epoch."""
        super().__init__(loader)
        self.has_ended = False
        # Kept alive: the loader may have replaced it meanwhile.
        self._native = native
        self._workers: list[BaseProcess] = []
        self._batches = native.begin(self, self._epoch, self._progress)

    def _make_next(self) -> Any:
        try:
            return next(self._batches)
        except StopIteration:
            self.has_ended = True
            raise
        except RaggedError as error:
            # The class of torch's error, and advice for transforms in place of ops.
            what = str(error).split("; ")[0]
            advice = "make all sizes equal in the transform of the dataset, for example with RandomResizedCrop(224)"
            raise RuntimeError(f"stack expects each tensor to be equal size: {what}; {advice}") from None
        except SampleError as error:
            if self._native.is_native or error.__cause__ is None or error.op != "Map":
                raise
            cause = error.__cause__
        # Outside of the handler. The exception has its type and the traceback of the dataset, as with torch's workers.
        if cause.__traceback__ is not None:
            raise cause
        return ExceptionWrapper((type(cause), cause, cause.__traceback__), "in a worker of the DataLoader").reraise()

    def _shutdown_workers(self) -> None:
        """Free the prepared batches. Trainers call this method of torch's iterator."""
        self.has_ended, self._batches = True, iter(())


def _batches_of(loader: DataLoader[Any]) -> BatchSampler:
    """Return the batch sampler of torch's class, which the user or the loader made."""
    assert type(loader.batch_sampler) is BatchSampler, "loaders with other batch samplers have no plan"
    return loader.batch_sampler


def _start_of(loader: DataLoader[Any]) -> int:
    """Return the position from which on ranks divide the next epoch."""
    return 0 if loader._ranks is None else loader._ranks.start


def _order_of(loader: DataLoader[Any], promotion: Promotion | DatasetPlan, seed: int) -> dict[str, Any]:
    """Return the arguments of ``fl.Loader`` for the order of a DataLoader."""
    sampler: Any = loader._sample_sampler
    if loader.share is False:

        def indices(epoch: int) -> list[int]:
            return promotion.source_indices(SeededSampling(sampler, seed, epoch).rest())

        return {"sampler": indices, "rank": 0, "world_size": 1}
    ranks = {"rank": 0, "world_size": 1}
    if type(sampler) is RankSampler:
        ranks = {"rank": sampler.rank, "world_size": sampler.world_size}
        sampler = sampler.base
    samples: Any = loader.dataset
    if type(sampler) is not RandomSampler or sampler.replacement or sampler.num_samples != len(samples):
        raise PlanError("share: jobs share samples in a common random order, so this needs shuffle=True and no sampler")
    return {"shuffle": True, **ranks}


def _refusal(loader: DataLoader[Any]) -> str | None:
    """Return what stands in the way of a native loader, apart from the dataset."""
    reasons = [
        (loader.native is False, "native=False"),
        (loader.num_workers == 0, "num_workers is 0, so the dataset is called in this thread"),
        (loader.seeding == "torch", 'seeding="torch" needs torch\'s own random numbers'),
        (loader.seeding is None, "seeding=None: native samples are always seeded"),
        (not loader._auto_collation, "batch_size=None"),
        (loader._has_own_batches, "it has a batch_sampler of another class than torch's"),
        (length_of(loader._index_sampler) == UNKNOWN_LENGTH, "its sampler has no length"),
        (loader.collate_fn is not default_collate, "it has a collate_fn"),
        (loader.worker_init_fn is not None, "it has a worker_init_fn"),
        (bool(collation.extension()), "default_collate was extended by default_collate_fn_map"),
    ]
    return next((reason for stands, reason in reasons if stands), None)
