"""Getting samples out of a user's dataset, as torch's DataLoader does.

In: an index, a list of indices, or a number of samples. Out: one sample, or one collated item. Errors of the dataset
pass through. ``StopIteration`` of an iterable dataset means its end.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from operator import getitem
from typing import Any

import torch
from torch.utils.data import IterDataPipe, default_collate, default_convert
from torch.utils.data.graph_settings import apply_random_seed

from feedline.torch.worker.item import Item, StatefulItem
from feedline.worker.seeding import sample_seeder

Fetch = Callable[[Any], Any]
_END = object()


def sample_fetcher(dataset: Any) -> Fetch:
    """Return a function from an index to one sample of a map-style dataset."""
    return partial(getitem, dataset)


def collate_or_default(collate_fn: Fetch | None, auto_collation: bool) -> Fetch:
    """Return the user's function, or the one that torch's DataLoader takes instead."""
    if collate_fn is not None:
        return collate_fn
    default: Fetch = default_collate if auto_collation else default_convert
    return default


def item_fetcher(dataset: Any, collate: Fetch, auto_collation: bool) -> Fetch:
    """Return a function from an :class:`Item` to the collated samples of its indices."""
    together: Fetch | None = getattr(dataset, "__getitems__", None)
    if not auto_collation:
        together = sample_fetcher(dataset)
    seed = sample_seeder()

    def fetch(item: Item) -> Any:
        seeds = item.seeds
        if together is not None:
            if seeds:
                seed(seeds[0])
            return collate(together(item.wanted))
        if seeds is None:
            return collate([dataset[index] for index in item.wanted])
        samples = []
        for index, own in zip(item.wanted, seeds, strict=True):
            seed(own)
            samples.append(dataset[index])
        return collate(samples)

    return fetch


class IterableFetcher:
    """Items of an iterable dataset, from one iterator that belongs to this worker."""

    def __init__(
        self,
        dataset: Any,
        collate: Fetch,
        auto_collation: bool,
        drop_last: bool,
        seed_item: Callable[[int, int], None] | None = None,
    ) -> None:
        """The iterator is created with the first item, after the generators were seeded for it.

        ``seed_item`` seeds them again for an epoch and the number of an item.
        """
        self._dataset = dataset
        self._collate = collate
        self._auto_collation = auto_collation
        self._drop_last = drop_last
        self._seed_item = seed_item
        self._iterator: Iterator[Any] | None = None
        self._has_ended = False
        self._epoch = 0
        self._number = 0

    def __call__(self, item: Item) -> Any:
        """Return the next item of ``item.wanted`` samples. At the end, ``StopIteration`` has the pickled state."""
        if item.epoch != self._epoch:
            # A request from before the last epoch began, which nobody waits for, must not take samples of this one.
            if item.epoch < self._epoch:
                raise StopIteration
            self._iterator = None
        if self._iterator is None:
            self.begin(item.start, item.epoch)
        self._skip_to(item)
        # An item that raises counts, too: the next request is for the one after it.
        try:
            value = self._collate(self._next_samples(item.wanted))
        except StopIteration:
            self._has_ended = True
            raise StopIteration(self.state()) from None
        finally:
            self._number += 1
        state = self.state()
        return value if state is None else StatefulItem(value, state)

    def begin(self, start: bytes | None, epoch: int) -> None:
        """Create the iterator, at its first item or from a state, with the random numbers of the item that follows."""
        saved = {} if start is None else pickle.loads(start)
        self._epoch, self._number = epoch, saved.get("items", 0)
        # The first numbers are for the iterator, which may draw its order.
        self._seed(0)
        if "dataset" in saved:
            self._dataset.load_state_dict(saved["dataset"])
        iterator: Any = iter(self._dataset)
        if "iterator" in saved:
            iterator.load_state_dict(saved["iterator"])
        self._iterator, self._has_ended = iterator, saved.get("has_ended", False)
        if saved.get("is_of_last_epoch"):
            if "iterator" not in saved and "dataset" in saved:
                self._finish(iterator, saved["dataset"])
            self._seed(0)
            self._iterator, self._has_ended = iter(self._dataset), False
        elif self._number:
            self._seed(self._number)

    def _finish(self, iterator: Iterator[Any], state: Any) -> None:
        """Let an iterator reach its end, to which the state of its dataset belongs.

        A generator takes the state only when it runs. Otherwise the iterator of the next epoch would take it.
        """
        # An exception comes again from the next iterator, at the same item.
        with suppress(Exception):
            if next(iterator, _END) is _END:
                return
            if hasattr(iterator, "close"):
                # A generator's clean-up must not come after the state below.
                iterator.close()
        # The state is that of a new epoch, which begins again.
        self._dataset.load_state_dict(state)

    def state(self) -> bytes | None:
        """Return the pickled states of the dataset and of its iterator, if either has one (torchdata's protocol)."""
        holders = {"dataset": self._dataset, "iterator": self._iterator}
        if self._dataset is self._iterator:
            # Such a dataset begins in its ``__iter__``, so the state is loaded after that.
            del holders["dataset"]
        found = {name: holder.state_dict() for name, holder in holders.items() if has_state(holder)}
        return pickle.dumps({"items": self._number, "has_ended": self._has_ended, **found}) if found else None

    def _skip_to(self, item: Item) -> None:
        """Pass over items that another worker made before it was lost, or that were received before a restart."""
        if item.number is None or self._number >= item.number:
            return
        while self._number < item.number:
            self._next_samples(item.wanted)
            self._number += 1
            self._seed(self._number)

    def _seed(self, number: int) -> None:
        if self._seed_item is not None:
            self._seed_item(self._epoch, number)

    def _next_samples(self, count: int) -> Any:
        """Return one sample, or a list of them if there is automatic batching."""
        assert self._iterator is not None, "begin() was called"
        if self._has_ended:
            raise StopIteration
        if not self._auto_collation:
            try:
                return next(self._iterator)
            except StopIteration:
                self._has_ended = True
                raise
        samples = []
        for _ in range(count):
            try:
                samples.append(next(self._iterator))
            except StopIteration:
                self._has_ended = True
                break
        if not samples or (self._drop_last and len(samples) < count):
            raise StopIteration
        return samples


def has_state(holder: Any) -> bool:
    """Return whether an object can be saved and continued, by torchdata's protocol."""
    return callable(getattr(holder, "state_dict", None)) and callable(getattr(holder, "load_state_dict", None))


def with_shared_seed(dataset: Any, seed: int | None) -> Any:
    """Seed the shuffling of a torch data pipe equally in all workers. Other datasets are returned as they are."""
    if seed is None or not isinstance(dataset, IterDataPipe):
        return dataset
    return apply_random_seed(dataset, torch.Generator().manual_seed(seed))
