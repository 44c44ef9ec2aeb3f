"""Requests for the batches of an epoch, in order.

In: a sampler, or the turns of workers. Out: requests to the engine, one batch each. A feed is also told what came back,
so that it knows when an iterable dataset has ended.
"""

from __future__ import annotations

import itertools
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from feedline import _feedline
from feedline.torch.engine import ENDED, WorkerEngine
from feedline.torch.progress import IterableProgress
from feedline.torch.worker.item import DataEnded, Item, StatefulItem, index_id

_NUMBERS = 1 << 63
"""Larger indices do not fit the numbers of a request, and are pickled."""

StartEngine = Callable[[int], WorkerEngine]
"""Starts or returns the engine. The argument is the number of samples of the first batch."""


class Feed(Protocol):
    """Requests batches one by one."""

    accepts_all: bool
    """Whether :meth:`accept` does nothing: the trainer gets every batch as it is."""

    def skip(self, batches: int) -> None:
        """Pass over batches that were received before. Nothing is made for them if that is possible."""

    def request_next(self, start: StartEngine) -> bool:
        """Request the next batch. Return whether there was one."""

    def accept(self, data: Any) -> tuple[Any, ...]:
        """Take note of a delivered batch. Return what the trainer gets of it, if anything."""

    def fail(self) -> None:
        """Take note of a batch that raised an exception of the user's code."""


class SampleFeed:
    """Batches of a map-style dataset, requested sample by sample."""

    accepts_all = True

    def __init__(self, batches: Iterator[Any], epoch: int) -> None:
        """``batches`` gives lists of indices."""
        self._batches, self._epoch, self._position = batches, epoch, 0
        self._skipped: list[tuple[int, list[int]]] = []

    def skip(self, batches: int) -> None:
        """Pass over batches of the sampler."""
        for batch in itertools.islice(self._batches, batches):
            ids, _ = _ids_of(batch)
            self._skipped.append((self._position, ids))
            self._position += len(ids)

    def request_next(self, start: StartEngine) -> bool:
        """Request the next batch of the sampler."""
        batch = next(self._batches, None)
        if batch is None:
            return False
        ids, indices = _ids_of(batch)
        engine = start(len(ids))
        for first, skipped in self._skipped:
            engine.native.skip(self._epoch, first, skipped)
        self._skipped.clear()
        engine.request(self._epoch, self._position, ids, indices)
        self._position += len(ids)
        return True

    def accept(self, data: Any) -> tuple[Any, ...]:
        """Take every batch."""
        return (data,)

    def fail(self) -> None:
        """Go on with the next one."""


class ItemFeed:
    """Items of a map-style dataset: a worker fetches all samples of an item and collates them."""

    accepts_all = True

    def __init__(
        self,
        wanted: Iterator[Any],
        epoch: int,
        seeds: _feedline.SampleSeeds | None,
        *,
        is_batch: bool,
        turns: int | None = None,
    ) -> None:
        """``wanted`` gives indices, or lists of them if ``is_batch``. With ``turns`` that many workers take turns."""
        self._wanted, self._epoch, self._seeds, self._is_batch = wanted, epoch, seeds, is_batch
        self._number, self._turns = 0, turns
        if seeds is not None:
            seeds.begin(epoch)

    def skip(self, batches: int) -> None:
        """Pass over items of the sampler."""
        for wanted in itertools.islice(self._wanted, batches):
            self._seeds_of(wanted)
            self._number += 1

    def request_next(self, start: StartEngine) -> bool:
        """Request the next item of the sampler."""
        try:
            wanted = next(self._wanted)
        except StopIteration:
            return False
        item = pickle.dumps([Item(wanted, self._seeds_of(wanted), self._epoch)])
        worker = None if self._turns is None else self._number % self._turns
        start(1).request(self._epoch, self._number, [self._number], item, worker)
        self._number += 1
        return True

    def _seeds_of(self, wanted: Any) -> list[int] | None:
        if self._seeds is None:
            return None
        return self._seeds.next([index_id(index) for index in (wanted if self._is_batch else [wanted])])

    def accept(self, data: Any) -> tuple[Any, ...]:
        """Take every item."""
        return (data,)

    def fail(self) -> None:
        """Go on with the next one."""


class IterableFeed:
    """Items of an iterable dataset. Its workers take turns until the iterator of each has ended."""

    accepts_all = False

    def __init__(self, progress: IterableProgress, count: int, epoch: int) -> None:
        """Each item has ``count`` samples. ``progress`` says where each worker begins, and notes what it gave."""
        self._progress, self._workers = progress, progress.workers
        self._turn, self._numbers = progress.turn, list(progress.numbers)
        self._count, self._epoch, self._position = count, epoch, 0
        self._ended: set[int] = set()
        self._requested: deque[int] = deque()

    def skip(self, batches: int) -> None:
        """Do nothing: the workers continue from the state of the dataset, or pass over items themselves."""

    def request_next(self, start: StartEngine) -> bool:
        """Request the next item from the worker whose turn it is."""
        if len(self._ended) == self._workers:
            return False
        while self._turn in self._ended:
            self._turn = (self._turn + 1) % self._workers
        worker = self._turn
        number = self._numbers[worker]
        item = pickle.dumps([Item(self._count, None, self._epoch, number, self._progress.starts[worker])])
        # The seed of an item follows from this number, so it must not depend on how far ahead items are requested.
        start(1).request(self._epoch, self._position, [worker + self._workers * number], item, worker)
        self._requested.append(worker)
        self._numbers[worker] += 1
        self._position += 1
        self._turn = (worker + 1) % self._workers
        return True

    def accept(self, data: Any) -> tuple[Any, ...]:
        """Take every item but the end of a worker's iterator."""
        worker = self._requested.popleft()
        if data is ENDED or isinstance(data, DataEnded):
            self._ended.add(worker)
            self._progress.end(worker, data.state if isinstance(data, DataEnded) else None)
            return ()
        value, state = data if isinstance(data, StatefulItem) else (data, None)
        self._progress.receive(worker, state)
        return (value,)

    def fail(self) -> None:
        """Take note of an item that raised."""
        self._progress.pass_over(self._requested.popleft())


def _ids_of(batch: Any) -> tuple[list[int], bytes | None]:
    """Return the numbers of samples, and their indices as the dataset takes them if these are not numbers."""
    indices = list(batch)
    # An exact type: True is an index, too, but of another dataset. An empty batch has no type.
    if set(map(type, indices)) <= {int} and min(indices, default=0) >= 0 and max(indices, default=0) < _NUMBERS:
        return indices, None
    return [index_id(index) for index in indices], pickle.dumps(indices)
