"""Samples in the calling thread, for ``num_workers=0``.

In: a DataLoader and the seeds of samples. Out: collated items, one after the other. The program's random number
generators are left as they were, and samples are those that worker processes would make.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from feedline import _feedline
from feedline.torch.progress import EpochProgress
from feedline.torch.worker import fetch
from feedline.torch.worker.item import Item, StatefulItem, index_id
from feedline.torch.worker.seeding import GeneratorStates, preserved_generators
from feedline.worker.seeding import sample_seeder

if TYPE_CHECKING:
    from feedline.torch.loader import DataLoader


class MapItems(Iterator[Any]):
    """The items of a map-style dataset. Those that were received before are passed over."""

    def __init__(
        self, loader: DataLoader[Any], sampling: Iterator[Any], progress: EpochProgress, seed: int | None
    ) -> None:
        """Without ``seed`` samples are not seeded."""
        self._is_batch = loader._auto_collation
        self._make = fetch.item_fetcher(loader.dataset, loader.collate_fn, self._is_batch)
        self._seeds = None if seed is None else _feedline.SampleSeeds(seed)
        self._sampling, self._epoch = sampling, progress.epoch
        if self._seeds is not None:
            self._seeds.begin(progress.epoch)
        for wanted in itertools.islice(sampling, progress.to_skip):
            self._seeds_of(wanted)

    def __next__(self) -> Any:
        """Make the next item."""
        wanted = next(self._sampling)
        own = self._seeds_of(wanted)
        with preserved_generators() if own is not None else nullcontext():
            return self._make(Item(wanted, own, self._epoch))

    def _seeds_of(self, wanted: Any) -> list[int] | None:
        if self._seeds is None:
            return None
        return self._seeds.next([index_id(index) for index in (wanted if self._is_batch else [wanted])])


class IterableItems(Iterator[Any]):
    """The items of an iterable dataset, from where its state says. Without a state they are made again and dropped."""

    def __init__(self, loader: DataLoader[Any], dataset: Any, progress: EpochProgress, seed: int | None) -> None:
        """Create the iterator of the dataset. Without ``seed`` items are not seeded."""
        assert progress.iterable is not None, "the dataset is iterable"
        self._count = loader.batch_size if loader.batch_size is not None else 1
        self._epoch, self._progress = progress.epoch, progress.iterable
        self._number = self._progress.numbers[0]
        self._seeds = None if seed is None else _feedline.SampleSeeds(seed)
        self._seed = sample_seeder()
        seed_item = None if seed is None else self._seed_item
        self._make = fetch.IterableFetcher(
            dataset, loader.collate_fn, loader._auto_collation, loader.drop_last, seed_item
        )
        with self._seeded(self._number):
            self._make.begin(self._progress.starts[0], self._epoch)
            if self._progress.states[0] is None:
                self._progress.states[0] = self._make.state()
            # The first item goes on with the random numbers of its seed, as in a worker.
            self._first: GeneratorStates | None = GeneratorStates.now() if self._seeds is not None else None

    def __next__(self) -> Any:
        """Make the next item."""
        with self._seeded(self._number):
            if self._first is not None:
                self._first.restore()
                self._first = None
            try:
                made = self._make(Item(self._count, None, self._epoch, self._number))
            except StopIteration as end:
                self._progress.end(0, end.value)
                raise StopIteration from None
            except Exception:
                self._progress.pass_over(0)
                raise
            finally:
                self._number += 1
        value, state = made if isinstance(made, StatefulItem) else (made, None)
        self._progress.receive(0, state)
        return value

    @contextmanager
    def _seeded(self, number: int) -> Iterator[None]:
        if self._seeds is None:
            yield
            return
        with preserved_generators():
            self._seed_item(self._epoch, number)
            yield

    def _seed_item(self, epoch: int, number: int) -> None:
        assert self._seeds is not None, "only seeded items come here"
        self._seeds.begin(epoch)
        self._seed(self._seeds.next([number])[0])
