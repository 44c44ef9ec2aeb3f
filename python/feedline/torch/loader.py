"""The DataLoader of torch, on Feedline's engine."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch.utils.data import BatchSampler, Dataset, IterDataPipe, MapDataPipe, default_collate
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data.dataloader import _DatasetKind, _get_distributed_settings
from torch.utils.data.graph_settings import apply_sharding

from feedline import _feedline, environment
from feedline.arguments import one_of, short
from feedline.errors import PlanError
from feedline.metrics import check_address
from feedline.order import Arrival, Planned
from feedline.policy import Cache, Substitute
from feedline.sharing import Share
from feedline.torch import collation, start
from feedline.torch.feed import Feed, ItemFeed, IterableFeed, SampleFeed
from feedline.torch.frameworks import FRAMEWORKS, Framework
from feedline.torch.inline import IterableItems, MapItems
from feedline.torch.iterator import EpochIterator, InlineIterator, WorkerIterator
from feedline.torch.length import UNKNOWN_LENGTH, length_of
from feedline.torch.native.native_loader import NativeIterator, NativeLoader
from feedline.torch.place import Place
from feedline.torch.progress import EpochProgress, IterableProgress
from feedline.torch.rank_sampler import RankSampler, divided
from feedline.torch.sampler_state import SamplerProgress, generators_of
from feedline.torch.sampling import SeededSampling, TorchDraws
from feedline.torch.shared_state import SharedState
from feedline.torch.worker.fetch import with_shared_seed
from feedline.torch.worker.leaves import Mode
from feedline.types import Snapshot

T_co = TypeVar("T_co", covariant=True)
_log = logging.getLogger("feedline")


class DataLoader(TorchDataLoader[T_co]):
    """A drop-in replacement for ``torch.utils.data.DataLoader``. The engine schedules its workers sample by sample.

    >>> from torch.utils.data import TensorDataset
    >>> dataset = TensorDataset(torch.arange(8.0), torch.arange(8))
    >>> loader = feedline.torch.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2)
    >>> len(loader), [len(values) for values, labels in loader]
    (2, [4, 4])

    All arguments of torch's class mean the same. ``num_workers="auto"`` takes one worker for each core. The arguments
    below are Feedline's.

    Args:
        seed: decides the order and the random numbers of samples. By default it is drawn once from ``generator``, or
            from torch's global generator, so that ``torch.manual_seed`` makes a program reproducible.
        seeding: ``"sample"`` seeds ``random``, NumPy and torch before each sample, from seed, epoch and index. Then
            samples do not depend on the number of workers. ``"torch"`` gives the seeds, the order and the batches of
            torch's DataLoader. ``None`` seeds each worker once, at its start.
        on_error: ``"raise"``. ``"restart"`` starts another worker when one dies, and makes its samples again.
            ``fl.substitute(...)`` replaces samples that raise an exception, if the dataset is map-style and has a
            length, its indices are whole numbers and ``collate_fn`` is torch's default.
        memory_budget: bytes of batches in flight, as for ``fl.Loader``.
        native: ``"auto"`` runs datasets and transforms natively where Feedline has equals, without worker processes.
            ``False`` always calls the dataset. See :meth:`explain`.
        order: as for ``fl.Loader``. This and the next two options need a map-style dataset. If the dataset is not
            native, workers keep it as it was when they started, as with ``persistent_workers=True``.
        cache: as for ``fl.Loader``. For a dataset that is not native it keeps in memory what ``__getitem__`` returns,
            which must not be random.
        share: as for ``fl.Loader``, with ``shuffle=True``. Samples need arrays of one shape.
        metrics: as for ``fl.Loader``.
        framework: ``"torch"``, ``"numpy"`` or ``"jax"``: the class of the arrays in batches. NumPy arrays share the
            memory of the tensors. JAX shares it too, where the memory and the dtype allow it. Strings and objects of
            other classes stay as they are.
        worker_type: ``"thread"`` calls the dataset on the engine's threads, for datasets that are thread-safe and
            release the GIL, or Python without one. Global generators are not seeded there.
        rank: this process among ``world_size`` processes that divide each epoch. By default nothing is divided:
            trainers give a sampler that does it.
        world_size: see ``rank``.
        snapshot_every_n_steps: an argument of torchdata's ``StatefulDataLoader``. A state is exact at every step
            anyway, so it has no effect.
        spawn_worker_start_parallelism: an argument of torchdata's ``StatefulDataLoader``. It has no effect: the
            program does not wait while workers start.
    """

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        seeding: Literal["sample", "torch"] | None = "sample",
        on_error: Literal["raise", "restart"] | Substitute = "raise",
        memory_budget: int | str | None = None,
        native: Literal["auto", False] = "auto",
        order: Literal["strict"] | Planned | Arrival = "strict",
        cache: Cache | None = None,
        share: bool | str | os.PathLike[str] | Share = False,
        metrics: str | None = None,
        framework: Framework = "torch",
        worker_type: Literal["process", "thread"] = "process",
        rank: int | None = None,
        world_size: int | None = None,
        snapshot_every_n_steps: int | None = 1,
        spawn_worker_start_parallelism: int = 1,
    ) -> None:
        """Check all arguments. No worker starts before the first iteration."""
        one_of("framework", framework, FRAMEWORKS)
        one_of("worker_type", worker_type, ("process", "thread"))
        one_of("seeding", seeding, ("sample", "torch", None))
        one_of("native", native, ("auto", False))
        if on_error not in ("raise", "restart") and not isinstance(on_error, Substitute):
            raise PlanError(f'on_error is {short(on_error)}; it must be "raise", "restart" or fl.substitute(...)')
        if spawn_worker_start_parallelism < 1:
            raise PlanError(
                f"spawn_worker_start_parallelism is {short(spawn_worker_start_parallelism)}; it must be positive"
            )
        if num_workers == "auto":
            num_workers = environment.own_cores()
        if rank is not None or world_size is not None:
            if seeding == "torch" or generator is not None:
                raise PlanError("rank and world_size need the same order on all ranks: give seed=..., no generator")
            sampler = divided(dataset, shuffle, sampler, batch_sampler, batch_size, rank, world_size, drop_last)
            shuffle = None
        if isinstance(on_error, Substitute) and length_of(dataset) == UNKNOWN_LENGTH:
            raise PlanError("on_error=fl.substitute(...) chooses other samples, so the dataset needs a length")
        options: dict[str, Any] = {"in_order": in_order} if "in_order" in _TORCH_ARGUMENTS else {}
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **options,
        )
        # Public and named as the arguments: Lightning makes a loader again from its attributes.
        self.in_order, self.seed, self.seeding, self.on_error = in_order, seed, seeding, on_error
        self.memory_budget, self.native, self.order = memory_budget, native, order
        self.cache, self.share, self.metrics, self.framework = cache, share, check_address(metrics), framework
        self.worker_type, self.rank, self.world_size = worker_type, rank, world_size
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self.spawn_worker_start_parallelism = spawn_worker_start_parallelism
        # All ranks need the same order, that of a loaded state if there is one.
        self._shared = SharedState(drawn_seed=None if self._ranks is None else 0)
        self._native_loader: NativeLoader | None = None

    # -- iterating

    def __iter__(self) -> Any:
        """Begin an epoch."""
        native = self._promoted()
        if native is not None and native.is_in_use:
            native = NativeLoader.of(self)
        if native is not None:
            return NativeIterator(self, native)
        return super().__iter__()

    def enumerate(self, start: int = 0) -> Iterator[tuple[int, Any]]:
        """Give batches with their numbers, from ``start`` on. A continued epoch goes on with its next number.

        >>> loader = feedline.torch.DataLoader(range(8), batch_size=2, seed=0)
        >>> first, state = next(iter(loader)), loader.state_dict()
        >>> loader.load_state_dict(state)
        >>> [number for number, batch in loader.enumerate()]
        [1, 2, 3]
        """
        batches = iter(self)
        return enumerate(batches, start + batches._num_yielded)

    def _get_iterator(self) -> EpochIterator:
        if self.num_workers == 0:
            return InlineIterator(self)
        self.check_worker_number_rationality()
        return WorkerIterator(self)

    def _for_iterator(self) -> DataLoader[T_co]:
        """Return what an iterator refers to. It must not be this loader if the loader refers to the iterator."""
        if not self.persistent_workers:
            return self
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__ | {"_iterator": None})
        return other

    @property
    def _is_iterable(self) -> bool:
        return bool(self._dataset_kind == _DatasetKind.Iterable)

    @property
    def _ranks(self) -> RankSampler | None:
        """The division between ranks, if it is this loader's."""
        return self.sampler if type(self.sampler) is RankSampler else None

    @property
    def _has_own_batches(self) -> bool:
        """Whether a batch sampler chooses the batches that is not of torch's class."""
        return type(self.batch_sampler) is not BatchSampler

    @property
    def _sample_sampler(self) -> Any:
        """The sampler of single samples: the loader's, or that of a ``BatchSampler`` that the user gave."""
        return self.batch_sampler.sampler if type(self.batch_sampler) is BatchSampler else self.sampler

    @property
    def _mode(self) -> Mode:
        """Whether the engine gets samples, or items that a worker has collated."""
        is_plain = self._auto_collation and self.collate_fn is default_collate and self.seeding != "torch"
        has_own_batches = self._is_iterable or getattr(self.dataset, "__getitems__", None) is not None
        is_extended = collation.concerns_assembled_types()
        return "sample" if is_plain and not has_own_batches and not is_extended else "unit"

    def _resolved_seed(self) -> int:
        """Return the seed. If none was given, draw it, once."""
        if self.seed is not None:
            return self.seed
        if self._shared.drawn_seed is None:
            self._shared.drawn_seed = int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
        return self._shared.drawn_seed

    def _sampling(self, progress: EpochProgress) -> Iterator[Any]:
        """Return an iterator over the batches or indices of an epoch."""
        assert progress.sampler is not None, "the dataset is map-style"
        if progress.draws is not None:
            return progress.sampler.track(partial(progress.draws.sampling, self._index_sampler))
        return progress.sampler.track(
            partial(SeededSampling, self._index_sampler, self._resolved_seed(), progress.epoch)
        )

    def _feed(self, progress: EpochProgress, mode: Mode) -> Feed:
        """Return the requests of an epoch, for workers of a mode."""
        epoch = progress.epoch
        if progress.iterable is not None:
            return IterableFeed(progress.iterable, self.batch_size if self.batch_size is not None else 1, epoch)
        sampling = self._sampling(progress)
        if mode == "sample":
            return SampleFeed(sampling, epoch)
        seeds = _feedline.SampleSeeds(self._resolved_seed()) if self.seeding == "sample" else None
        # torch's seeds belong to workers, so their batches do, too.
        turns = self.num_workers if self.seeding == "torch" else None
        return ItemFeed(sampling, epoch, seeds, is_batch=self._auto_collation, turns=turns)

    def _inline_items(self, progress: EpochProgress) -> Iterator[Any]:
        dataset, draws = self.dataset, progress.draws
        if isinstance(dataset, IterDataPipe):
            dataset = with_shared_seed(dataset, start.shared_seed(self, progress))
        if isinstance(dataset, (IterDataPipe, MapDataPipe)):
            apply_sharding(dataset, *_get_distributed_settings())
        sampling = iter(()) if self._is_iterable else self._sampling(progress)
        if draws is not None:
            # torch draws the seed of workers even if there are none.
            draws.seed(self.generator)
        seed = self._resolved_seed() if self.seeding == "sample" else None
        if self._is_iterable:
            return IterableItems(self, dataset, progress, seed)
        return MapItems(self, sampling, progress, seed)

    # -- the place in the stream

    def _begin_epoch(self) -> EpochProgress:
        """Return the epoch of a new iterator, and the number of its batches that were received before."""
        if self.seeding != "torch":
            # A seed that is drawn from the user's generator is drawn before the state of the generator is kept.
            self._resolved_seed()
        epoch, received, parts = self._shared.place.begin()
        self._set_start(parts.get("start", 0))
        draws = TorchDraws(parts.get("torch")) if self.seeding == "torch" else None
        sampler, iterable = None, None
        if self._is_iterable:
            current, self._shared.iterable = self._shared.iterable, None
            iterable = IterableProgress(max(self.num_workers, 1), parts.get("iterable"), current)
            if iterable.must_skip:
                self._say(
                    "resume",
                    "the iterable dataset has no state, so the %d batches received before are made again and dropped",
                    received,
                )
        else:
            saved, is_left = parts.get("sampler"), self._shared.has_left_sampler
            sampler = SamplerProgress(self._index_sampler, generators_of(self), saved, is_left=is_left)
        progress = EpochProgress(epoch, received, sampler, iterable, draws, parts.get("start"), parts.get("shared"))
        self._shared.place.follow(progress)
        return progress

    def _receive(self, progress: EpochProgress) -> None:
        self._shared.place.follow(progress)
        if progress.sampler is not None:
            # If the epoch is left early, the sampler stays there.
            self._shared.has_left_sampler = progress.sampler.is_position
        # A trainer that knows the length does not ask for more. Its state must not be that of an epoch without batches.
        if progress.length is None:
            progress.length = UNKNOWN_LENGTH if self._is_iterable else length_of(self._index_sampler)
        if progress.received == progress.length:
            self._end_epoch(progress)

    def _end_epoch(self, progress: EpochProgress) -> None:
        self._shared.place.end(progress)
        self._set_start(self._shared.place.start)
        if progress.iterable is not None:
            # The workers of the next epoch have the dataset as it is here, unless they are the same.
            is_kept = self.num_workers == 0 or self.persistent_workers
            self._shared.iterable = progress.iterable.saved_for_next_epoch() if is_kept else None
        if progress.sampler is not None:
            self._shared.has_left_sampler = False

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one. The order and the random numbers of samples depend on it.

        >>> loader = feedline.torch.DataLoader(range(8), batch_size=4, shuffle=True, seed=0)
        >>> loader.set_epoch(3)
        """
        if not self._shared.place.is_next(epoch):
            self._shared.place = Place(epoch, self._shared.place.skipped)
            self._set_start(0)

    def _set_start(self, start: int) -> None:
        """Let ranks divide the epoch of the next iterator from a position on."""
        if self._ranks is not None:
            self._ranks.start = start

    def _skip(self, batches: int) -> None:
        """Count batches of the next epoch as received, whichever epoch that is."""
        self._shared.place = Place(self._shared.place.next_epoch, batches)
        self._shared.place.skipped = batches

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the stream: the batches that the trainer received. Small, and cheap at every step.

        >>> loader = feedline.torch.DataLoader(range(8), batch_size=2, shuffle=True, seed=0)
        >>> batches = iter(loader)
        >>> first, state = next(batches), loader.state_dict()
        >>> rest = list(batches)
        >>> loader.load_state_dict(state)
        >>> all(torch.equal(one, other) for one, other in zip(rest, loader))
        True
        """
        seed = self._resolved_seed() if self.seeding != "torch" else None
        parts = self._shared.place.parts()
        if parts is None:
            parts = self._parts_between_epochs()
        state = self._shared.place.state_dict(seed, self.batch_size, parts)
        state |= {} if self._native_loader is None else self._native_loader.shared_state()
        return state if self._ranks is None else state | {"world_size": self._ranks.world_size}

    def _parts_between_epochs(self) -> dict[str, Any]:
        draws = TorchDraws() if self.seeding == "torch" else None
        sampler = None
        if not self._is_iterable:
            is_left = self._shared.has_left_sampler
            sampler = SamplerProgress(self._index_sampler, generators_of(self), None, is_left=is_left)
        iterable = {} if self._shared.iterable is None else {"iterable": self._shared.iterable}
        return EpochProgress(self._shared.place.epoch, 0, sampler, None, draws).saved() | iterable

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, with the same or another number of workers. Nothing that was received is made again.

        >>> loader = feedline.torch.DataLoader(range(8), batch_size=2, seed=0)
        >>> state = loader.state_dict()
        >>> loader.load_state_dict(state)
        """
        is_shared = self.share is not False
        self._shared.place, seed = Place.from_state(state, self.batch_size, self._ranks, is_shared=is_shared)
        self._set_start(self._shared.place.start)
        if seed is not None and self.seed is None:
            self._shared.drawn_seed = seed
        # Persistent workers may have read their datasets beyond the state, so other ones take their place.
        self._iterator, self._shared.iterable = None, None
        self._end_native()

    # -- native

    def explain(self) -> str:
        """Say whether the dataset runs natively, and if not, why.

        >>> print(feedline.torch.DataLoader([1, 2, 3]).explain())
        not native: num_workers is 0, so the dataset is called in this thread
        """
        return NativeLoader.explain(self)

    def _promoted(self) -> NativeLoader | None:
        """Return the native loader, if the dataset has native equals."""
        if self._native_loader is not None and self._native_loader.is_current(self):
            return self._native_loader
        self._end_native()
        self._native_loader = NativeLoader.of(self)
        if self._native_loader is not None and self._native_loader.is_native:
            self._say(
                "native",
                "%s runs natively, without worker processes; native=False turns this off",
                type(self.dataset).__name__,
            )
        return self._native_loader

    def _end_native(self) -> None:
        native, self._native_loader = self._native_loader, None
        if native is not None and not native.is_in_use:
            native.close()

    def snapshot(self) -> Snapshot:
        """Return all counters of the workers that were started last, or of the native loader.

        >>> from torch.utils.data import TensorDataset
        >>> dataset = TensorDataset(torch.arange(8))
        >>> loader = feedline.torch.DataLoader(dataset, batch_size=4, num_workers=1)
        >>> batches = list(loader)
        >>> loader.snapshot()["samples"]
        8
        """
        if self._native_loader is not None:
            return self._native_loader.snapshot()
        if self._shared.last_engine is None:
            raise RuntimeError("there are no counters yet: begin an epoch with num_workers > 0")
        counters: Snapshot = self._shared.last_engine.snapshot()
        return counters

    @property
    def metrics_address(self) -> str | None:
        """The address and port at which metrics are served, while there are workers.

        >>> loader = feedline.torch.DataLoader(range(8), num_workers=1, metrics="127.0.0.1:0")
        >>> loader.metrics_address is None
        True
        """
        if self._native_loader is not None:
            return self._native_loader.loader.metrics_address
        engine = self._shared.last_engine
        return None if engine is None else engine.metrics_address

    def _say(self, topic: str, message: str, *values: Any) -> None:
        """Log a warning, once for each topic."""
        if topic not in self._shared.said:
            self._shared.said.add(topic)
            _log.warning(message, *values)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the arguments and the place in the stream, without workers."""
        own = {"_iterator": None, "_native_loader": None, "_shared": self._shared.copy()}
        return self.__dict__ | own


_TORCH_ARGUMENTS = inspect.signature(TorchDataLoader.__init__).parameters
