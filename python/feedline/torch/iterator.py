"""One pass over a :class:`feedline.torch.DataLoader`, with worker processes or in the calling thread.

In: the loader. Out: batches in the order of its sampler. A batch counts as received when ``__next__`` returns it, so
the state of a loader never runs ahead of the trainer.

As in torch, an exception of user code concerns one batch. ``__next__`` raises it, and its next call goes on after it.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterDataPipe
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter

from feedline.torch import start
from feedline.torch.engine import SampleFailed, WorkerEngine, WorkerLost
from feedline.torch.feed import Feed
from feedline.torch.frameworks import batch_converter
from feedline.torch.taken import TakenBatch

if TYPE_CHECKING:
    from feedline.torch.loader import DataLoader

_MAX_REQUESTED = 4096
_MAX_TAKEN, _MAX_TAKEN_BYTES = 16, 1 << 20
"""Small batches that are ready are taken together, see :mod:`feedline.torch.taken`."""


class EpochIterator(_BaseDataLoaderIter):
    """The batches of one epoch. Trainers know it as torch's iterator."""

    # The constructor of torch's class draws from the program's random numbers, so it is not called.
    def __init__(self, loader: DataLoader[Any]) -> None:
        """Begin an epoch."""
        self._loader = loader._for_iterator()
        # Attributes of torch's iterators that programs read.
        self._dataset, self._dataset_kind = loader.dataset, loader._dataset_kind
        self._index_sampler, self._num_workers = loader._index_sampler, loader.num_workers
        self._auto_collation, self._drop_last = loader._auto_collation, loader.drop_last
        self._timeout, self._collate_fn = loader.timeout, loader.collate_fn
        self._persistent_workers = loader.persistent_workers
        self._profile_name = "enumerate(DataLoader)#feedline.torch.DataLoader.__next__"
        self._sampler_iter = ()
        self._pin_memory = loader.pin_memory and torch.accelerator.is_available()
        self._convert = batch_converter(loader.framework)
        self._warn_about_pinning()
        self._begin()

    def _begin(self) -> None:
        loader = self._loader
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._progress = loader._begin_epoch()
        self._epoch, self._num_yielded = self._progress.epoch, self._progress.received

    def __next__(self) -> Any:
        """Wait for the next batch."""
        # torch's method marks each batch for its profiler and counts items of iterable datasets, which takes time.
        if torch._C._autograd._profiler_enabled() or self._IterableDataset_len_called is not None:
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _warn_about_pinning(self) -> None:
        loader = self._loader
        if loader.pin_memory and loader.pin_memory_device:
            text = "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            warnings.warn(f"{text}ignore pin_memory_device='{loader.pin_memory_device}'.", stacklevel=5)
        if loader.pin_memory and not self._pin_memory:
            text = "'pin_memory' argument is set as true but no accelerator is found, "
            warnings.warn(text + "then device pinned memory won't be used.", stacklevel=5)

    def _next_data(self) -> Any:
        try:
            data = self._make_next()
        except StopIteration:
            self._loader._end_epoch(self._progress)
            raise
        if self._pin_memory:
            data = pin_memory(data)
        if self._convert is not None:
            data = self._convert(data)
        self._count_batch()
        return data

    def _count_batch(self) -> None:
        """Count a batch that was delivered, or that raised an exception."""
        self._progress.receive()
        self._loader._receive(self._progress)

    def _make_next(self) -> Any:
        raise NotImplementedError


class InlineIterator(EpochIterator):
    """Makes batches in the calling thread (``num_workers=0``)."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        """Begin an epoch."""
        if loader.timeout:
            raise AssertionError("timeout is for worker processes: with num_workers=0 it must be 0")
        super().__init__(loader)
        self._items: Iterator[Any] = loader._inline_items(self._progress)

    def _make_next(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            raise
        except Exception:
            self._count_batch()
            raise


class WorkerIterator(EpochIterator):
    """Receives batches from worker processes."""

    _engine: WorkerEngine | None = None
    _processes: list[BaseProcess] = []  # noqa: RUF012 (replaced, never changed)
    _feed: Feed
    _taken: deque[TakenBatch]
    _is_plain = False

    def __init__(self, loader: DataLoader[Any]) -> None:
        """Begin an epoch. Workers start at once."""
        super().__init__(loader)
        self._worker_seed, self._shared_seed = start.worker_seeds(loader, self._progress)
        self._base_seed = self._worker_seed
        self._process = os.getpid()
        self._start_feed()

    def __next__(self) -> Any:
        """Wait for the next batch."""
        taken = self._taken
        # A batch that needs nothing more takes the shortest way. With the last one that was taken, more are requested.
        if (
            len(taken) > 1
            and self._is_plain
            and taken[0].is_ready
            and self._IterableDataset_len_called is None
            and os.getpid() == self._process
            and not torch._C._autograd._profiler_enabled()
        ):
            data = taken.popleft().data
            self._requested -= 1
            self._num_yielded += 1
            progress = self._progress
            progress.receive()
            self._loader._receive(progress)
            return data
        return super().__next__()

    def _start_feed(self) -> None:
        self._error: Exception | None = None
        self._requested, self._has_more = 0, True
        self._taken: deque[TakenBatch] = deque()
        # Workers that stay keep the mode in which they started.
        mode = self._loader._mode if self._engine is None else self._engine.mode
        self._feed = self._loader._feed(self._progress, mode)
        self._is_plain = self._feed.accepts_all and self._convert is None and not self._pin_memory
        self._feed.skip(self._progress.to_skip)
        self._fill()
        if self._error is not None and self._requested == 0:
            raise self._error

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Begin the next epoch with the same workers."""
        self._loader = loader._for_iterator()
        if isinstance(self._error, WorkerLost):
            self._shutdown_workers()
        if self._engine is None:
            # Other workers begin with the dataset of the program.
            self._loader._shared.iterable = None
        self._begin()
        if isinstance(self._dataset, IterDataPipe):
            self._shared_seed = start.shared_seed(loader, self._progress)
        if self._engine is not None:
            self._engine.reset()
            if loader._is_iterable:
                self._start_epoch(self._engine)
        self._start_feed()

    def _start_epoch(self, engine: WorkerEngine) -> None:
        """Let the workers forget the iterators of an iterable dataset."""
        try:
            engine.call("start_epoch", self._shared_seed)
        except WorkerLost as loss:
            self._fail(loss)
            raise
        except KeyboardInterrupt:
            # Some workers were told and others not. The next epoch starts other ones.
            self._shutdown_workers()
            raise

    def _start(self, batch_size: int) -> WorkerEngine:
        if self._engine is None:
            self._engine = start.start_engine(self._loader, batch_size, self._worker_seed, self._shared_seed)
        return self._engine

    def _fill(self) -> None:
        """Request batches ahead of the consumer. An exception of the sampler waits until the batches before it came."""
        if self._error is not None:
            return
        limit, is_fixed = start.batches_ahead(self._loader)
        if self._engine is not None and not is_fixed:
            # Batches that were taken from the engine are not in its queue any more.
            limit = min(max(limit, self._engine.wanted_ahead + 1) + len(self._taken), _MAX_REQUESTED)
        try:
            while self._has_more and self._requested < limit:
                self._has_more = self._feed.request_next(self._start)
                self._requested += self._has_more
        except Exception as error:
            self._has_more, self._error = False, error

    def _make_next(self) -> Any:
        while True:
            engine = self._engine
            if engine is not None and engine.is_of_parent:
                engine.next()  # It raises: this iterator belongs to the parent.
            if not self._taken:
                self._take()
            if engine := self._engine:
                self._taken[0].assemble(engine)
            taken = self._taken.popleft()
            # The engine repeats its own errors, so its batch is still requested.
            self._requested -= taken.is_batch
            try:
                accepted = self._feed.accept(taken.result())
            except Exception:
                if taken.is_batch:
                    self._feed.fail()
                    self._count_batch()
                raise
            if not self._taken:
                # Workers must not wait while the trainer works.
                self._fill()
            if accepted:
                return accepted[0]

    def _take(self) -> None:
        """Wait for the next batch, and take further ones that are ready."""
        if self._requested == 0:
            self._fill()
        engine = self._engine
        if self._requested == 0 or engine is None:
            raise self._error or StopIteration
        self._taken.append(TakenBatch(engine.next()))
        self._taken[0].assemble(engine)
        # A limit of the user counts every batch that was requested.
        if start.batches_ahead(self._loader)[1]:
            return
        size = engine.batch_bytes
        while len(self._taken) < min(_MAX_TAKEN, self._requested) and size + engine.batch_bytes <= _MAX_TAKEN_BYTES:
            try:
                parts = engine.next_if_ready()
            except Exception as error:
                self._taken.append(TakenBatch(None, error))
                return
            if parts is None:
                break
            self._taken.append(TakenBatch(parts))
            self._taken[-1].assemble(engine)
            size += engine.batch_bytes
        self._fill()

    def _next_data(self) -> Any:
        try:
            return super()._next_data()
        except SampleFailed as failure:
            if failure.is_last:
                self._fail(failure)
            wrapper = failure.wrapper
        except WorkerLost as loss:
            self._fail(loss)
            raise
        except StopIteration:
            # As in torch, persistent workers wait for the next epoch.
            if not self._loader.persistent_workers:
                self._shutdown_workers()
            raise
        # Outside of the handlers, so that the traceback shows only the user's exception.
        return wrapper.reraise()

    def _fail(self, error: Exception) -> None:
        """End the workers. Further batches raise the same error: it must not look like the end of the epoch."""
        self._shutdown_workers()
        self._error = error

    @property
    def _workers(self) -> list[BaseProcess]:
        """The worker processes, also after their end. Programs read their process ids."""
        if self._engine is not None:
            self._processes = [worker.process for worker in self._engine.workers]
        return self._processes

    def _shutdown_workers(self) -> None:
        """End the workers. Trainers call this method of torch's iterator."""
        self._processes = self._workers
        engine, self._engine = self._engine, None
        self._has_more, self._requested = False, 0
        self._taken = deque()
        if engine is not None:
            engine.close()

    def __del__(self) -> None:
        """End the workers."""
        self._shutdown_workers()
