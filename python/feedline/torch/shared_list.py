"""A list that worker processes share instead of copying.

In: any items that can be pickled. Out: an immutable sequence that keeps them as bytes in one buffer. A list of Python
objects grows in every forked worker, because reading an object changes its reference count and so copies its page.
Here only the item in use is an object.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

import numpy as np

T_co = TypeVar("T_co", covariant=True)


class SharedList(Sequence[T_co], Generic[T_co]):
    """An immutable list for datasets with many small items, for example file names and labels.

    Each access unpickles the item, which takes about a microsecond. Changes to it do not reach the list.

    >>> from feedline.torch.shared_list import SharedList
    >>> items = SharedList([("cat.png", 0), ("dog.png", 1), ("eel.png", 2)])
    >>> len(items), items[-1], list(items[:2])
    (3, ('eel.png', 2), [('cat.png', 0), ('dog.png', 1)])
    """

    def __init__(self, items: Iterable[T_co]) -> None:
        """Pickle all items. Raises what ``pickle`` raises for an item that cannot be pickled."""
        # One growing buffer. A list of pieces would double the peak, and leave the heap full of holes that workers
        # fill again, each in its own copy of the pages.
        buffer, ends = bytearray(), array("q")
        for item in items:
            buffer += pickle.dumps(item, protocol=5)
            ends.append(len(buffer))
        self._ends, self._bytes = np.frombuffer(ends, np.int64), np.frombuffer(buffer, np.uint8)
        self._ends.flags.writeable = self._bytes.flags.writeable = False
        self._chosen: range = range(len(ends))

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> SharedList[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | SharedList[T_co]:
        """Return an item, or a part of the list that shares its memory."""
        if isinstance(index, slice):
            return self._part(self._chosen[index])
        try:
            place = self._chosen[index]
        except IndexError:
            raise IndexError(f"index {index} is not in a list of {len(self)} items") from None
        return self._load(place)

    def __iter__(self) -> Iterator[T_co]:
        """Give all items in order."""
        return map(self._load, self._chosen)

    def __repr__(self) -> str:
        """Show the size, not the items."""
        return f"SharedList({len(self)} items, {self._bytes.nbytes} bytes)"

    def _part(self, chosen: range) -> SharedList[T_co]:
        part: SharedList[T_co] = SharedList.__new__(SharedList)
        part._ends, part._bytes, part._chosen = self._ends, self._bytes, chosen
        return part

    def _load(self, place: int) -> T_co:
        start = self._ends[place - 1] if place else 0
        item: T_co = pickle.loads(self._bytes[start : self._ends[place]].data)
        return item
